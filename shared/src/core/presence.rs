//! Workers that are lost and workers that join.
//!
//! A lost worker leaves at once: it is offered nothing more, what lay in its memory and the gradients it had accumulated are gone, and
//! their microbatches are done again. What it had under way stays in flight until the driver reports its end.

use super::line::Line;
use super::{Core, Life, Presence, Slot, Status, TargetTask};
use crate::id::{DrafterId, MicrobatchId, TargetId};
use crate::policy::{Dispatch, Input, Queue};

impl Core {
    pub(super) fn target_joined(&mut self, target: TargetId) {
        let t = &mut self.state.targets[target.index()];
        assert_eq!(t.presence, Presence::Lost, "who joins was not there");
        assert!(
            t.task == TargetTask::Idle && t.copies_out == 0,
            "who joins has no open work: its ends were reported after the loss"
        );
        t.presence = Presence::Present;
        self.make_idle(target);
        self.touched.everything();
    }

    pub(super) fn target_lost(&mut self, target: TargetId) {
        let t = &mut self.state.targets[target.index()];
        assert_eq!(t.presence, Presence::Present, "who is lost was there");
        t.presence = Presence::Lost;
        if let TargetTask::Hold(_) = t.task {
            t.task = TargetTask::Idle;
        }
        self.state.idle_targets.retain(|&t| t != target);
        self.state.holding.retain(|&t| t != target);
        let lies_there = |life: &Life| life.at_target == Some(target);
        for id in self.state.lives.all_where(lies_there) {
            match self.status(id) {
                Status::Held | Status::Queued => self.begin_again(id),
                // A drafter has them in hand; only the copy that was kept for it is gone.
                Status::Ready | Status::Training => {
                    self.state.hs.leave_target(&mut self.state.lives[id]);
                }
                // Open work, whose end is still to be reported.
                _ => {}
            }
        }
        self.leave_input_of(target);
        self.touched.everything();
    }

    /// Under fixed round robin, what a lost target had still to begin is shared among the others.
    fn leave_input_of(&mut self, target: TargetId) {
        if self.policy.input == Input::Shared {
            return;
        }
        while let Some(next) = self.fresh_input(target) {
            self.state.again.insert(next);
            self.advance_input(target);
        }
    }

    pub(super) fn drafter_joined(&mut self, drafter: DrafterId) {
        let d = &mut self.state.drafters[drafter.index()];
        assert_eq!(d.presence, Presence::Lost, "who joins was not there");
        assert!(
            d.training.is_none() && d.fetching.is_none() && !d.applying,
            "who joins has no open work: its ends were reported after the loss"
        );
        d.presence = Presence::Present;
        self.state.drafters_present += 1;
        self.deal_out_again();
        self.touched.everything();
    }

    pub(super) fn drafter_lost(&mut self, drafter: DrafterId) {
        let d = &mut self.state.drafters[drafter.index()];
        assert_eq!(d.presence, Presence::Present, "who is lost was there");
        d.presence = Presence::Lost;
        self.state.drafters_present -= 1;
        self.touched.everything();
        let held = std::mem::take(&mut d.ready);
        // Gradients that are being summed are part of the step that is being applied.
        let trained = if d.applying {
            Vec::new()
        } else {
            std::mem::take(&mut d.trained)
        };
        self.state.drafters[drafter.index()].listed = false;
        self.state.idle_drafters.retain(|&i| i != drafter);
        self.state.step_trained -= trained.len() as u32;
        for id in trained.into_iter().chain(held.iter().copied()) {
            self.untake(drafter, id);
            self.begin_again(id);
        }
        let waits_there =
            |life: &Life| life.status == Status::Queued && life.at_drafter == Some(drafter);
        for id in self.state.lives.all_where(waits_there) {
            self.begin_again(id);
        }
        self.deal_out_again();
    }

    /// After drafters came or went, what waits is dealt to lanes anew, in order of arrival.
    fn deal_out_again(&mut self) {
        let drafters = &self.state.drafters;
        let is_lost = |d: DrafterId| drafters[d.index()].presence == Presence::Lost;
        let loses_its_drafter = |life: &Life| matches!(life.slot, Slot::Of(d) if is_lost(d));
        for id in self.state.lives.all_where(loses_its_drafter) {
            self.state.hs.charge_to_nobody(&mut self.state.lives[id]);
        }
        if matches!(self.policy.queue, Queue::PerDrafter | Queue::Dealt) {
            let mut waiting: Vec<_> = self.state.lanes.iter().flatten().copied().collect();
            self.state.lanes.iter_mut().for_each(Line::clear);
            waiting.sort_unstable_by_key(|id| self.state.lives[*id].ticket);
            for id in waiting {
                let lane = self.policy.queue.lane(id, self);
                self.state.lanes[lane].push(id);
            }
        }
        self.deal_out_untaken();
        self.reset_cursors();
    }

    /// Counts anew which drafter will take what, where each has its own queue.
    pub(super) fn deal_out_untaken(&mut self) {
        if self.policy.queue != Queue::PerDrafter {
            return;
        }
        self.state.untaken_of_drafter.fill(0);
        for id in (0..self.state.lives.len()).map(MicrobatchId::from_index) {
            if self.status(id).is_untaken()
                && let Some(drafter) = self.consignee(id)
            {
                self.state.untaken_of_drafter[drafter.index()] += 1;
            }
        }
    }
}
