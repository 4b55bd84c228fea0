//! Work that must be done again: failed attempts, lost hidden states, and slots taken back for earlier work of a plan.

use super::{Action, Actions, Core, Status};
use crate::id::{DrafterId, MicrobatchId, TargetId};
use crate::policy::{Assignment, Enforce, Queue};

impl Core {
    /// An attempt failed: the microbatch is tried again, or given up and listed.
    #[cold]
    pub(super) fn fail(&mut self, id: MicrobatchId) {
        let life = &mut self.state.lives[id];
        life.attempts += 1;
        if life.attempts <= self.policy.retry_max {
            self.begin_again(id);
            return;
        }
        self.forget_untaken(id);
        self.vacate(id);
        self.state.lives[id].status = Status::Failed;
        self.state.open -= 1;
        let is_of_this_step =
            self.is_composed() && self.plan.step_of[id.index()] == self.state.step;
        self.state.step_taken += u32::from(is_of_this_step);
        self.state.step_failed += u32::from(is_of_this_step);
        self.advance_cursors();
        self.touched.everything();
    }

    /// Hidden states that no drafter has are lost, and will be made again in plan order.
    #[cold]
    pub(super) fn begin_again(&mut self, id: MicrobatchId) {
        if self.status(id) == Status::Queued {
            let lanes = &mut self.state.lanes;
            let lane = lanes.iter().position(|lane| lane.contains(&id));
            self.leave_lane(id, lane.expect("what waits stands in a lane"));
        }
        self.touched.everything();
        self.vacate(id);
        self.state.lives[id].status = Status::Pending;
        self.state.again.insert(id);
        self.deal_out_untaken();
        self.reset_cursors();
    }

    /// What a microbatch that was begun occupies is given back.
    pub(super) fn vacate(&mut self, id: MicrobatchId) {
        let life = &mut self.state.lives[id];
        let had_slot = self.state.hs.release(life);
        self.state.hs.destroy(life);
        if life.status != Status::Pending {
            self.state.samples_in_flight -= life.samples;
        }
        if had_slot {
            self.slots_have_changed();
        }
    }

    /// What was taken counts as untaken again.
    #[cold]
    pub(super) fn untake(&mut self, drafter: DrafterId, id: MicrobatchId) {
        self.count_untaken(id, |count| *count += 1);
        let is_ahead = self.is_composed() && !self.sight.has_come(id);
        if !is_ahead {
            self.state.step_taken = self.state.step_taken.saturating_sub(1);
        }
        self.touched.drafters.insert(drafter.index());
    }

    #[inline(always)]
    pub(super) fn forget_untaken(&mut self, id: MicrobatchId) {
        let left_of_bucket = self.count_untaken(id, |count| *count -= 1);
        let acts_on_taking = self.policy.mix_enforce == Enforce::Take;
        if self.state.untaken == 0 || acts_on_taking && left_of_bucket == 0 {
            self.touched.all_drafters();
        }
    }

    /// Returns how many of its bucket are untaken then.
    #[inline(always)]
    fn count_untaken(&mut self, id: MicrobatchId, change: impl Fn(&mut u32)) -> u32 {
        change(&mut self.state.untaken);
        let bucket = self.state.lives[id].bucket;
        let of_bucket = &mut self.state.untaken_of_bucket[bucket.index()];
        change(of_bucket);
        let of_bucket = *of_bucket;
        if self.policy.queue == Queue::PerDrafter
            && let Some(drafter) = self.consignee(id)
        {
            change(&mut self.state.untaken_of_drafter[drafter.index()]);
            self.drafter_mut(drafter);
        }
        of_bucket
    }

    pub(super) fn reset_cursors(&mut self) {
        let step = self.plan.steps.get(self.state.step.index());
        let first = step.map_or(0, |step| step.microbatches.start);
        for d in &mut self.state.drafters {
            d.cursor = first;
        }
        self.advance_cursors();
    }

    /// Brings all cursors up to what is in sight now.
    pub(super) fn advance_cursors(&mut self) {
        for drafter in 0..self.state.drafters.len() {
            let from = self.state.drafters[drafter].cursor;
            self.advance_cursor(DrafterId::from_index(drafter), from);
        }
    }

