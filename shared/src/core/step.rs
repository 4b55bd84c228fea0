//! Drafters train, and optimizer steps are applied.

use super::touched::Stage;
use super::{Action, Actions, Core, Group, Phase, Status};
use crate::id::{DrafterId, MicrobatchId, StepId};
use crate::policy::{Assignment, Barrier};

impl Core {
    /// Lets idle drafters train on what they hold for the step under way.
    #[inline]
    pub(super) fn train(&mut self, out: &mut Actions) {
        self.touched.run(Stage::Train);
        self.each_touched_drafter(|core, drafter| core.trains(drafter, out));
    }

    /// Lets a drafter train on what it holds ready, if it may.
    #[inline(never)]
    fn trains(&mut self, drafter: DrafterId, out: &mut Actions) {
        let Some(id) = self.next_training(drafter) else {
            return;
        };
        if !self.step_is_begun() {
            // Who has nothing to do in the step waits from now on at its barrier.
            self.touched.all_drafters();
        }
        let d = &mut self.state.drafters[drafter.index()];
        let step = match self.policy.barrier {
            Barrier::All => self.state.step,
            Barrier::None => StepId(d.own_steps),
        };
        d.ready.pop();
        d.training = Some(id);
        self.state.drafters_training += 1;
        self.state.lives[id].status = Status::Training;
        self.state.in_flight += 1;
        if self.policy.prefetch > 0 {
            self.touched.due(&[Stage::Take]);
        }
        out.push(Action::Train {
            drafter,
            microbatch: id,
            step,
        });
    }

    #[inline]
    fn next_training(&self, drafter: DrafterId) -> Option<MicrobatchId> {
        let d = &self.state.drafters[drafter.index()];
        let next = d.ready.first()?;
        let copies_in = d.fetching.is_some() && !self.policy.overlap;
        if !d.is_present() || d.is_working() || copies_in {
            return None;
        }
        let may_begin = match self.policy.barrier {
            // Who joins while the others apply a step waits for its weights.
            Barrier::All => self.state.drafters_applying == 0,
            Barrier::None => self.state.phase == Phase::Running || d.has_begun_window(),
        };
        let is_of_this_step = if self.is_composed() {
            self.is_of_this_step(next)
        } else {
            match self.policy.assignment {
                Assignment::Fixed => (d.trained.len() as u32) < self.grad_accum,
                Assignment::Shared => {
                    self.state.step_trained + self.state.drafters_training < self.window()
                }
            }
        };
        (may_begin && is_of_this_step).then_some(next)
    }

    /// Applies the optimizer step whose microbatches are all trained.
    #[inline]
    pub(super) fn apply(&mut self, out: &mut Actions) {
        self.touched.run(Stage::Apply);
        match self.policy.barrier {
            Barrier::All => self.apply_to_all(out),
            Barrier::None => {
                self.each_touched_drafter(|core, drafter| core.apply_to_one(drafter, out));
            }
        }
    }

    #[inline(never)]
    fn apply_to_all(&mut self, out: &mut Actions) {
        if !self.step_is_complete() {
            return;
        }
        let has_gradient = self.state.step_trained > 0;
        if !has_gradient {
            // All of a planned step failed: nothing to apply, the next one is due.
            if self.state.step.index() < self.plan.steps.len() {
                self.begin_next_step();
            }
            return;
        }
        for d in self.state.drafters.iter_mut().filter(|d| d.is_present()) {
            d.applying = true;
            self.state.drafters_applying += 1;
        }
        self.touched.all_drafters();
        self.state.in_flight += 1;
        out.push(Action::Apply {
            step: self.state.step,
            group: Group::All,
        });
    }

    /// Applies a drafter's own step if it has done its share.
    #[inline(never)]
    fn apply_to_one(&mut self, drafter: DrafterId, out: &mut Actions) {
        let d = &self.state.drafters[drafter.index()];
        let is_idle = d.is_present() && !d.is_working();
        if !is_idle || d.trained.is_empty() || !self.share_is_done(drafter) {
            return;
        }
        let d = &mut self.state.drafters[drafter.index()];
        d.applying = true;
        let step = StepId(d.own_steps);
        self.state.drafters_applying += 1;
        self.state.in_flight += 1;
        out.push(Action::Apply {
            step,
            group: Group::One(drafter),
        });
    }

    /// Whether anybody has begun to train for the step of all drafters that is not applied yet.
    pub(super) fn step_is_begun(&self) -> bool {
        let state = &self.state;
        state.drafters_training > 0 || state.drafters_applying > 0 || state.step_trained > 0
    }
}
