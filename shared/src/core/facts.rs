//! Taking in facts: what each event changes, before anything follows from it.

use super::{Action, Actions, Core, Event, Group, Outcome, Phase, Presence, Status, TargetTask};
use crate::id::{DrafterId, MicrobatchId, StepId, TargetId};
use crate::policy::{Barrier, Placement, Queue, Release, Transport};

impl Core {
    pub(super) fn take_in(&mut self, event: Event, out: &mut Actions) {
        match event {
            Event::Started => {
                assert_eq!(self.state.phase, Phase::New, "a run begins once");
                self.state.phase = Phase::Running;
            }
            Event::ForwardEnded {
                target,
                microbatch,
                outcome,
            } => {
                self.forward_ended(target, microbatch, outcome, out);
            }
            Event::StageEnded {
                microbatch,
                outcome,
            } => self.stage_ended(microbatch, outcome),
            Event::FetchEnded {
                drafter,
                microbatch,
                outcome,
            } => {
                self.fetch_ended(drafter, microbatch, outcome);
            }
            Event::TrainEnded {
                drafter,
                microbatch,
                outcome,
            } => {
                self.train_ended(drafter, microbatch, outcome);
            }
            Event::StepApplied { step, group } => self.step_applied(step, group),
            Event::WakeDue => {
                let due = self.state.wake.take().expect("a wake-up was asked for");
                assert!(
                    due <= self.state.now,
                    "a wake-up comes no sooner than asked for"
                );
            }
            Event::TargetJoined(target) => self.target_joined(target),
            Event::TargetLost(target) => self.target_lost(target),
            Event::DrafterJoined(drafter) => self.drafter_joined(drafter),
            Event::DrafterLost(drafter) => self.drafter_lost(drafter),
            Event::StopAsked => {
                if self.state.phase == Phase::Running {
                    self.state.phase = Phase::Closing;
                }
            }
        }
    }

    fn forward_ended(
        &mut self,
        target: TargetId,
        id: MicrobatchId,
        outcome: Outcome,
        out: &mut Actions,
    ) {
        let task = self.state.targets[target.index()].task;
        assert_eq!(
            task,
            TargetTask::Forward(id),
            "a forward ends once, after it began"
        );
        self.state.in_flight -= 1;
        match outcome {
            Outcome::Failed => {
                self.to_idle(target);
                self.fail(id);
            }
            Outcome::Done if self.state.lives[id.index()].has_slot => {
                self.send_off(target, id, out);
            }
            Outcome::Done => {
                self.state.lives[id.index()].status = Status::Held;
                self.state.targets[target.index()].task = TargetTask::Hold(id);
                self.state.holding.push_back(target);
            }
        }
    }

    /// Hidden states that have a slot leave their target's hands: they travel to where they wait, or wait where they are.
    pub(super) fn send_off(&mut self, target: TargetId, id: MicrobatchId, out: &mut Actions) {
        if self.policy.placement == Placement::Target || self.policy.transport == Transport::Local {
            self.to_idle(target);
            self.arrive(id);
            return;
        }
        let drafter = match self.policy.placement {
            Placement::Drafter => self.dispatch.consignee(id, &self.view()),
            Placement::Host | Placement::Target => None,
        };
        match drafter {
            Some(drafter) => self.put_on_drafter(id, drafter),
            None => self.put_on_host(id),
        }
        self.state.lives[id.index()].status = Status::Staging;
        self.state.in_flight += 1;
        if self.policy.overlap {
            self.state.targets[target.index()].copies_out += 1;
            self.to_idle(target);
        } else {
            self.state.targets[target.index()].task = TargetTask::Copy(id);
        }
        out.push(Action::Stage {
            target,
            microbatch: id,
            drafter,
        });
    }

    fn stage_ended(&mut self, id: MicrobatchId, outcome: Outcome) {
        assert_eq!(
            self.status(id),
            Status::Staging,
            "a copy ends once, after it began"
        );
        self.state.in_flight -= 1;
        let target = self.state.lives[id.index()]
            .at_target
            .expect("staging starts at a target");
        if self.state.targets[target.index()].task == TargetTask::Copy(id) {
            self.to_idle(target);
        } else {
            self.state.targets[target.index()].copies_out -= 1;
        }
        match outcome {
            Outcome::Failed => self.fail(id),
            Outcome::Done => {
                self.leave_target(id);
                self.arrive(id);
            }
        }
    }

    /// Hidden states begin to wait for a drafter.
    fn arrive(&mut self, id: MicrobatchId) {
        let lane = self.dispatch.lane(id, &self.view());
        let life = &mut self.state.lives[id.index()];
        life.status = Status::Queued;
        life.ticket = self.state.tickets;
        self.state.tickets = self.state.tickets.wrapping_add(1);
        self.state.lanes[lane].push_back(id);
    }

