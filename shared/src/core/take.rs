//! Drafters take hidden states.

use super::{Action, Actions, Core, Status};
use crate::id::{DrafterId, MicrobatchId};
use crate::policy::{Placement, Release, Transport};

impl Core {
    /// Lets drafters with room take what the policy prefers, longest idle first.
    pub(super) fn take(&mut self, out: &mut Actions) -> bool {
        self.refresh_idle();
        let mut changed = false;
        let mut i = 0;
        while let Some(&drafter) = self.state.idle_drafters.get(i) {
            let picked = self.dispatch.pick(drafter, &self.view());
            let Some(id) = picked else {
                i += 1;
                continue;
            };
            self.hand_over(drafter, id, out);
            changed = true;
            if !self.has_room(drafter) {
                self.state.idle_drafters.remove(i);
            }
        }
        changed
    }

    /// Keeps the list of drafters with room, in the order in which they got it.
    fn refresh_idle(&mut self) {
        for d in 0..self.state.drafters.len() {
            let drafter = DrafterId::from_index(d);
            let idle = &self.state.idle_drafters;
            let listed = !idle.is_empty() && idle.contains(&drafter);
            match (self.has_room(drafter), listed) {
                (true, false) => self.state.idle_drafters.push_back(drafter),
                (false, true) => self.state.idle_drafters.retain(|&i| i != drafter),
                (true, true) | (false, false) => {}
            }
        }
    }

    fn hand_over(&mut self, drafter: DrafterId, id: MicrobatchId, out: &mut Actions) {
        assert_eq!(
            self.status(id),
            Status::Queued,
            "a policy picks among what waits"
        );
        assert!(
            self.view().may_take(drafter, id),
            "a policy picks what is legal"
        );
        let memo = self.dispatch.taken(id, &self.view());
        self.state.memo = memo;
        self.leave_lane(id);
        self.forget_untaken(id);
        let is_ahead = self.plan.is_composed() && self.plan.step_of[id.index()] > self.state.step;
        self.state.step_taken += u32::from(!is_ahead);
        let d = &mut self.state.drafters[drafter.index()];
        d.taken += 1;
        d.window_buckets.insert(self.plan.microbatch(id).bucket);
        d.cursor = d.cursor.max(id.0 + 1);
        if self.policy.release == Release::Taken {
            self.release(id);
        }
        self.fetch(drafter, id, out);
    }

    fn leave_lane(&mut self, id: MicrobatchId) {
        let mut lanes = self.state.lanes.iter_mut();
        let found = lanes.find_map(|lane| {
            let at = lane.iter().position(|&waiting| waiting == id)?;
            lane.remove(at)
        });
        assert_eq!(found, Some(id), "what waits stands in a lane");
    }

    fn fetch(&mut self, drafter: DrafterId, id: MicrobatchId, out: &mut Actions) {
        let is_here = self.policy.transport == Transport::Local
            || self.policy.placement == Placement::Drafter;
        if is_here {
            self.in_hand(drafter, id);
            return;
        }
        let target = match self.policy.placement {
            Placement::Target => self.state.lives[id.index()].at_target,
            Placement::Host | Placement::Drafter => None,
        };
        self.put_on_drafter(id, drafter);
        self.state.lives[id.index()].status = Status::Fetching;
        self.state.drafters[drafter.index()].fetching = Some(id);
        self.state.in_flight += 1;
        out.push(Action::Fetch {
            drafter,
            microbatch: id,
            target,
        });
    }
}
