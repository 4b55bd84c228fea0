//! What a discipline of dispatch asks for, beside plan, policy and state themselves.

use super::{Core, Life, Memo, Status};
use crate::draw::Stream;
use crate::id::{BucketId, DrafterId, MicrobatchId};
use crate::policy::{Dispatch, Queue};

impl Core {
    /// What the discipline asked to remember last.
    pub fn memo(&self) -> Memo {
        self.state.memo
    }

    /// A random word for choice `k` of the present decision.
    pub fn draw(&self, k: u32) -> u64 {
        self.seed.draw(
            Stream::Decision,
            (self.state.memo.decisions << 16) | u64::from(k),
        )
    }

    /// Whether optimizer steps are composed ahead of dispatch.
    #[inline]
    pub fn is_composed(&self) -> bool {
        self.policy.queue == Queue::Composed
    }

    /// Where a microbatch is on its way.
    #[inline]
    pub fn status(&self, microbatch: MicrobatchId) -> Status {
        self.state.lives.status(microbatch)
    }

    /// The bucket of a microbatch.
    #[inline]
    pub fn bucket(&self, microbatch: MicrobatchId) -> BucketId {
        match self.state.lives.get(microbatch) {
            Some(life) => life.bucket,
            None => self.plan.microbatch(microbatch).bucket,
        }
    }

    /// The head of a lane.
    #[inline]
    pub fn head(&self, lane: usize) -> Option<MicrobatchId> {
        self.state.lanes[lane].first()
    }

    /// Microbatches of one optimizer step over all drafters that are there.
    #[inline]
    pub fn window(&self) -> u32 {
        self.grad_accum * self.state.drafters_present
    }

    /// The drafter that will train on a microbatch, where the policy knows it: the one in whose memory or slot it is already, else the one
    /// that the queue means it for.
    #[inline]
    pub fn consignee(&self, id: MicrobatchId) -> Option<DrafterId> {
        if !self.knows_drafter {
            return None;
        }
        let keeper = self.state.lives.get(id).and_then(Life::keeper);
        keeper.or_else(|| self.meant_for(id))
    }

    #[inline(never)]
    fn meant_for(&self, id: MicrobatchId) -> Option<DrafterId> {
        let planned = self.policy.queue.consignee(id, self)?;
        Some(self.heir(planned))
    }
}
