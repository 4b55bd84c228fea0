//! By planned optimizer step: targets work in plan order, drafters train what the plan gives them.
//!
//! With fixed assignment a drafter takes exactly its next microbatch of the plan, so gradients are summed in plan order whatever the
//! timing. With shared assignment whoever is free takes the earliest one that is there.

use super::dispatch::{Dispatch, View};
use super::{Assignment, Policy};
use crate::core::Status;
use crate::id::{DrafterId, MicrobatchId};
use crate::plan::Plan;

/// By plan.
#[derive(Debug)]
pub(super) struct Composed;

impl Dispatch for Composed {
    fn lanes(&self, _plan: &Plan, _policy: &Policy) -> usize {
        1
    }

    fn lane(&self, _microbatch: MicrobatchId, _view: &View<'_>) -> usize {
        0
    }

    fn consignee(&self, microbatch: MicrobatchId, view: &View<'_>) -> Option<DrafterId> {
        match view.policy.assignment {
            Assignment::Fixed => {
                Some(view.keeper(microbatch, view.plan.drafter_of[microbatch.index()]))
            }
            Assignment::Shared => None,
        }
    }

    fn pick(&self, drafter: DrafterId, view: &View<'_>) -> Option<MicrobatchId> {
        match view.policy.assignment {
            Assignment::Fixed => {
                let next = view.next_of_plan(drafter)?;
                let is_there = view.status(next) == Status::Queued;
                (is_there && view.may_take(drafter, next)).then_some(next)
            }
            Assignment::Shared => view.state.lanes[0]
                .iter()
                .copied()
                .min()
                .filter(|&first| view.may_take(drafter, first)),
        }
    }
}
