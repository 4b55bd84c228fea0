//! Watches a run record by record.

use super::mixing::Mixing;
use super::series::{Series, Timeline};
use super::summary::{Applied, BucketDelay, Ledger, Metrics, steady};
use super::{Peaks, Shares};
use crate::core::{Action, Core, Event, Outcome, Status};
use crate::id::{BucketId, MicrobatchId, SampleId, Tokens};
use crate::policy::{Placement, Transport};
use crate::time::Time;

/// How much to keep beside sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Keep slots over time.
    pub points: bool,
    /// Keep the bars of so many first steps.
    pub timeline_steps: u32,
}

/// The first part of a run that is left out of the steady part: one in so many steps.
const WARM_UP_SHARE: usize = 10;

/// The reducer.
#[derive(Clone, Debug)]
pub struct Meter {
    shares: Shares,
    peaks: Peaks,
    mixing: Mixing,
    series: Option<Series>,
    timeline: Option<Timeline>,
    /// When each step was applied, with what was part of the weights then and whether targets still had input.
    steps: Vec<Applied>,
    arrived: Vec<Time>,
    delays: Vec<BucketDelay>,
    /// Whether drafters fetch what they take; if not, waiting lasts until training begins.
    is_fetched: bool,
    tokens: Tokens,
    samples: u64,
    end: Time,
}

impl Meter {
    /// A meter for a run of `core`, which has seen no event.
    pub fn new(core: &Core, detail: Detail) -> Self {
        let targets = core.state().targets.len();
        let drafters = core.state().drafters.len();
        let buckets = core.plan().buckets;
        Self {
            shares: Shares::new(targets, drafters),
            peaks: Peaks::new(targets, drafters),
            mixing: Mixing::new(core),
            series: detail.points.then(Series::new),
            timeline: (detail.timeline_steps > 0).then(|| Timeline::new(detail.timeline_steps)),
            steps: Vec::new(),
            arrived: vec![Time::ZERO; core.plan().microbatches.len()],
            delays: (0..buckets)
                .map(|b| BucketDelay {
                    bucket: BucketId(b),
                    ..BucketDelay::default()
                })
                .collect(),
            is_fetched: core.policy().transport != Transport::Local
                && core.policy().placement != Placement::Drafter,
            tokens: Tokens(0),
            samples: 0,
            end: Time::ZERO,
        }
    }

    /// Takes in one record, with the core after it.
    pub fn observe(&mut self, at: Time, event: &Event, actions: &[Action], core: &Core) {
        self.end = at;
        self.shares.observe(at, core, |_, _, _| {});
        self.peaks.observe(at, &core.state().hs);
        self.event(at, event, core);
        for action in actions {
            self.action(at, action, core);
        }
        if let Some(series) = &mut self.series {
            series.observe(at, core);
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.observe(at, event, actions, core);
        }
    }

    fn event(&mut self, at: Time, event: &Event, core: &Core) {
        match *event {
            // Hidden states that have a slot wait from now on.
            Event::ForwardEnded {
                microbatch,
                outcome: Outcome::Done,
                ..
            }
            | Event::StageEnded {
                microbatch,
                outcome: Outcome::Done,
            } => self.arrived[microbatch.index()] = at,
            Event::TrainEnded {
                drafter,
                microbatch,
                outcome: Outcome::Done,
            } => self.mixing.trained(drafter, microbatch, core),
            Event::StepApplied { step, group } => {
                let applied = self.mixing.applied(step, group, core);
                self.tokens += applied.tokens;
                self.samples += applied.samples;
                self.steps.push(Applied {
                    at,
                    tokens: self.tokens,
                    samples: self.samples,
                    has_input: core
                        .state()
                        .lives
                        .last()
                        .is_some_and(|life| life.status == Status::Pending),
                });
            }
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

    /// Waiting begins when hidden states have a slot and are where they wait; it ends when a drafter's fetch or training begins.
    fn action(&mut self, at: Time, action: &Action, core: &Core) {
        let hs = &core.state().hs;
        match *action {
            Action::Forward { target, .. } => self.peaks.on_target(target, hs),
            Action::Admit { microbatch } => self.arrived[microbatch.index()] = at,
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
            Action::Train { .. }
            | Action::Apply { .. }
            | Action::Discard { .. }
            | Action::Wake { .. }
            | Action::StopTarget { .. }
            | Action::StopDrafter { .. } => {}
        }
    }

    fn taken(&mut self, at: Time, microbatch: MicrobatchId, core: &Core) {
        let wait = at - self.arrived[microbatch.index()];
        let delay = &mut self.delays[core.plan().microbatch(microbatch).bucket.index()];
        delay.count += 1;
        delay.sum += wait;
        delay.max = delay.max.max(wait);
    }

    /// The numbers, if the run ended with the last record taken in.
    pub fn finish(self, core: &Core) -> Metrics {
        let mut padded = Tokens(0);
        let (mut tokens, mut samples, mut microbatches) = (Tokens(0), 0, 0);
        for (life, microbatch) in core.state().lives.iter().zip(&core.plan().microbatches) {
            if life.status == Status::Committed {
                padded += microbatch.padded;
                tokens += microbatch.tokens;
                samples += u64::from(microbatch.sample_count());
                microbatches += 1;
            }
        }
        Metrics {
            makespan: self.end - Time::ZERO,
            tokens,
            padded,
            samples,
            microbatches,
            steps: self.steps.len() as u32,
            steady: steady(&self.steps, self.steps.len() / WARM_UP_SHARE),
            applied: self.steps,
            workers: self.shares.until(self.end),
            targets: core.state().targets.len(),
            peaks: self.peaks,
            mix: self.mixing.summary(),
            step_mixes: self.mixing.steps,
            delays: self.delays,
            ledger: ledger(core),
            points: self.series.map(|s| s.points).unwrap_or_default(),
            timeline: self.timeline.map(|t| t.bars).unwrap_or_default(),
        }
    }
}

fn ledger(core: &Core) -> Ledger {
    let plan = core.plan();
    let epochs = plan
        .microbatches
        .iter()
        .chain(&plan.dropped)
        .map(|m| m.epoch + 1)
        .max();
    // Over-long samples are left out of every epoch.
    let over_long = (0..epochs.unwrap_or(1)).flat_map(|_| plan.over_long.iter().copied());
    let mut ledger = Ledger {
        over_long: over_long.collect(),
        ..Ledger::default()
    };
    let samples_of = |range: &std::ops::Range<u32>| -> Vec<SampleId> {
        let flat = plan.samples.get(range.start as usize..range.end as usize);
        flat.map(<[SampleId]>::to_vec).unwrap_or_default()
    };
    for dropped in &plan.dropped {
        ledger.planned += u64::from(dropped.sample_count());
        ledger.dropped.extend(samples_of(&dropped.samples));
    }
    for (life, microbatch) in core.state().lives.iter().zip(&plan.microbatches) {
        let count = u64::from(microbatch.sample_count());
        ledger.planned += count;
        match life.status {
            Status::Committed => ledger.trained += count,
            Status::Failed => ledger.failed.extend(samples_of(&microbatch.samples)),
            Status::Skipped => ledger.skipped += count,
            Status::Pending => ledger.waiting += count,
            _ => ledger.in_flight += count,
        }
    }
    ledger.planned += ledger.over_long.len() as u64;
    ledger
}
