//! Work that must be done again: failed attempts, lost hidden states, and slots taken back for earlier work of a plan.

use super::{Action, Actions, Core, Status};
use crate::id::{DrafterId, MicrobatchId};
use crate::policy::Queue;

impl Core {
    /// An attempt failed: the microbatch is tried again, or given up and listed.
    pub(super) fn fail(&mut self, id: MicrobatchId) {
        let life = &mut self.state.lives[id.index()];
        life.attempts += 1;
        if life.attempts <= self.policy.retry_max {
            self.begin_again(id);
            return;
        }
        self.forget_untaken(id);
        self.vacate(id);
        self.state.lives[id.index()].status = Status::Failed;
        self.state.open -= 1;
        let is_of_this_step =
            self.plan.is_composed() && self.plan.step_of[id.index()] == self.state.step;
        self.state.step_taken += u32::from(is_of_this_step);
    }

    /// Hidden states that no drafter has are lost, and will be made again in plan order.
    pub(super) fn begin_again(&mut self, id: MicrobatchId) {
        for lane in &mut self.state.lanes {
            lane.retain(|&waiting| waiting != id);
        }
        self.vacate(id);
        self.state.lives[id.index()].status = Status::Pending;
        self.state.again.insert(id);
        self.deal_out_untaken();
        self.reset_cursors();
    }

    /// What a microbatch that was begun occupies is given back.
    pub(super) fn vacate(&mut self, id: MicrobatchId) {
        self.release(id);
        self.destroy(id);
        if self.status(id) != Status::Pending {
            self.state.samples_in_flight -= self.plan.microbatch(id).sample_count();
        }
    }

    /// What was taken counts as untaken again.
    pub(super) fn untake(&mut self, drafter: DrafterId, id: MicrobatchId) {
        self.count_untaken(id, |count| *count += 1);
        let is_ahead = self.plan.is_composed() && self.plan.step_of[id.index()] > self.state.step;
        if !is_ahead {
            self.state.step_taken = self.state.step_taken.saturating_sub(1);
        }
        let d = &mut self.state.drafters[drafter.index()];
        d.taken = d.taken.saturating_sub(1);
        self.recount_window_buckets(drafter);
    }

    pub(super) fn forget_untaken(&mut self, id: MicrobatchId) {
        self.count_untaken(id, |count| *count -= 1);
    }

    fn count_untaken(&mut self, id: MicrobatchId, change: impl Fn(&mut u32)) {
        change(&mut self.state.untaken);
        change(&mut self.state.untaken_of_bucket[self.plan.microbatch(id).bucket.index()]);
        if self.policy.queue == Queue::PerDrafter
            && let Some(drafter) = self.dispatch.consignee(id, &self.view())
        {
            change(&mut self.state.untaken_of_drafter[drafter.index()]);
        }
    }

    pub(super) fn recount_window_buckets(&mut self, drafter: DrafterId) {
        let d = &self.state.drafters[drafter.index()];
        let taken = d
            .trained
            .iter()
            .chain(&d.ready)
            .chain(&d.training)
            .chain(&d.fetching);
        let buckets = taken.map(|&id| self.plan.microbatch(id).bucket).collect();
        self.state.drafters[drafter.index()].window_buckets = buckets;
    }

    pub(super) fn reset_cursors(&mut self) {
        let step = self.plan.steps.get(self.state.step.index());
        let first = step.map_or(0, |step| step.microbatches.start);
        for d in &mut self.state.drafters {
            d.cursor = first;
        }
    }

    /// Frees a slot that later work of the plan holds, the latest first: the later would wait for the earlier's step, and the earlier
    /// for a slot. Slots are granted in plan order, so this happens only when earlier work must be done again.
    pub(super) fn make_way(&mut self, id: MicrobatchId, out: &mut Actions) -> bool {
        if self.policy.queue != Queue::Composed {
            return false;
        }
        let waiting = self.state.lanes[0].iter();
        let in_hand = self.state.drafters.iter().flat_map(|d| &d.ready);
        let later = waiting
            .chain(in_hand)
            .copied()
            .filter(|&other| other > id && self.state.lives[other.index()].has_slot);
        let Some(last) = later.max() else {
            return false;
        };
        for d in 0..self.state.drafters.len() {
            let ready = &mut self.state.drafters[d].ready;
            if let Some(at) = ready.iter().position(|&held| held == last) {
                ready.remove(at);
                self.untake(DrafterId::from_index(d), last);
            }
        }
        out.push(Action::Discard { microbatch: last });
        self.begin_again(last);
        true
    }
}
