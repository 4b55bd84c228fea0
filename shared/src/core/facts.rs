//! Taking in facts: what each event changes, before anything follows from it.

use super::sight::Sight;
use super::touched::Stage;
use super::{Action, Actions, Core, Event, Group, Outcome, Phase, Presence, Status, TargetTask};
use crate::id::{DrafterId, MicrobatchId, StepId, TargetId};
use crate::policy::{Barrier, Dispatch, Placement, Release, Transport};

impl Core {
    #[inline]
    pub(super) fn take_in(&mut self, event: Event, out: &mut Actions) {
        match event {
            Event::Started => {
                assert_eq!(self.state.phase, Phase::New, "a run begins once");
                self.state.phase = Phase::Running;
                self.touched.everything();
            }
            Event::ForwardEnded {
                target,
                microbatch,
                outcome,
            } => self.forward_ended(target, microbatch, outcome, out),
            Event::StageEnded {
                microbatch,
                outcome,
            } => self.stage_ended(microbatch, outcome),
            Event::FetchEnded {
                drafter,
                microbatch,
                outcome,
            } => self.fetch_ended(drafter, microbatch, outcome),
            Event::TrainEnded {
                drafter,
                microbatch,
                outcome,
            } => self.train_ended(drafter, microbatch, outcome),
            Event::StepApplied { step, group } => self.step_applied(step, group),
            Event::WakeDue => {
                let due = self.state.wake.take().expect("a wake-up was asked for");
                assert!(
                    due <= self.state.now,
                    "a wake-up comes no sooner than asked for"
                );
                self.state.is_awake = true;
                self.touched.due(&[Stage::Deal]);
            }
            Event::TargetJoined(target) => self.target_joined(target),
            Event::TargetLost(target) => self.target_lost(target),
            Event::DrafterJoined(drafter) => self.drafter_joined(drafter),
            Event::DrafterLost(drafter) => self.drafter_lost(drafter),
            Event::StopAsked => {
                if self.state.phase == Phase::Running {
                    self.state.phase = Phase::Closing;
                    self.touched.everything();
                }
            }
        }
    }

    #[inline(never)]
    fn forward_ended(
        &mut self,
        target: TargetId,
        id: MicrobatchId,
        outcome: Outcome,
        out: &mut Actions,
    ) {
        let t = &self.state.targets[target.index()];
        assert!(
            t.task == TargetTask::Forward(id),
            "a forward ends once, after it began"
        );
        let is_lost = t.presence == Presence::Lost;
        self.state.in_flight -= 1;
        if outcome == Outcome::Failed || is_lost {
            self.make_idle(target);
            self.fail(id);
            return;
        }
        if self.lets_go(target, id, out) {
            if self.is_composed() && !self.state.holding.is_empty() {
                // Another may be the next in plan order now.
                self.touched.due(&[Stage::Admit]);
            }
        } else {
            self.state.lives[id].status = Status::Held;
            self.target_mut(target).task = TargetTask::Hold(id);
            self.state.holding.push(target);
        }
    }

    /// Hidden states leave their target's hands if they have a slot or may have one.
    #[inline(always)]
    pub(super) fn lets_go(
        &mut self,
        target: TargetId,
        id: MicrobatchId,
        out: &mut Actions,
    ) -> bool {
        let consignee = self.consignee(id);
        if !self.can_send_off(consignee) {
            return false;
        }
        if !self.state.lives[id].has_slot() {
            if !self.grants(id, consignee) {
                return false;
            }
            out.push(Action::Admit { microbatch: id });
        }
        self.send_off(target, id, consignee, out);
        true
    }

    /// Grants a slot, if it is this microbatch's turn and one more stays under every cap.
    #[inline(always)]
    pub(super) fn grants(&mut self, id: MicrobatchId, consignee: Option<DrafterId>) -> bool {
        if !self.is_next_for_slot(id) {
            return false;
        }
        let (life, hs) = (&mut self.state.lives[id], &mut self.state.hs);
        let with = hs.with(life, consignee, &self.caps);
        if let Some(with) = with {
            hs.grant(life, with, &mut self.most);
        }
        with.is_some()
    }

    /// Whether hidden states may leave their target now: not during an orderly stop, and not for a drafter that is not there.
    #[inline]
    fn can_send_off(&self, consignee: Option<DrafterId>) -> bool {
        let is_there = |drafter: DrafterId| self.state.drafters[drafter.index()].is_present();
        self.state.phase != Phase::Draining
            && (self.policy.placement != Placement::Drafter || consignee.is_some_and(is_there))
    }

