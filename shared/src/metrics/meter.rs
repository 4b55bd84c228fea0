//! Watches a run record by record.

use super::Peaks;
use super::account::Account;
use super::arrivals::Arrivals;
use super::mixing::Mixing;
use super::series::{Point, Timeline};
use super::shares::Shares;
use super::summary::{Applied, BucketDelay, Metrics, steady};
use super::thinned::Thinned;
use crate::core::{Action, Core, Event, Group, Outcome, Status};
use crate::id::{BucketId, MicrobatchId, StepId, Tokens};
use crate::policy::{Barrier, Placement, Transport};
use crate::time::Time;

/// How much to keep beside sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Keep slots over time.
    pub points: bool,
    /// Keep every optimizer step's mix.
    pub steps: bool,
    /// Keep the bars of so many first steps.
    pub timeline_steps: u32,
}

/// The first part of a run that is left out of the steady part: one in so many steps.
const WARM_UP_SHARE: usize = 10;

/// Optimizer steps that are kept one by one, for the end of the warm-up and the spread: more than that are thinned out. (2 MiB)
const STEPS_MAX: usize = 65_536;

/// Points of slots over time that are kept for a figure.
const POINTS_MAX: usize = 4_000;

/// The reducer.
#[derive(Clone, Debug)]
pub struct Meter {
    shares: Shares,
    peaks: Peaks,
    mixing: Mixing,
    /// What figures need.
    drawn: Option<(Option<Thinned<Point>>, Option<Timeline>)>,
    /// When each step was applied, with what was part of the weights then and whether targets still had input.
    steps: Thinned<Applied>,
    arrivals: Arrivals,
    delays: Vec<BucketDelay>,
    /// Whether targets send off what they have made; if not, it waits where it is.
    is_staged: bool,
    /// Whether drafters fetch what they take; if not, waiting lasts until training begins.
    is_fetched: bool,
    tokens: Tokens,
    samples: u64,
}

impl Meter {
    /// A meter for a run of `core`, which has seen no event.
    pub fn new(core: &Core, detail: Detail) -> Self {
        let targets = core.state().targets.len();
        let drafters = core.state().drafters.len();
        let buckets = core.plan().buckets();
        let is_moved = core.policy().transport != Transport::Local;
        let series = detail.points.then(|| Thinned::new(POINTS_MAX));
        let timeline = (detail.timeline_steps > 0).then(|| Timeline::new(detail.timeline_steps));
        Self {
            shares: Shares::new(targets, drafters),
            peaks: Peaks::new(targets, drafters),
            mixing: Mixing::new(core, detail.steps),
            drawn: (series.is_some() || timeline.is_some()).then_some((series, timeline)),
            steps: Thinned::new(STEPS_MAX).with_capacity(steps_expected(core)),
            arrivals: Arrivals::new(),
            delays: (0..buckets)
                .map(|b| BucketDelay {
                    bucket: BucketId(b),
                    ..BucketDelay::default()
                })
                .collect(),
            is_staged: is_moved && core.policy().placement != Placement::Target,
            is_fetched: is_moved && core.policy().placement != Placement::Drafter,
            tokens: Tokens(0),
            samples: 0,
        }
    }

    /// Takes in one record, with the core after it.
    pub fn observe(&mut self, at: Time, event: &Event, actions: &[Action], core: &Core) {
        self.shares.observe(at, core);
        self.peaks.observe(at, &core.state().hs);
        self.event(at, event, core);
        for action in actions {
            self.action(at, action, core);
        }
        if self.drawn.is_some() {
            self.draw(at, event, actions, core);
        }
    }

    #[inline(never)]
    fn draw(&mut self, at: Time, event: &Event, actions: &[Action], core: &Core) {
        let Some((series, timeline)) = &mut self.drawn else {
            return;
        };
        if let Some(series) = series {
            series.push(|| Point::of(at, &core.state().hs));
        }
        if let Some(timeline) = timeline {
            timeline.observe(at, event, actions, core);
        }
    }

    #[inline]
    fn event(&mut self, at: Time, event: &Event, core: &Core) {
        match *event {
            // Hidden states that have a slot wait from now on.
            Event::ForwardEnded {
                microbatch,
                outcome: Outcome::Done,
                ..
            } if !self.is_staged => self.arrived(at, microbatch, core),
            Event::StageEnded {
                microbatch,
                outcome: Outcome::Done,
            } => self.arrived(at, microbatch, core),
            Event::TrainEnded {
                drafter,
                microbatch,
                outcome: Outcome::Done,
            } => self.mixing.trained(drafter, microbatch, core),
            Event::StepApplied { step, group } => self.applied(at, step, group, core),
            // Gradients that are being summed at its loss are part of the step.
            Event::DrafterLost(drafter) if !core.state().drafters[drafter.index()].applying => {
                self.mixing.forget(drafter);
            }
            Event::Started
            | Event::ForwardEnded { .. }
            | Event::StageEnded { .. }
            | Event::FetchEnded { .. }
            | Event::TrainEnded { .. }
            | Event::WakeDue
            | Event::TargetJoined(_)
            | Event::TargetLost(_)
            | Event::DrafterJoined(_)
            | Event::DrafterLost(_)
            | Event::StopAsked => {}
        }
    }

