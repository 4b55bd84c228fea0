//! How each worker spent the run: spans by activity, which add up to the whole exactly.

use crate::core::{Activity, Core};
use crate::id::{DrafterId, TargetId};
use crate::time::{Span, Time};

/// One worker's time by activity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerShares {
    /// Its name: t0, d1, …
    pub worker: String,
    /// Spans by [`Activity::index`]; they add up to the run.
    pub spans: [Span; 6],
}

impl WorkerShares {
    /// The time it spent on `activity`.
    pub fn span(&self, activity: Activity) -> Span {
        self.spans[activity.index()]
    }

    /// The share of the run it spent on `activity`.
    pub fn share(&self, activity: Activity) -> f64 {
        let whole: Span = self.spans.iter().copied().sum();
        ratio(self.span(activity).as_ns(), whole.as_ns())
    }
}

pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Follows what every worker does.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    targets: Vec<Spent>,
    drafters: Vec<Spent>,
}

/// What one worker does, since when, and what it did before.
#[derive(Clone, Debug)]
struct Spent {
    activity: Activity,
    since: Time,
    spans: [Span; 6],
}

impl Spent {
    const NEW: Self = Self {
        activity: Activity::Starved,
        since: Time::ZERO,
        spans: [Span::ZERO; 6],
    };

    #[inline]
    fn observe(&mut self, at: Time, activity: Activity) {
        if activity != self.activity {
            self.spans[self.activity.index()] += at - self.since;
            (self.activity, self.since) = (activity, at);
        }
    }

    /// The shares of the worker of this name if the run ended at `end`.
    fn until(&self, end: Time, worker: String) -> WorkerShares {
        let mut spans = self.spans;
        spans[self.activity.index()] += end - self.since;
        WorkerShares { worker, spans }
    }
}

impl Shares {
    pub(super) fn new(targets: usize, drafters: usize) -> Self {
        Self {
            targets: vec![Spent::NEW; targets],
            drafters: vec![Spent::NEW; drafters],
        }
    }

    /// Looks at the workers that the last event touched.
    #[inline]
    pub(super) fn observe(&mut self, at: Time, core: &Core) {
        for target in core.touched_targets() {
            self.targets[target.index()].observe(at, core.target_activity(target));
        }
        for drafter in core.touched_drafters() {
            self.drafters[drafter.index()].observe(at, core.drafter_activity(drafter));
        }
    }

    /// The shares if the run ended at `end`, targets first.
    pub(super) fn until(&self, end: Time) -> Vec<WorkerShares> {
        let targets = self.targets.iter().enumerate();
        let targets = targets.map(|(i, t)| t.until(end, TargetId::from_index(i).to_string()));
        let drafters = self.drafters.iter().enumerate();
        let drafters = drafters.map(|(i, d)| d.until(end, DrafterId::from_index(i).to_string()));
        targets.chain(drafters).collect()
    }
}