    /// Hidden states that have a slot leave their target's hands: they travel to where they wait, or wait where they are.
    #[inline(always)]
    fn send_off(
        &mut self,
        target: TargetId,
        id: MicrobatchId,
        consignee: Option<DrafterId>,
        out: &mut Actions,
    ) {
        if self.policy.placement == Placement::Target || self.policy.transport == Transport::Local {
            self.make_idle(target);
            self.arrive(id);
            return;
        }
        let drafter = match self.policy.placement {
            Placement::Drafter => consignee,
            Placement::Host | Placement::Target => None,
        };
        let (life, hs) = (&mut self.state.lives[id], &mut self.state.hs);
        match drafter {
            Some(drafter) => hs.put_on_drafter(life, drafter),
            None => hs.put_on_host(life),
        }
        life.status = Status::Staging;
        self.state.in_flight += 1;
        if self.policy.overlap {
            self.target_mut(target).copies_out += 1;
            self.make_idle(target);
        } else {
            self.target_mut(target).task = TargetTask::Copy(id);
        }
        out.push(Action::Stage {
            target,
            microbatch: id,
            drafter,
        });
    }

    #[inline(never)]
    fn stage_ended(&mut self, id: MicrobatchId, outcome: Outcome) {
        let life = &self.state.lives[id];
        assert!(
            life.status == Status::Staging,
            "a copy ends once, after it began"
        );
        let target = life.at_target.expect("staging starts at a target");
        let is_lost = life
            .at_drafter
            .is_some_and(|d| !self.state.drafters[d.index()].is_present());
        self.state.in_flight -= 1;
        if self.state.targets[target.index()].task == TargetTask::Copy(id) {
            self.make_idle(target);
        } else {
            self.target_mut(target).copies_out -= 1;
            self.touched.due(&[Stage::Feed]);
        }
        if outcome == Outcome::Failed || is_lost {
            self.fail(id);
        } else {
            self.state.hs.leave_target(&mut self.state.lives[id]);
            self.arrive(id);
        }
    }

    /// Hidden states begin to wait for a drafter.
    #[inline(always)]
    fn arrive(&mut self, id: MicrobatchId) {
        let lane = self.policy.queue.lane(id, self);
        let life = &mut self.state.lives[id];
        life.status = Status::Queued;
        life.ticket = self.state.tickets;
        self.state.tickets = self.state.tickets.wrapping_add(1);
        self.state.lanes[lane].push(id);
        self.state.waiting += 1;
        self.pool_has_changed();
        if let Some(drafter) = self.consignee(id) {
            self.touched.drafters.insert(drafter.index());
        }
        if !self.state.idle_drafters.is_empty() {
            self.touched.due(&[Stage::Take]);
        }
    }

    #[inline(never)]
    fn fetch_ended(&mut self, drafter: DrafterId, id: MicrobatchId, outcome: Outcome) {
        let d = self.drafter_mut(drafter);
        assert!(
            d.fetching.take() == Some(id),
            "a fetch ends once, after it began"
        );
        let is_lost = !d.is_present();
        self.state.in_flight -= 1;
        if outcome == Outcome::Failed || is_lost {
            self.untake(drafter, id);
            self.fail(id);
        } else {
            self.in_hand(drafter, id);
            self.touched.due(&[Stage::Take]);
        }
    }

    /// Hidden states are in the drafter's own hands; the place they came from is given back unless the slot lasts until trained.
    #[inline(always)]
    pub(super) fn in_hand(&mut self, drafter: DrafterId, id: MicrobatchId) {
        let is_composed = self.is_composed();
        let d = self.drafter_mut(drafter);
        d.make_ready(id, is_composed);
        if !d.is_working() {
            self.touched.due(&[Stage::Train]);
        }
        let (life, hs) = (&mut self.state.lives[id], &mut self.state.hs);
        life.status = Status::Ready;
        let release = self.policy.release;
        let gives_back = release == Release::Fetched && hs.release(life);
        if release != Release::Trained && life.at_drafter.is_some() {
            hs.leave_target(life);
            hs.leave_host(life);
        }
        if gives_back {
            self.slots_have_changed();
        }
    }

