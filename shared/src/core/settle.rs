//! Settling: what follows from the state, until nothing more is legal. Every round grants slots, feeds targets, deals, lets drafters
//! take and train, and applies optimizer steps, in this order.

use super::{Action, Actions, Core, Group, Phase, Presence, Status, TargetTask};
use crate::id::{DrafterId, MicrobatchId, StepId, TargetId};
use crate::policy::{Admission, Assignment, Barrier, Input, Placement, Queue, Release, Transport};
use crate::time::{Span, Time};

/// Copies out of a target's memory that may be under way when it begins a forward: the one beside which the forward runs.
const COPIES_BESIDE_FORWARD_MAX: u8 = 1;

impl Core {
    pub(super) fn settle(&mut self, out: &mut Actions) {
        if self.state.phase == Phase::Closing && !self.has_begun_step() {
            self.state.phase = Phase::Draining;
        }
        while matches!(self.state.phase, Phase::Running | Phase::Closing) {
            let mut changed = self.admit(out);
            changed |= self.feed(out);
            changed |= self.deal(out);
            changed |= self.take(out);
            changed |= self.train(out);
            changed |= self.apply(out);
            if !changed {
                break;
            }
        }
        self.finish(out);
    }

    fn has_begun_step(&self) -> bool {
        self.state.step_trained > 0
            || self.state.drafters.iter().any(|d| {
                d.training.is_some() || d.applying || !d.trained.is_empty() || d.held() > 0
            })
    }

    /// Grants slots to hidden states that targets hold, longest first; one that does not fit lets later ones by.
    fn admit(&mut self, out: &mut Actions) -> bool {
        let mut changed = false;
        let mut i = 0;
        while let Some(&target) = self.state.holding.get(i) {
            let TargetTask::Hold(id) = self.state.targets[target.index()].task else {
                unreachable!("who is listed as holding holds")
            };
            if !self.fits(id) {
                i += 1;
                continue;
            }
            self.state.holding.remove(i);
            self.grant(id);
            out.push(Action::Admit { microbatch: id });
            self.send_off(target, id, out);
            changed = true;
        }
        changed
    }

    /// Gives idle targets their next microbatch, longest idle first.
    fn feed(&mut self, out: &mut Actions) -> bool {
        let mut changed = false;
        let mut i = 0;
        while let Some(&target) = self.state.idle_targets.get(i) {
            let can = self.state.targets[target.index()].copies_out <= COPIES_BESIDE_FORWARD_MAX;
            let next = if can && !self.is_paused() {
                self.next_input(target)
            } else {
                None
            };
            let Some(id) = next.filter(|&id| self.may_begin(id, out)) else {
                i += 1;
                continue;
            };
            self.state.idle_targets.remove(i);
            self.begin(target, id);
            out.push(Action::Forward {
                target,
                microbatch: id,
            });
            changed = true;
        }
        changed
    }

    /// The microbatch that a target would begin next, were nothing in its way.
    pub(super) fn next_input(&self, target: TargetId) -> Option<MicrobatchId> {
        let again = self.state.again.first().copied();
        let fresh = match self.policy.input {
            Input::Shared => self.state.next,
            Input::FixedRoundRobin => {
                let stride = u32::from(self.policy.targets);
                self.state.targets[target.index()].begun * stride + u32::from(target.0)
            }
        };
        let fresh = Some(MicrobatchId(fresh)).filter(|m| m.index() < self.state.lives.len());
        let next = again.into_iter().chain(fresh).min()?;
        let beyond = self.state.phase == Phase::Closing
            && self.plan.is_composed()
            && self.plan.step_of[next.index()] > self.state.step;
        (!beyond).then_some(next)
    }

    /// Whether a forward may begin: at once when slots are asked for after it, with a slot in reach when before.
    fn may_begin(&mut self, id: MicrobatchId, out: &mut Actions) -> bool {
        if self.policy.admission == Admission::Block || self.state.lives[id.index()].has_slot {
            return true;
        }
        while !self.fits(id) {
            if !self.make_way(id, out) {
                return false;
            }
        }
        true
    }

    /// Frees a slot held by later work of the plan when earlier work must be done again: else the later would wait for the earlier and
    /// the earlier for a slot.
    fn make_way(&mut self, id: MicrobatchId, out: &mut Actions) -> bool {
        if self.policy.queue != Queue::Composed || !self.state.again.contains(&id) {
            return false;
        }
        let Some(last) = self.state.lanes[0]
            .iter()
            .copied()
            .max()
            .filter(|&last| last > id)
        else {
            return false;
        };
        out.push(Action::Discard { microbatch: last });
        self.begin_again(last);
        self.release(last);
        true
    }

