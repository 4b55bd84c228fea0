//! By planned optimizer step: targets work in plan order, drafters train what the plan gives them.
//!
//! With fixed assignment a drafter takes exactly its next microbatch of the plan, so gradients are summed in plan order whatever the
//! timing. With shared assignment whoever is free takes the earliest one that is there.

use super::dispatch::Dispatch;
use super::{Assignment, Policy};
use crate::core::{Core, Takeable};
use crate::id::{DrafterId, MicrobatchId};
use crate::plan::Plan;

/// By plan.
#[derive(Debug)]
pub(super) struct Composed;

impl Dispatch for Composed {
    fn lanes(&self, _plan: &Plan, _policy: &Policy) -> usize {
        1
    }

    fn lane(&self, _microbatch: MicrobatchId, _core: &Core) -> usize {
        0
    }

    fn consignee(&self, microbatch: MicrobatchId, core: &Core) -> Option<DrafterId> {
        match core.policy().assignment {
            Assignment::Fixed => Some(core.plan().drafter_of[microbatch.index()]),
            Assignment::Shared => None,
        }
    }

    #[inline]
    fn pick(&self, drafter: DrafterId, core: &Core) -> Option<Takeable> {
        let next = match core.policy().assignment {
            Assignment::Fixed => core.next_of_plan(drafter),
            Assignment::Shared => core.state().lanes[0].iter().copied().min(),
        };
        core.takeable(drafter, next?, 0)
    }
}