    fn fetch_ended(&mut self, drafter: DrafterId, id: MicrobatchId, outcome: Outcome) {
        let d = &mut self.state.drafters[drafter.index()];
        assert_eq!(
            d.fetching.take(),
            Some(id),
            "a fetch ends once, after it began"
        );
        self.state.in_flight -= 1;
        match outcome {
            Outcome::Done => {
                d.ready.push_back(id);
                self.in_hand(id);
            }
            Outcome::Failed => {
                self.untake(drafter, id);
                self.fail(id);
            }
        }
    }

    /// Hidden states are in the drafter's own hands; the place they came from is given back unless the slot lasts until trained.
    pub(super) fn in_hand(&mut self, id: MicrobatchId) {
        self.state.lives[id.index()].status = Status::Ready;
        if self.policy.release != Release::Trained {
            self.release(id);
            if self.state.lives[id.index()].at_drafter.is_some() {
                self.leave_target(id);
                self.leave_host(id);
            }
        }
    }

    fn train_ended(&mut self, drafter: DrafterId, id: MicrobatchId, outcome: Outcome) {
        let d = &mut self.state.drafters[drafter.index()];
        assert_eq!(
            d.training.take(),
            Some(id),
            "a training ends once, after it began"
        );
        self.state.in_flight -= 1;
        match outcome {
            Outcome::Done => {
                d.trained.push(id);
                self.state.step_trained += 1;
                self.release(id);
                self.destroy(id);
                self.state.lives[id.index()].status = Status::Trained;
            }
            Outcome::Failed => {
                self.untake(drafter, id);
                self.fail(id);
            }
        }
    }

    fn step_applied(&mut self, step: StepId, group: Group) {
        self.state.in_flight -= 1;
        let mut samples = 0;
        for d in 0..self.state.drafters.len() {
            let drafter = DrafterId::from_index(d);
            if group != Group::All && group != Group::One(drafter) {
                continue;
            }
            if std::mem::take(&mut self.state.drafters[d].applying) {
                samples += self.commit(drafter);
            }
        }
        if group == Group::All {
            assert_eq!(
                step, self.state.step,
                "optimizer steps are applied in order"
            );
            self.state.step.0 += 1;
            self.state.step_trained = 0;
            self.state.step_taken = self.state.drafters.iter().map(|d| d.held() as u32).sum();
        }
        self.state.lagging.push_back(samples);
        let counted_out = self.state.lagging.pop_front().unwrap_or(0);
        self.state.samples_in_flight -= counted_out;
        if self.state.phase == Phase::Closing && self.policy.barrier == Barrier::All {
            self.state.phase = Phase::Draining;
        }
    }

    /// What a drafter trained on becomes part of the weights; returns its samples.
    fn commit(&mut self, drafter: DrafterId) -> u32 {
        let mut trained = std::mem::take(&mut self.state.drafters[drafter.index()].trained);
        let mut samples = 0;
        for id in trained.drain(..) {
            self.state.lives[id.index()].status = Status::Committed;
            self.state.open -= 1;
            samples += self.plan.microbatch(id).sample_count();
        }
        let ahead = self.state.drafters[drafter.index()].ready.iter();
        let buckets = ahead
            .map(|&id| 1 << self.bucket_bit(id))
            .fold(0, |mask, bit: u64| mask | bit);
        let d = &mut self.state.drafters[drafter.index()];
        d.trained = trained;
        d.taken = d.held() as u32;
        d.window_buckets = buckets;
        d.own_steps += u32::from(self.policy.barrier == Barrier::None);
        samples
    }

    fn target_joined(&mut self, target: TargetId) {
        let t = &mut self.state.targets[target.index()];
        assert_eq!(t.presence, Presence::Lost, "who joins was not there");
        t.presence = Presence::Present;
        self.to_idle(target);
    }

    fn target_lost(&mut self, target: TargetId) {
        let t = &mut self.state.targets[target.index()];
        assert_eq!(t.presence, Presence::Present, "who is lost was there");
        t.presence = Presence::Lost;
        let task = std::mem::replace(&mut t.task, TargetTask::Idle);
        assert!(
            matches!(task, TargetTask::Idle | TargetTask::Hold(_)) && t.copies_out == 0,
            "open work is reported as failed before its worker is lost"
        );
        self.state.idle_targets.retain(|&t| t != target);
        self.state.holding.retain(|&t| t != target);
        for id in self.all_where(|life| life.at_target == Some(target)) {
            self.begin_again(id);
        }
        self.leave_input_of(target);
    }

    fn drafter_joined(&mut self, drafter: DrafterId) {
        let d = &mut self.state.drafters[drafter.index()];
        assert_eq!(d.presence, Presence::Lost, "who joins was not there");
        d.presence = Presence::Present;
        self.reset_cursors();
    }