    fn begin(&mut self, target: TargetId, id: MicrobatchId) {
        if !self.state.again.remove(&id) {
            match self.policy.input {
                Input::Shared => self.state.next += 1,
                Input::FixedRoundRobin => self.state.targets[target.index()].begun += 1,
            }
        }
        if self.policy.admission == Admission::Reserve && !self.state.lives[id.index()].has_slot {
            self.grant(id);
        }
        self.create(id, target);
        self.state.lives[id.index()].status = Status::Forwarding;
        self.state.targets[target.index()].task = TargetTask::Forward(id);
        self.state.samples_in_flight += self.plan.microbatch(id).sample_count();
        self.state.in_flight += 1;
    }

    /// Under fixed round robin, what a lost target had still to begin is shared among the others.
    pub(super) fn leave_input_of(&mut self, target: TargetId) {
        if self.policy.input == Input::Shared {
            return;
        }
        let stride = u32::from(self.policy.targets);
        let t = &mut self.state.targets[target.index()];
        let mut next = t.begun * stride + u32::from(target.0);
        while (next as usize) < self.state.lives.len() {
            self.state.again.insert(MicrobatchId(next));
            t.begun += 1;
            next += stride;
        }
    }

    /// The watermark: targets pause at the high mark and resume at the low one.
    fn is_paused(&mut self) -> bool {
        let Some(high) = self.policy.gate_high else {
            return false;
        };
        let low = self.policy.gate_low.unwrap_or(high);
        if self.state.samples_in_flight >= high {
            self.state.paused = true;
        } else if self.state.samples_in_flight <= low {
            self.state.paused = false;
        }
        self.state.paused
    }

    /// Deals from the pool to the inboxes, and asks to be woken where the pool is only looked at now and then.
    fn deal(&mut self, out: &mut Actions) -> bool {
        if self.policy.queue != Queue::Dealt {
            return false;
        }
        let count = self.dispatch.deal(&self.view());
        let drafters: Vec<_> = self.present_drafters().collect();
        for i in 0..count {
            let id = self.state.lanes[0]
                .pop_front()
                .expect("what is dealt was pooled");
            self.state.lanes[1 + drafters[i % drafters.len()].index()].push_back(id);
        }
        self.ask_to_look_again(out);
        count > 0
    }

    fn ask_to_look_again(&mut self, out: &mut Actions) {
        let poll = self.policy.poll.as_ns();
        let nothing_to_see = self.state.lanes[0].is_empty() || self.state.wake.is_some();
        if poll == 0 || nothing_to_see {
            return;
        }
        let window_is_there = self.state.lanes[0].len() >= self.view().window() as usize;
        if window_is_there || self.view().all_arrived() {
            let at = Time::from_ns((self.state.now.as_ns() / poll + 1) * poll);
            self.state.wake = Some(at);
            out.push(Action::Wake { at });
        }
    }

    /// Lets drafters with room take what the policy prefers, longest idle first.
    fn take(&mut self, out: &mut Actions) -> bool {
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
            let listed = self.state.idle_drafters.contains(&drafter);
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
        let lane = (0..self.state.lanes.len()).find_map(|l| {
            self.state.lanes[l]
                .iter()
                .position(|&m| m == id)
                .map(|at| (l, at))
        });
        let (lane, at) = lane.expect("what waits stands in a lane");
        self.state.lanes[lane].remove(at);
        self.state.memo = memo;
        self.forget_untaken(id);
        let is_ahead = self.plan.is_composed() && self.plan.step_of[id.index()] > self.state.step;
        self.state.step_taken += u32::from(!is_ahead);
        let bit = 1 << self.bucket_bit(id);
        let d = &mut self.state.drafters[drafter.index()];
        d.taken += 1;
        d.window_buckets |= bit;
        d.cursor = d.cursor.max(id.0 + 1);
        if self.policy.release == Release::Taken {
            self.release(id);
        }
        self.fetch(drafter, id, out);
    }