    #[inline(never)]
    fn train_ended(&mut self, drafter: DrafterId, id: MicrobatchId, outcome: Outcome) {
        self.state.in_flight -= 1;
        self.state.drafters_training -= 1;
        let d = self.drafter_mut(drafter);
        assert!(
            d.training.take() == Some(id),
            "a training ends once, after it began"
        );
        if outcome == Outcome::Failed || !d.is_present() {
            self.untake(drafter, id);
            self.fail(id);
            return;
        }
        d.trained.push(id);
        self.state.step_trained += 1;
        let (life, hs) = (&mut self.state.lives[id], &mut self.state.hs);
        let gives_back = hs.release(life);
        hs.destroy(life);
        life.status = Status::Trained;
        if gives_back {
            self.slots_have_changed();
        }
        self.pool_has_changed();
        self.has_trained(drafter);
    }

    /// What may follow from the end of a training: without prefetch the drafter has room now, it may hold what comes next, and it may
    /// have been the last of its step.
    #[inline]
    fn has_trained(&mut self, drafter: DrafterId) {
        if self.policy.prefetch == 0 {
            self.touched.due(&[Stage::Take]);
        }
        if !self.state.drafters[drafter.index()].ready.is_empty() {
            self.touched.due(&[Stage::Train]);
        }
        let is_last = match self.policy.barrier {
            Barrier::All => self.state.drafters_training == 0,
            Barrier::None => self.share_is_done(drafter),
        };
        if is_last {
            self.touched.due(&[Stage::Apply]);
        }
    }

    #[inline(never)]
    fn step_applied(&mut self, step: StepId, group: Group) {
        let group_members = match group {
            Group::All => 0..self.state.drafters.len(),
            Group::One(drafter) => drafter.index()..drafter.index() + 1,
        };
        let mut samples = 0;
        let mut is_open = false;
        for drafter in group_members.map(DrafterId::from_index) {
            if std::mem::take(&mut self.drafter_mut(drafter).applying) {
                is_open = true;
                self.state.drafters_applying -= 1;
                samples += self.commit(drafter);
            }
        }
        assert!(is_open, "an optimizer step ends once, after it began");
        self.state.in_flight -= 1;
        self.pool_has_changed();
        self.touched.due(&[
            Stage::Admit,
            Stage::Feed,
            Stage::Take,
            Stage::Train,
            Stage::Apply,
        ]);
        if group == Group::All {
            assert_eq!(
                step, self.state.step,
                "optimizer steps are applied in order"
            );
            self.begin_next_step();
        }
        self.state.lagging.push(samples);
        let counted_out = self.state.lagging.pop().unwrap_or(0);
        self.state.samples_in_flight -= counted_out;
        if self.state.phase == Phase::Closing && self.policy.barrier == Barrier::All {
            self.state.phase = Phase::Draining;
            self.touched.everything();
        }
    }

    /// What a drafter trained on becomes part of the weights; returns its samples.
    fn commit(&mut self, drafter: DrafterId) -> u32 {
        let mut trained = std::mem::take(&mut self.state.drafters[drafter.index()].trained);
        let mut samples = 0;
        for id in trained.drain(..) {
            let life = &mut self.state.lives[id];
            life.status = Status::Committed;
            self.state.open -= 1;
            samples += life.samples;
        }
        let d = &mut self.state.drafters[drafter.index()];
        d.trained = trained;
        d.own_steps += u32::from(self.policy.barrier == Barrier::None);
        samples
    }

    /// Opens the next step of all drafters; what they hold ahead has been taken for it.
    pub(super) fn begin_next_step(&mut self) {
        if self.state.phase == Phase::Closing {
            self.touched.everything();
        }
        self.touched.all_drafters();
        self.state.step.0 += 1;
        self.sight = Sight::of(&self.plan, self.state.step);
        self.keep(self.sight.end);
        let state = &mut self.state;
        (state.step_taken, state.step_trained, state.step_failed) = (0, 0, 0);
        if let Some(step) = self.plan.steps.get(state.step.index()) {
            let (start, end) = (step.microbatches.start, step.microbatches.end);
            for id in (start..end).map(MicrobatchId) {
                let status = state.lives.status(id);
                state.step_taken += u32::from(!status.is_untaken());
                state.step_failed += u32::from(status == Status::Failed);
            }
        } else {
            state.step_taken = state.drafters.iter().map(|d| d.held() as u32).sum();
        }
        self.advance_cursors();
    }

    /// A target without a task; listed as idle if it is there.
    #[inline(always)]
    pub(super) fn make_idle(&mut self, target: TargetId) {
        let t = self.target_mut(target);
        t.task = TargetTask::Idle;
        if t.presence == Presence::Present {
            self.state.idle_targets.push(target);
            self.touched.due(&[Stage::Feed]);
        }
    }
}