    /// One event in many: apart, so that the others do not carry it along.
    #[inline(never)]
    fn applied(&mut self, at: Time, step: StepId, group: Group, core: &Core) {
        let applied = self.mixing.applied(step, group, core);
        self.tokens += applied.tokens;
        self.samples += applied.samples;
        let last = MicrobatchId::from_index(core.state().lives.len().saturating_sub(1));
        let steps = self.steps.seen() + 1;
        self.steps.push(|| Applied {
            at,
            tokens: self.tokens,
            samples: self.samples,
            steps,
            has_input: core.status(last) == Status::Pending,
        });
    }

    /// Waiting begins when hidden states have a slot and are where they wait; it ends when a drafter's fetch or training begins.
    #[inline]
    fn action(&mut self, at: Time, action: &Action, core: &Core) {
        let hs = &core.state().hs;
        match *action {
            Action::Forward { target, .. } => self.peaks.on_target(target, hs),
            Action::Admit { microbatch } if !self.is_staged => self.arrived(at, microbatch, core),
            Action::Stage { drafter: None, .. } => self.peaks.on_host(hs),
            Action::Stage {
                drafter: Some(drafter),
                ..
            } => self.peaks.on_drafter(drafter, hs),
            Action::Fetch {
                drafter,
                microbatch,
                ..
            } => {
                self.peaks.on_drafter(drafter, hs);
                self.taken(at, microbatch, core);
            }
            Action::Train { microbatch, .. } if !self.is_fetched => {
                self.taken(at, microbatch, core);
            }
            Action::Admit { .. }
            | Action::Train { .. }
            | Action::Apply { .. }
            | Action::Discard { .. }
            | Action::Wake { .. }
            | Action::StopTarget { .. }
            | Action::StopDrafter { .. } => {}
        }
    }

    #[inline]
    fn arrived(&mut self, at: Time, microbatch: MicrobatchId, core: &Core) {
        let lives = &core.state().lives;
        // Who is not alive is taken after another arrival only.
        let waits = |id: MicrobatchId| lives.get(id).is_some_and(|l| l.status.is_alive());
        self.arrivals.note(microbatch, at, waits);
    }

    #[inline(always)]
    fn taken(&mut self, at: Time, microbatch: MicrobatchId, core: &Core) {
        let wait = at - self.arrivals.since(microbatch);
        let delay = &mut self.delays[core.bucket(microbatch).index()];
        delay.count += 1;
        delay.sum += wait;
        delay.max = delay.max.max(wait);
    }

    /// The numbers, if the run ended with the last record taken in.
    pub fn finish(mut self, core: &Core) -> Metrics {
        let end = core.state().now;
        self.peaks.end(end);
        let Account {
            ledger,
            tokens,
            padded,
            microbatches,
        } = Account::of(core);
        let (mix, step_mixes) = self.mixing.finish();
        let (series, timeline) = self.drawn.unwrap_or_default();
        let (steps, applied) = (self.steps.seen(), self.steps.into_kept());
        Metrics {
            makespan: end - Time::ZERO,
            tokens,
            padded,
            samples: ledger.trained,
            microbatches,
            steps,
            steady: steady(&applied, applied.len() / WARM_UP_SHARE),
            applied,
            workers: self.shares.until(end),
            targets: core.state().targets.len(),
            peaks: self.peaks,
            mix,
            step_mixes,
            delays: self.delays,
            ledger,
            points: series.map(Thinned::into_kept).unwrap_or_default(),
            timeline: timeline.map(|t| t.bars).unwrap_or_default(),
        }
    }
}

/// Optimizer steps that the whole plan makes, at most unless work is lost: each drafter's last may fall short.
fn steps_expected(core: &Core) -> usize {
    let drafters = usize::from(core.policy().drafters);
    let together = match core.policy().barrier {
        Barrier::All => drafters,
        Barrier::None => 1,
    };
    let microbatches = core.plan().microbatches.len();
    microbatches / (core.grad_accum() as usize * together) + drafters
}
