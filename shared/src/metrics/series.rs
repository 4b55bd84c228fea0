//! What figures need beyond sums: slots over time and the timeline of the first steps.

use crate::core::{Action, Core, Event, Group, HsUse};
use crate::id::{BucketId, Bytes, DrafterId, MicrobatchId, StepId};
use crate::time::Time;
use std::collections::BTreeMap;

/// Slots and bytes at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// When.
    pub at: Time,
    /// Slots in use. (slots)
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

impl Point {
    pub(super) fn of(at: Time, hs: &HsUse) -> Self {
        Self {
            at,
            slots: hs.slots.count,
            alive: hs.alive.count,
            alive_bytes: hs.alive.bytes,
            host_bytes: hs.at_host,
        }
    }
}

/// What a bar stands for; nothing is under way twice at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    Of(Work, MicrobatchId),
    Apply(StepId, Option<DrafterId>),
}

/// Collects the bars of the first steps.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    pub(super) bars: Vec<Interval>,
    open: BTreeMap<Piece, (String, Option<StepId>, Time)>,
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
                self.close(Piece::Of(Work::Forward, microbatch), at, core);
            }
            Event::StageEnded { microbatch, .. } => {
                self.close(Piece::Of(Work::Stage, microbatch), at, core);
            }
            Event::FetchEnded { microbatch, .. } => {
                self.close(Piece::Of(Work::Fetch, microbatch), at, core);
            }
            Event::TrainEnded { microbatch, .. } => {
                self.close(Piece::Of(Work::Train, microbatch), at, core);
            }
            Event::StepApplied { step, group } => {
                self.close(Piece::Apply(step, drafter_of(group)), at, core);
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
            let (piece, worker, step) = match *action {
                Action::Forward { target, microbatch } => (
                    Piece::Of(Work::Forward, microbatch),
                    target.to_string(),
                    None,
                ),
                Action::Stage {
                    target, microbatch, ..
                } => (Piece::Of(Work::Stage, microbatch), target.to_string(), None),
                Action::Fetch {
                    drafter,
                    microbatch,
                    ..
                } => (
                    Piece::Of(Work::Fetch, microbatch),
                    drafter.to_string(),
                    None,
                ),
                Action::Train {
                    drafter,
                    microbatch,
                    step,
                } => (
                    Piece::Of(Work::Train, microbatch),
                    drafter.to_string(),
                    Some(step),
                ),
                Action::Apply { step, group } => {
                    let drafter = drafter_of(group);
                    let worker = drafter.map_or_else(|| "all".into(), |d| d.to_string());
                    (Piece::Apply(step, drafter), worker, Some(step))
                }
                Action::Admit { .. }
                | Action::Discard { .. }
                | Action::Wake { .. }
                | Action::StopTarget { .. }
                | Action::StopDrafter { .. } => continue,
            };
            self.open.insert(piece, (worker, step, at));
        }
    }

    fn close(&mut self, piece: Piece, to: Time, core: &Core) {
        let Some((worker, step, from)) = self.open.remove(&piece) else {
            return;
        };
        let (work, microbatch) = match piece {
            Piece::Of(work, id) => (work, Some((id, core.plan().microbatch(id).bucket))),
            Piece::Apply(..) => (Work::Apply, None),
        };
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

/// The drafter of a group of one.
fn drafter_of(group: Group) -> Option<DrafterId> {
    match group {
        Group::All => None,
        Group::One(drafter) => Some(drafter),
    }
}
