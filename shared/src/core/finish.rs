//! The end of a run: every worker is told once.

use super::{Action, Actions, Core, Phase, Presence, Status, TargetTask};
use crate::id::{DrafterId, MicrobatchId, TargetId};

impl Core {
    /// Tells everybody to stop once nothing is left to do, or nothing is in flight any more after a stop was asked for.
    #[inline]
    pub(super) fn finish(&mut self, out: &mut Actions) {
        if self.state.in_flight == 0 && self.is_done() {
            self.stop_all(out);
        }
    }

    #[cold]
    fn is_done(&self) -> bool {
        match self.state.phase {
            Phase::Draining => true,
            Phase::Running | Phase::Closing => self.state.open == 0,
            Phase::New | Phase::Finished => false,
        }
    }

    #[cold]
    fn stop_all(&mut self, out: &mut Actions) {
        self.touched.everything();
        if self.state.open > 0 {
            self.skip_the_rest(out);
        }
        self.state.phase = Phase::Finished;
        for i in 0..self.state.targets.len() {
            if self.state.targets[i].presence == Presence::Present {
                self.state.targets[i].presence = Presence::Stopped;
                out.push(Action::StopTarget {
                    target: TargetId::from_index(i),
                });
            }
        }
        for i in 0..self.state.drafters.len() {
            if self.state.drafters[i].is_present() {
                self.state.drafters[i].presence = Presence::Stopped;
                self.state.drafters_present -= 1;
                out.push(Action::StopDrafter {
                    drafter: DrafterId::from_index(i),
                });
            }
        }
        self.state.idle_targets.clear();
        self.state.idle_drafters.clear();
        for d in &mut self.state.drafters {
            d.listed = false;
        }
    }

    /// After a stop, hidden states that nobody will train on are freed and their microbatches listed as skipped.
    fn skip_the_rest(&mut self, out: &mut Actions) {
        let all = self.state.lives.len();
        self.keep(all as u32);
        for id in (0..all).map(MicrobatchId::from_index) {
            let status = self.status(id);
            if matches!(status, Status::Committed | Status::Failed) {
                continue;
            }
            assert_ne!(
                status,
                Status::Trained,
                "a stop finishes the step under way"
            );
            if status.is_alive() {
                out.push(Action::Discard { microbatch: id });
            }
            if status.is_untaken() {
                self.forget_untaken(id);
            }
            self.vacate(id);
            self.state.lives[id].status = Status::Skipped;
            self.state.open -= 1;
        }
        for lane in &mut self.state.lanes {
            lane.clear();
        }
        self.state.waiting = 0;
        for d in &mut self.state.drafters {
            d.ready.clear();
        }
        for t in &mut self.state.targets {
            t.task = TargetTask::Idle;
        }
        self.state.holding.clear();
        self.state.again.clear();
        self.state.next = all as u32;
    }
}
