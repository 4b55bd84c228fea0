//! How a run is doing, from its records: a value to show, never shown here.
//!
//! Rates are over the last trainings, so that they follow a change within a few steps; the overall throughput is kept beside them.

mod rates;
mod status;

use rates::{Rates, Totals};
use shared::core::{Activity, Core, Event, Group, Outcome};
use shared::id::{DrafterId, TargetId, Tokens};
use shared::time::{Span, Time};
use std::collections::VecDeque;

pub use status::{Bottleneck, Status};

/// Trainings that the recent rates are taken over.
const WINDOW: usize = 64;

/// Follows a run record by record.
#[derive(Clone, Debug)]
pub struct Progress {
    now: Time,
    totals: Totals,
    /// The totals after each of the last trainings, oldest first.
    recent: VecDeque<Totals>,
    targets: Vec<Activity>,
    drafters: Vec<Activity>,
    steps: u32,
    steps_planned: u32,
    tokens_planned: Tokens,
}

impl Progress {
    /// Nothing has happened yet.
    pub fn new(core: &Core) -> Self {
        let plan = core.plan();
        let window = core.grad_accum() * u32::from(core.policy().drafters);
        let steps_planned = if plan.is_composed() {
            plan.steps.len() as u32
        } else {
            (plan.microbatches.len() as u32).div_ceil(window)
        };
        Self {
            now: Time::ZERO,
            totals: Totals::default(),
            recent: VecDeque::from([Totals::default()]),
            targets: vec![Activity::Absent; core.policy().targets.into()],
            drafters: vec![Activity::Absent; core.policy().drafters.into()],
            steps: 0,
            steps_planned,
            tokens_planned: plan.tokens(),
        }
    }

    /// Takes in a record: an event and the core after it.
    pub fn observe(&mut self, now: Time, event: &Event, core: &Core) {
        self.spend(now - self.now);
        self.now = now;
        self.totals.at = now;
        self.count(event, core);
        for (index, activity) in self.targets.iter_mut().enumerate() {
            *activity = core.target_activity(TargetId::from_index(index));
        }
        for (index, activity) in self.drafters.iter_mut().enumerate() {
            *activity = core.drafter_activity(DrafterId::from_index(index));
        }
    }

    /// How the run is doing after the last record.
    pub fn status(&self, core: &Core) -> Status {
        let since = self.recent.front().copied().unwrap_or_default();
        let recent = Rates::between(&since, &self.totals);
        let overall = Rates::between(&Totals::default(), &self.totals);
        let left = self.tokens_planned.0.saturating_sub(self.totals.trained.0);
        let eta = recent
            .throughput
            .map(|rate| Span::from_ns((left as f64 / rate * 1e9) as u64));
        let hs = &core.state().hs;
        let policy = core.policy();
        let by_drafter = policy
            .depth_per_drafter
            .map(|depth| depth.saturating_mul(policy.drafters.into()));
        Status {
            throughput: recent.throughput,
            throughput_overall: overall.throughput,
            target_capacity: recent
                .forwarded_busy
                .map(|rate| rate * self.present(&self.targets)),
            drafter_capacity: recent
                .trained_busy
                .map(|rate| rate * self.present(&self.drafters)),
            waiting: recent.waiting,
            pool: hs.by_bucket.clone(),
            slots: hs.slots,
            slots_max: policy.depth_total.into_iter().chain(by_drafter).min(),
            bottleneck: recent.bottleneck(),
            done: self.totals.trained.0 as f64 / self.tokens_planned.0.max(1) as f64,
            steps: self.steps,
            steps_planned: self.steps_planned,
            eta,
        }
    }

    /// Tokens trained on so far, padding left out. (tokens)
    pub fn trained(&self) -> Tokens {
        self.totals.trained
    }

    /// Shares of the targets' time so far by [`Activity::index`]; absence left out of the whole.
    pub fn target_shares(&self) -> [f64; Activity::ALL.len()] {
        rates::shares(&self.totals.targets)
    }

    /// Shares of the drafters' time so far by [`Activity::index`]; absence left out of the whole.
    pub fn drafter_shares(&self) -> [f64; Activity::ALL.len()] {
        rates::shares(&self.totals.drafters)
    }

    fn spend(&mut self, span: Span) {
        for activity in &self.targets {
            self.totals.targets[activity.index()] += span;
        }
        for activity in &self.drafters {
            self.totals.drafters[activity.index()] += span;
        }
    }

    fn count(&mut self, event: &Event, core: &Core) {
        match *event {
            Event::ForwardEnded {
                microbatch,
                outcome: Outcome::Done,
                ..
            } => {
                self.totals.forwarded += core.plan().microbatch(microbatch).tokens;
            }
            Event::TrainEnded {
                microbatch,
                outcome: Outcome::Done,
                ..
            } => {
                self.totals.trained += core.plan().microbatch(microbatch).tokens;
                if self.recent.len() > WINDOW {
                    self.recent.pop_front();
                }
                self.recent.push_back(self.totals);
            }
            Event::StepApplied {
                group: Group::All, ..
            } => self.steps += 1,
            Event::StepApplied {
                group: Group::One(_),
                ..
            } => {
                let own = core.state().drafters.iter().map(|d| d.own_steps);
                self.steps = own.min().unwrap_or(0);
            }
            _ => {}
        }
    }

    fn present(&self, workers: &[Activity]) -> f64 {
        workers
            .iter()
            .filter(|activity| **activity != Activity::Absent)
            .count() as f64
    }
}

#[cfg(test)]
mod tests;
