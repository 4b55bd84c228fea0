//! One queue a drafter; microbatch i belongs to drafter i mod M, whoever of its queue is free or not.

use super::Policy;
use super::dispatch::{Dispatch, View};
use crate::id::{DrafterId, MicrobatchId};
use crate::plan::Plan;

/// Dealt out at the source.
#[derive(Debug)]
pub(super) struct PerDrafter;

impl Dispatch for PerDrafter {
    fn lanes(&self, _plan: &Plan, policy: &Policy) -> usize {
        usize::from(policy.drafters)
    }

    fn lane(&self, microbatch: MicrobatchId, view: &View<'_>) -> usize {
        self.consignee(microbatch, view)
            .expect("each microbatch has a drafter")
            .index()
    }

    fn consignee(&self, microbatch: MicrobatchId, view: &View<'_>) -> Option<DrafterId> {
        let planned = microbatch.index() % usize::from(view.policy.drafters);
        Some(view.keeper(microbatch, DrafterId::from_index(planned)))
    }

    fn pick(&self, drafter: DrafterId, view: &View<'_>) -> Option<MicrobatchId> {
        view.head(drafter.index())
            .filter(|&head| view.may_take(drafter, head))
    }
}
