//! How far a composed plan is in sight: the step under way and the next. The plan lists the microbatches of a step in a row, and one step
//! after the other, so that two numbers say which step a microbatch is of.

use crate::id::{MicrobatchId, StepId};
use crate::plan::Plan;

/// The planned step under way and the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    /// Microbatches of the step under way.
    pub(super) size: u32,
    /// The first microbatch after the step under way.
    step_end: u32,
    /// The first microbatch after the next step.
    pub(super) end: u32,
}

impl Sight {
    pub(super) fn of(plan: &Plan, step: StepId) -> Self {
        let all = plan.steps.last().map_or(0, |last| last.microbatches.end);
        let planned = |step: usize| plan.steps.get(step).map(|step| &step.microbatches);
        Self {
            size: planned(step.index()).map_or(0, |step| step.len() as u32),
            step_end: planned(step.index()).map_or(all, |step| step.end),
            end: planned(step.index() + 1).map_or(all, |next| next.end),
        }
    }

    /// Whether a microbatch is of the step under way, or of one before.
    #[inline]
    pub(super) fn has_come(self, id: MicrobatchId) -> bool {
        id.0 < self.step_end
    }

    /// Whether it is of the next step, or of one before.
    #[inline]
    pub(super) fn reaches(self, id: MicrobatchId) -> bool {
        id.0 < self.end
    }
}