    /// The gradients of a lost drafter are gone: what it trained on in the step under way, and what it held, is done again.
    fn drafter_lost(&mut self, drafter: DrafterId) {
        let d = &mut self.state.drafters[drafter.index()];
        assert_eq!(d.presence, Presence::Present, "who is lost was there");
        assert!(
            d.training.is_none() && d.fetching.is_none() && !d.applying,
            "open work is reported as failed before its worker is lost"
        );
        d.presence = Presence::Lost;
        let trained = std::mem::take(&mut d.trained);
        let held: Vec<_> = d.ready.drain(..).collect();
        self.state.idle_drafters.retain(|&i| i != drafter);
        self.state.step_trained -= trained.len() as u32;
        for &id in trained.iter().chain(&held) {
            self.untake(drafter, id);
            self.begin_again(id);
        }
        for id in self.all_where(|life| life.at_drafter == Some(drafter)) {
            self.begin_again(id);
        }
        self.rehome_lane(drafter);
        self.reset_cursors();
    }

    /// A lost drafter's own lane is emptied into the lanes of those who stand in for it.
    fn rehome_lane(&mut self, drafter: DrafterId) {
        let lane = match self.policy.queue {
            Queue::PerDrafter => drafter.index(),
            Queue::Dealt => 1 + drafter.index(),
            Queue::Fifo | Queue::Bucketed | Queue::Composed => return,
        };
        for id in std::mem::take(&mut self.state.lanes[lane]) {
            let lane = self.dispatch.lane(id, &self.view());
            self.state.lanes[lane].push_back(id);
        }
    }

    fn all_where(&self, pick: impl Fn(&super::Life) -> bool) -> Vec<MicrobatchId> {
        let lives = self.state.lives.iter().enumerate();
        lives
            .filter(|(_, life)| pick(life))
            .map(|(i, _)| MicrobatchId::from_index(i))
            .collect()
    }

    fn to_idle(&mut self, target: TargetId) {
        let t = &mut self.state.targets[target.index()];
        t.task = TargetTask::Idle;
        if t.presence == Presence::Present {
            self.state.idle_targets.push_back(target);
        }
    }

    /// An attempt failed: the microbatch is tried again, or given up and listed.
    fn fail(&mut self, id: MicrobatchId) {
        let life = &mut self.state.lives[id.index()];
        life.attempts += 1;
        if life.attempts <= self.policy.retry_max {
            self.begin_again(id);
            return;
        }
        self.destroy(id);
        self.release(id);
        self.forget_untaken(id);
        self.count_out(id);
        self.state.lives[id.index()].status = Status::Failed;
        self.state.open -= 1;
    }

    /// Hidden states are lost and will be made again, in plan order. A reserved slot stays reserved, so that later work cannot crowd
    /// out what it waits for.
    pub(super) fn begin_again(&mut self, id: MicrobatchId) {
        for lane in &mut self.state.lanes {
            lane.retain(|&waiting| waiting != id);
        }
        self.destroy(id);
        if self.policy.admission == crate::policy::Admission::Block {
            self.release(id);
        }
        self.count_out(id);
        self.state.lives[id.index()].status = Status::Pending;
        self.state.again.insert(id);
        self.reset_cursors();
    }

    fn count_out(&mut self, id: MicrobatchId) {
        let was_begun = self.status(id) != Status::Pending;
        if was_begun {
            self.state.samples_in_flight -= self.plan.microbatch(id).sample_count();
        }
    }

    fn reset_cursors(&mut self) {
        let first = self
            .plan
            .steps
            .get(self.state.step.index())
            .map_or(0, |s| s.microbatches.start);
        for d in &mut self.state.drafters {
            d.cursor = first;
        }
    }

    /// What was taken counts as untaken again.
    fn untake(&mut self, drafter: DrafterId, id: MicrobatchId) {
        let bucket = self.plan.microbatch(id).bucket.index();
        let drafters = self.state.drafters.len();
        self.state.untaken += 1;
        self.state.untaken_of_bucket[bucket] += 1;
        self.state.untaken_of_drafter[id.index() % drafters] += 1;
        let in_this_step =
            !self.plan.is_composed() || self.plan.step_of[id.index()] == self.state.step;
        if in_this_step {
            self.state.step_taken = self.state.step_taken.saturating_sub(1);
        }
        let d = &mut self.state.drafters[drafter.index()];
        d.taken = d.taken.saturating_sub(1);
        let mine = d.trained.iter().chain(&d.ready).chain(&d.training);
        let mask = mine
            .filter(|&&m| m != id)
            .map(|m| 1_u64 << (self.plan.microbatch(*m).bucket.0 % 64))
            .fold(0, |mask, bit| mask | bit);
        self.state.drafters[drafter.index()].window_buckets = mask;
    }

    pub(super) fn forget_untaken(&mut self, id: MicrobatchId) {
        let bucket = self.plan.microbatch(id).bucket.index();
        let drafters = self.state.drafters.len();
        self.state.untaken -= 1;
        self.state.untaken_of_bucket[bucket] -= 1;
        self.state.untaken_of_drafter[id.index() % drafters] -= 1;
    }

    pub(super) fn bucket_bit(&self, id: MicrobatchId) -> u32 {
        u32::from(self.plan.microbatch(id).bucket.0 % 64)
    }

    pub(super) fn status(&self, id: MicrobatchId) -> Status {
        self.state.lives[id.index()].status
    }
}
