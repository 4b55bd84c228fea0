//! What figures need beyond sums: slots over time and the timeline of the first steps.

use crate::core::{Action, Core, Event};
use crate::id::{BucketId, Bytes, MicrobatchId, StepId};
use crate::time::Time;
use std::collections::BTreeMap;

/// Slots and bytes at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// When.
    pub at: Time,
    /// Slots in use. [slots]
    pub slots: u32,
    /// Hidden states in existence.
    pub alive: u32,
    /// Their bytes.
    pub alive_bytes: Bytes,
    /// Bytes in host memory.
    pub host_bytes: Bytes,
}

/// What a worker did in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// A target forward.
    Forward,
    /// A copy out of a target's memory.
    Stage,
    /// A copy into a drafter's memory.
    Fetch,
    /// A drafter's forward and backward.
    Train,
    /// An optimizer step.
    Apply,
}

/// One bar of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Who: t0, d1, …
    pub worker: String,
    /// What.
    pub work: Work,
    /// On which microbatch, with its bucket.
    pub microbatch: Option<(MicrobatchId, BucketId)>,
    /// For which step, where it is known.
    pub step: Option<StepId>,
    /// From.
    pub from: Time,
    /// To.
    pub to: Time,
}

/// Collects points, at most so many: when full, every second is dropped and the spacing doubles.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) points: Vec<Point>,
    spacing: u32,
    seen: u32,
}

const POINTS_MAX: usize = 4_000;

impl Series {
    pub(super) fn new() -> Self {
        Self {
            points: Vec::new(),
            spacing: 1,
            seen: 0,
        }
    }

    pub(super) fn observe(&mut self, at: Time, core: &Core) {
        self.seen += 1;
        if !self.seen.is_multiple_of(self.spacing) {
            return;
        }
        let hs = &core.state().hs;
        self.points.push(Point {
            at,
            slots: hs.slots.count,
            alive: hs.alive.count,
            alive_bytes: hs.alive.bytes,
            host_bytes: hs.at_host,
        });
        if self.points.len() >= POINTS_MAX {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.spacing *= 2;
        }
    }
}

/// Collects the bars of the first steps.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    pub(super) bars: Vec<Interval>,
    open: BTreeMap<(Work, u32), (String, Option<StepId>, Time)>,
    steps: u32,
}

impl Timeline {
    pub(super) fn new(steps: u32) -> Self {
        Self {
            bars: Vec::new(),
            open: BTreeMap::new(),
            steps,
        }
    }

    pub(super) fn observe(&mut self, at: Time, event: &Event, actions: &[Action], core: &Core) {
        match *event {
            Event::ForwardEnded { microbatch, .. } => {
                self.close(Work::Forward, microbatch.0, at, core)
            }
            Event::StageEnded { microbatch, .. } => self.close(Work::Stage, microbatch.0, at, core),
            Event::FetchEnded { microbatch, .. } => self.close(Work::Fetch, microbatch.0, at, core),
            Event::TrainEnded { microbatch, .. } => self.close(Work::Train, microbatch.0, at, core),
            Event::StepApplied { step, .. } => {
                self.close(Work::Apply, step.0, at, core);
                self.steps = self.steps.saturating_sub(1);
            }
            Event::Started
            | Event::WakeDue
            | Event::TargetJoined(_)
            | Event::TargetLost(_)
            | Event::DrafterJoined(_)
            | Event::DrafterLost(_)
            | Event::StopAsked => {}
        }
        if self.steps == 0 {
            self.open.clear();
            return;
        }
        for action in actions {
            let (key, worker, step) = match *action {
                Action::Forward { target, microbatch } => {
                    ((Work::Forward, microbatch.0), target.to_string(), None)
                }
                Action::Stage {
                    target, microbatch, ..
                } => ((Work::Stage, microbatch.0), target.to_string(), None),
                Action::Fetch {
                    drafter,
                    microbatch,
                    ..
                } => ((Work::Fetch, microbatch.0), drafter.to_string(), None),
                Action::Train {
                    drafter,
                    microbatch,
                    step,
                } => ((Work::Train, microbatch.0), drafter.to_string(), Some(step)),
                Action::Apply { step, .. } => ((Work::Apply, step.0), "all".into(), Some(step)),
                Action::Admit { .. }
                | Action::Discard { .. }
                | Action::Wake { .. }
                | Action::StopTarget { .. }
                | Action::StopDrafter { .. } => continue,
            };
            self.open.insert(key, (worker, step, at));
        }
    }

    fn close(&mut self, work: Work, number: u32, to: Time, core: &Core) {
        let Some((worker, step, from)) = self.open.remove(&(work, number)) else {
            return;
        };
        let microbatch = (work != Work::Apply).then(|| {
            let id = MicrobatchId(number);
            (id, core.plan().microbatch(id).bucket)
        });
        self.bars.push(Interval {
            worker,
            work,
            microbatch,
            step,
            from,
            to,
        });
    }
}
