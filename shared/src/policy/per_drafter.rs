//! One queue a drafter; microbatch i belongs to drafter i mod M, whoever of its queue is free or not.

use super::Policy;
use super::dispatch::Dispatch;
use crate::core::{Core, Takeable};
use crate::id::{DrafterId, MicrobatchId};
use crate::plan::Plan;

/// Dealt out at the source.
#[derive(Debug)]
pub(super) struct PerDrafter;

impl Dispatch for PerDrafter {
    fn lanes(&self, _plan: &Plan, policy: &Policy) -> usize {
        usize::from(policy.drafters)
    }

    fn lane(&self, microbatch: MicrobatchId, core: &Core) -> usize {
        let consignee = core.consignee(microbatch);
        consignee.expect("each microbatch has a drafter").index()
    }

    fn consignee(&self, microbatch: MicrobatchId, core: &Core) -> Option<DrafterId> {
        let planned = microbatch.index() % usize::from(core.policy().drafters);
        Some(DrafterId::from_index(planned))
    }

    fn pick(&self, drafter: DrafterId, core: &Core) -> Option<Takeable> {
        let lane = drafter.index();
        core.takeable(drafter, core.head(lane)?, lane)
    }
}