    fn fetch(&mut self, drafter: DrafterId, id: MicrobatchId, out: &mut Actions) {
        let is_here = self.policy.transport == Transport::Local
            || self.policy.placement == Placement::Drafter;
        if is_here {
            self.state.drafters[drafter.index()].ready.push_back(id);
            self.in_hand(id);
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

    /// Lets idle drafters train on what they hold for the step under way.
    fn train(&mut self, out: &mut Actions) -> bool {
        let mut changed = false;
        for i in 0..self.state.drafters.len() {
            let drafter = DrafterId::from_index(i);
            let Some(id) = self.next_training(drafter) else {
                continue;
            };
            let step = self.step_of_training(drafter, id);
            let d = &mut self.state.drafters[i];
            d.ready.pop_front();
            d.training = Some(id);
            self.state.lives[id.index()].status = Status::Training;
            self.state.in_flight += 1;
            out.push(Action::Train {
                drafter,
                microbatch: id,
                step,
            });
            changed = true;
        }
        changed
    }

    fn next_training(&self, drafter: DrafterId) -> Option<MicrobatchId> {
        let d = &self.state.drafters[drafter.index()];
        let is_free = d.is_present() && d.training.is_none() && !d.applying;
        let copies_in = d.fetching.is_some() && !self.policy.overlap;
        let next = d.ready.front().copied().filter(|_| is_free && !copies_in)?;
        let in_this_step = if self.plan.is_composed() {
            self.plan.step_of[next.index()] == self.state.step
        } else {
            match self.policy.assignment {
                Assignment::Fixed => (d.trained.len() as u32) < self.grad_accum,
                Assignment::Shared => {
                    let running = self.state.drafters.iter().filter(|d| d.training.is_some());
                    self.state.step_trained + (running.count() as u32) < self.view().window()
                }
            }
        };
        in_this_step.then_some(next)
    }

    fn step_of_training(&self, drafter: DrafterId, _id: MicrobatchId) -> StepId {
        match self.policy.barrier {
            Barrier::All => self.state.step,
            Barrier::None => StepId(self.state.drafters[drafter.index()].own_steps),
        }
    }

    /// Applies the optimizer step whose microbatches are all trained.
    fn apply(&mut self, out: &mut Actions) -> bool {
        match self.policy.barrier {
            Barrier::All => self.apply_to_all(out),
            Barrier::None => self.apply_to_each(out),
        }
    }

    fn apply_to_all(&mut self, out: &mut Actions) -> bool {
        if !self.step_is_complete() {
            return false;
        }
        let has_gradient = self.state.step_trained > 0;
        if !has_gradient {
            // All of a planned step failed: nothing to apply, the next one is due.
            let planned = self.state.step.index() < self.plan.steps.len();
            self.state.step.0 += u32::from(planned);
            return planned;
        }
        for d in self.state.drafters.iter_mut().filter(|d| d.is_present()) {
            d.applying = true;
        }
        self.state.in_flight += 1;
        out.push(Action::Apply {
            step: self.state.step,
            group: Group::All,
        });
        true
    }

    fn apply_to_each(&mut self, out: &mut Actions) -> bool {
        let mut changed = false;
        for i in 0..self.state.drafters.len() {
            let drafter = DrafterId::from_index(i);
            let d = &self.state.drafters[i];
            let idle = d.is_present() && d.training.is_none() && !d.applying;
            if !idle || d.trained.is_empty() || !self.share_is_done(drafter) {
                continue;
            }
            let step = StepId(d.own_steps);
            self.state.drafters[i].applying = true;
            self.state.in_flight += 1;
            out.push(Action::Apply {
                step,
                group: Group::One(drafter),
            });
            changed = true;
        }
        changed
    }

    /// Tells everybody to stop once nothing is left to do, or nothing is in flight any more after a stop was asked for.
    fn finish(&mut self, out: &mut Actions) {
        let is_done = self.state.phase == Phase::Draining
            || matches!(self.state.phase, Phase::Running | Phase::Closing) && self.state.open == 0;
        if !is_done || self.state.in_flight > 0 {
            return;
        }
        self.skip_the_rest(out);
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
                out.push(Action::StopDrafter {
                    drafter: DrafterId::from_index(i),
                });
            }
        }
        self.state.idle_targets.clear();
        self.state.idle_drafters.clear();
    }

    /// After a stop, hidden states that nobody will train on are freed and their microbatches listed as skipped.
    fn skip_the_rest(&mut self, out: &mut Actions) {
        for i in 0..self.state.lives.len() {
            let id = MicrobatchId::from_index(i);
            let status = self.status(id);
            if matches!(status, Status::Committed | Status::Failed | Status::Skipped) {
                continue;
            }
            assert_ne!(
                status,
                Status::Trained,
                "a stop finishes the step under way"
            );
            if status.is_alive() {
                out.push(Action::Discard { microbatch: id });
                self.state.samples_in_flight -= self.plan.microbatch(id).sample_count();
            }
            self.destroy(id);
            self.release(id);
            if status.is_untaken() {
                self.forget_untaken(id);
            }
            self.state.lives[i].status = Status::Skipped;
            self.state.open -= 1;
        }
        for lane in &mut self.state.lanes {
            lane.clear();
        }
        for d in &mut self.state.drafters {
            d.ready.clear();
        }
        for t in &mut self.state.targets {
            t.task = TargetTask::Idle;
        }
        self.state.holding.clear();
        self.state.again.clear();
        self.state.next = self.state.lives.len() as u32;
    }

    /// Whether a wake-up is outstanding that could change anything.
    pub(super) fn awaits_wake(&self) -> bool {
        self.state.wake.is_some() && self.policy.poll > Span::ZERO
    }
}
