//! Drafters take hidden states.

use super::touched::Stage;
use super::{Action, Actions, Core, Status, Takeable};
use crate::id::{DrafterId, MicrobatchId};
use crate::policy::{Assignment, Dispatch, Placement, Queue, Release, Transport};

impl Core {
    /// Lets drafters with room take what the policy prefers, longest idle first.
    #[inline(always)]
    pub(super) fn take(&mut self, out: &mut Actions) {
        self.touched.run(Stage::Take);
        self.each_touched_drafter(|core, drafter| core.list_if_idle(drafter));
        let mut i = 0;
        while let Some(drafter) = self.state.idle_drafters.get(i) {
            if self.state.waiting == 0 {
                return;
            }
            if !self.takes(i, drafter, out) {
                i += 1;
            } else if i > 0 {
                // Who declined what was there may want what is there now.
                self.touched.due(&[Stage::Take]);
            }
        }
    }

    /// Keeps the list of drafters with room, in the order in which they got it.
    #[inline(never)]
    fn list_if_idle(&mut self, drafter: DrafterId) {
        let has_room = self.has_room(drafter);
        let listed = &mut self.state.drafters[drafter.index()].listed;
        match (has_room, std::mem::replace(listed, has_room)) {
            (true, false) => self.state.idle_drafters.push(drafter),
            (false, true) => self.state.idle_drafters.retain(|&i| i != drafter),
            (true, true) | (false, false) => {}
        }
    }

    /// Lets the drafter at `at` in the list of those with room take one, if there is one for it.
    #[inline(never)]
    fn takes(&mut self, at: usize, drafter: DrafterId, out: &mut Actions) -> bool {
        let Some(picked) = self.picked(drafter) else {
            return false;
        };
        assert!(
            picked.drafter == drafter,
            "a policy picks for who asked for it"
        );
        self.hand_over(picked, out);
        if !self.has_room(drafter) {
            self.state.idle_drafters.remove(at);
            self.state.drafters[drafter.index()].listed = false;
        }
        true
    }

    /// What a drafter takes next. Where everybody has a queue or a share of its own, only who was touched can have got something.
    #[inline]
    fn picked(&self, drafter: DrafterId) -> Option<Takeable> {
        let has_own = self.knows_drafter || self.policy.queue == Queue::Dealt;
        if has_own && !self.touched.drafters.contains(drafter.index()) {
            return None;
        }
        if !self.may_take(drafter) {
            return None;
        }
        self.policy.queue.pick(drafter, self)
    }

    #[inline]
    fn hand_over(&mut self, picked: Takeable, out: &mut Actions) {
        let Takeable { drafter, id, .. } = picked;
        self.state.memo = self.policy.queue.taken(picked, self);
        self.leave_lane(id, picked.lane());
        self.forget_untaken(id);
        let is_ahead = self.is_composed() && !self.sight.has_come(id);
        self.state.step_taken += u32::from(!is_ahead);
        if self.policy.assignment == Assignment::Shared && self.step_is_taken() {
            self.touched.all_drafters();
        }
        self.pool_has_changed();
        if self.policy.release == Release::Taken && self.state.hs.release(&mut self.state.lives[id])
        {
            self.slots_have_changed();
        }
        self.fetch(drafter, id, out);
        self.advance_cursor(drafter, id.0 + 1);
    }

    /// Whether the step under way has got all it takes.
    #[inline]
    fn step_is_taken(&self) -> bool {
        let size = if self.is_composed() {
            self.sight.size
        } else {
            self.window()
        };
        self.state.step_taken >= size
    }

    #[inline(always)]
    pub(super) fn leave_lane(&mut self, id: MicrobatchId, lane: usize) {
        let lane = &mut self.state.lanes[lane];
        if lane.first() == Some(id) {
            lane.pop();
        } else {
            let at = lane.iter().position(|&waiting| waiting == id);
            lane.remove(at.expect("what waits stands in its lane"));
        }
        self.state.waiting -= 1;
    }

    #[inline]
    fn fetch(&mut self, drafter: DrafterId, id: MicrobatchId, out: &mut Actions) {
        let is_here = self.policy.transport == Transport::Local
            || self.policy.placement == Placement::Drafter;
        if is_here {
            self.in_hand(drafter, id);
            return;
        }
        let life = &mut self.state.lives[id];
        let target = match self.policy.placement {
            Placement::Target => life.at_target,
            Placement::Host | Placement::Drafter => None,
        };
        self.state.hs.put_on_drafter(life, drafter);
        life.status = Status::Fetching;
        self.drafter_mut(drafter).fetching = Some(id);
        self.state.in_flight += 1;
        out.push(Action::Fetch {
            drafter,
            microbatch: id,
            target,
        });
    }
}
