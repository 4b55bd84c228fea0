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
pub struct Shares {
    now: Vec<(Activity, Time)>,
    spans: Vec<[Span; 6]>,
    targets: usize,
}

impl Shares {
    pub(super) fn new(targets: usize, drafters: usize) -> Self {
        let workers = targets + drafters;
        Self {
            now: vec![(Activity::Starved, Time::ZERO); workers],
            spans: vec![[Span::ZERO; 6]; workers],
            targets,
        }
    }

    /// Looks at the workers that the last event touched; calls `changed(worker, activity, since)` for each activity that ended.
    pub(super) fn observe(
        &mut self,
        at: Time,
        core: &Core,
        mut changed: impl FnMut(usize, Activity, Time),
    ) {
        let (targets, drafters) = self.now.split_at_mut(self.targets);
        let mut compare = |worker: usize, now: &mut (Activity, Time), activity: Activity| {
            let (before, since) = *now;
            if activity != before {
                self.spans[worker][before.index()] += at - since;
                *now = (activity, at);
                changed(worker, before, since);
            }
        };
        for target in core.touched_targets() {
            let i = target.index();
            compare(i, &mut targets[i], core.target_activity(target));
        }
        for drafter in core.touched_drafters() {
            let i = drafter.index();
            let activity = core.drafter_activity(drafter);
            compare(self.targets + i, &mut drafters[i], activity);
        }
    }

    /// The shares if the run ended at `end`.
    pub(super) fn until(&self, end: Time) -> Vec<WorkerShares> {
        let all = self.now.iter().zip(&self.spans).enumerate();
        all.map(|(worker, (&(activity, since), spans))| {
            let mut spans = *spans;
            spans[activity.index()] += end - since;
            WorkerShares {
                worker: self.name(worker),
                spans,
            }
        })
        .collect()
    }

    pub(super) fn name(&self, worker: usize) -> String {
        if worker < self.targets {
            TargetId::from_index(worker).to_string()
        } else {
            DrafterId::from_index(worker - self.targets).to_string()
        }
    }
}