    /// Moves a drafter's cursor to its next microbatch of the plan, at `from` or after it.
    #[inline]
    pub(super) fn advance_cursor(&mut self, drafter: DrafterId, from: u32) {
        if self.is_composed() && self.policy.assignment == Assignment::Fixed {
            let next = self.cursor_after(from, drafter);
            self.state.drafters[drafter.index()].cursor = next;
        }
    }

    /// Makes way when all that is left waits for work that cannot begin, and nothing is in flight any more: gives up the latest hidden
    /// states that hold what it lacks, a slot or a target. Without faults this never happens.
    #[inline]
    pub(super) fn break_standstill(&mut self, out: &mut Actions) -> bool {
        self.state.in_flight == 0 && self.make_way(out)
    }

    #[cold]
    fn make_way(&mut self, out: &mut Actions) -> bool {
        let state = &self.state;
        let nobody_trains = state.drafters_present == 0;
        if state.wake.is_some() || state.paused || nobody_trains {
            return false;
        }
        let given_up = match self.policy.queue {
            Queue::Composed => self.latest_in_the_way(),
            Queue::PerDrafter => {
                let has_put_off = self.put_off_what_fits_not();
                if has_put_off {
                    self.touched.everything();
                }
                if !self.state.idle_targets.is_empty() {
                    return has_put_off;
                }
                self.latest_held()
                    .filter(|_| self.again_that_fits().is_some())
            }
            Queue::Fifo | Queue::Bucketed | Queue::Dealt => None,
        };
        let Some(id) = given_up else {
            return false;
        };
        self.leave_hands(id);
        out.push(Action::Discard { microbatch: id });
        self.begin_again(id);
        true
    }

    /// With a queue a drafter, input whose drafter has a full queue stands before input whose drafter starves: it is put off.
    fn put_off_what_fits_not(&mut self) -> bool {
        let mut has_put_off = false;
        while self.again_that_fits().is_none() {
            let targets = (0..self.state.targets.len()).map(TargetId::from_index);
            let fresh = targets
                .filter_map(|t| Some((self.fresh_input(t)?, t)))
                .min();
            let Some((id, target)) = fresh else {
                return false;
            };
            self.advance_input(target);
            self.state.again.insert(id);
            self.touched.targets.fill();
            has_put_off = true;
        }
        has_put_off
    }

    /// Under a plan, work waits for all earlier work.
    fn latest_in_the_way(&self) -> Option<MicrobatchId> {
        let state = &self.state;
        let again = state.again.first().copied();
        let held = || state.targets.iter().filter_map(|t| t.held());
        let needed = again.into_iter().chain(held()).min()?;
        let lacks_target = again == Some(needed) && state.idle_targets.is_empty();
        if lacks_target {
            return self.latest_held().filter(|&last| last > needed);
        }
        let waiting = state.lanes[0].iter().copied();
        let in_hand = state.drafters.iter().flat_map(|d| d.ready.iter().copied());
        let in_slots = waiting.chain(in_hand).chain(held());
        in_slots
            .filter(|id| *id > needed && state.lives[*id].has_slot())
            .max()
    }

    fn latest_held(&self) -> Option<MicrobatchId> {
        let targets = self.state.targets.iter();
        targets.filter_map(|t| t.held()).max()
    }

    /// Who has hidden states in hand, target or drafter, is rid of them.
    fn leave_hands(&mut self, id: MicrobatchId) {
        for t in 0..self.state.targets.len() {
            if self.state.targets[t].held() == Some(id) {
                let target = TargetId::from_index(t);
                self.state.holding.retain(|&holds| holds != target);
                self.make_idle(target);
            }
        }
        for d in 0..self.state.drafters.len() {
            let ready = &mut self.state.drafters[d].ready;
            if let Some(at) = ready.iter().position(|&held| held == id) {
                ready.remove(at);
                self.untake(DrafterId::from_index(d), id);
            }
        }
    }

    /// The first microbatch to be begun out of turn for which there is a slot now.
    pub(super) fn again_that_fits(&self) -> Option<MicrobatchId> {
        self.state.again.iter().copied().find(|&id| self.fits(id))
    }
}
