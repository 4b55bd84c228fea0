//! What each worker spends its time on, so that its shares of the run add up to the whole exactly.

use super::{Core, Presence, TargetTask};
use crate::id::{DrafterId, TargetId};
use crate::policy::Barrier;
use serde::{Deserialize, Serialize};

/// What a worker does at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    /// Computing: a forward, a training, an optimizer step.
    Busy,
    /// Waiting for a copy of its own, with nothing else to do.
    Copying,
    /// A target: waiting for a slot or held back by a gate.
    Blocked,
    /// Without work: a drafter waiting for hidden states, a target whose input has ended.
    Starved,
    /// A drafter: done with its share of the optimizer step, waiting for the others.
    Barrier,
    /// Not there: lost, or told to stop.
    Absent,
}

impl Activity {
    /// All of them, in the order of [`Activity::index`].
    pub const ALL: [Self; 6] = [
        Self::Busy,
        Self::Copying,
        Self::Blocked,
        Self::Starved,
        Self::Barrier,
        Self::Absent,
    ];

    /// Its place in a table.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name in tables and figures.
    pub const fn name(self) -> &'static str {
        ["busy", "copying", "blocked", "starved", "barrier", "absent"][self as usize]
    }
}

impl Core {
    /// What a target does now.
    #[inline]
    pub fn target_activity(&self, target: TargetId) -> Activity {
        let t = &self.state().targets[target.index()];
        if t.presence != Presence::Present {
            return Activity::Absent;
        }
        match t.task {
            TargetTask::Forward(_) => Activity::Busy,
            TargetTask::Copy(_) => Activity::Copying,
            TargetTask::Hold(_) => Activity::Blocked,
            TargetTask::Idle => self.why_idle(target),
        }
    }

    /// What keeps a target without a task from its next one. Seldom asked: apart, so that what it reads is not fetched at every look.
    #[inline(never)]
    fn why_idle(&self, target: TargetId) -> Activity {
        let copies_out = self.state().targets[target.index()].copies_out;
        if self.next_input(target).is_none() {
            Activity::Starved
        } else if copies_out > self.policy().copies_beside {
            Activity::Copying
        } else {
            Activity::Blocked
        }
    }

    /// What a drafter does now.
    #[inline]
    pub fn drafter_activity(&self, drafter: DrafterId) -> Activity {
        let d = &self.state().drafters[drafter.index()];
        if !d.is_present() {
            Activity::Absent
        } else if d.training.is_some() || d.applying {
            Activity::Busy
        } else if self.waits_at_barrier(drafter) {
            Activity::Barrier
        } else if d.fetching.is_some() {
            Activity::Copying
        } else {
            Activity::Starved
        }
    }

    /// Whether a drafter has done its share of a step that the others have still to finish. Apart for the same reason.
    #[inline(never)]
    fn waits_at_barrier(&self, drafter: DrafterId) -> bool {
        self.policy().barrier == Barrier::All && self.step_is_begun() && self.share_is_done(drafter)
    }
}
