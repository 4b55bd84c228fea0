//! Settling: what follows from the state, until nothing more is legal. Every round grants slots, feeds targets, deals, lets drafters
//! take and train, and applies optimizer steps, in this order, as far as something that they read has changed.
//!
//! A stage goes through those who wait for it, which is a few instructions when nobody does and so is part of one loop. What it does to one
//! of them is a function of its own (`admits`, `feeds`, `takes`, `trains`).

use super::touched::Stage;
use super::{Action, Actions, Core, Phase, Status, TargetTask};
use crate::id::{MicrobatchId, TargetId};
use crate::policy::{Admission, Dispatch, Input, Queue};
use crate::time::{Span, Time};

impl Core {
    #[inline(always)]
    pub(super) fn settle(&mut self, out: &mut Actions) {
        if self.state.phase == Phase::Closing && !self.has_begun_step() {
            self.state.phase = Phase::Draining;
            self.touched.everything();
        }
        if matches!(self.state.phase, Phase::Running | Phase::Closing) {
            self.run_stages(out);
        }
        self.finish(out);
    }

    /// Runs the stages round and round until none is due.
    #[inline(always)]
    fn run_stages(&mut self, out: &mut Actions) {
        loop {
            while self.touched.is_due() {
                if self.touched.awaits(Stage::Admit) {
                    self.admit(out);
                }
                if self.touched.awaits(Stage::Feed) {
                    self.feed(out);
                }
                if self.touched.awaits(Stage::Deal) {
                    self.deal(out);
                }
                if self.touched.awaits(Stage::Take) {
                    self.take(out);
                }
                if self.touched.awaits(Stage::Train) {
                    self.train(out);
                }
                if self.touched.awaits(Stage::Apply) {
                    self.apply(out);
                }
            }
            if !self.break_standstill(out) {
                return;
            }
        }
    }

    /// Whether training has begun for a step that is not applied yet: a stop finishes such a step.
    fn has_begun_step(&self) -> bool {
        self.state.drafters.iter().any(|d| d.has_begun_window())
    }

    /// Grants slots to hidden states that targets hold, longest first; one that does not fit lets later ones by.
    #[inline]
    fn admit(&mut self, out: &mut Actions) {
        self.touched.run(Stage::Admit);
        let mut i = 0;
        while let Some(target) = self.state.holding.get(i) {
            if !self.admits(i, target, out) {
                i += 1;
            } else if self.policy.queue == Queue::Composed {
                // The next in plan order may stand before this one in the list.
                i = 0;
            }
        }
    }

    /// Sends off what the target at `at` in the list of holders holds, if that may have a slot.
    #[inline(never)]
    fn admits(&mut self, at: usize, target: TargetId, out: &mut Actions) -> bool {
        let held = self.state.targets[target.index()].held();
        let id = held.expect("who is listed as holding holds");
        let is_gone = self.lets_go(target, id, out);
        if is_gone {
            self.state.holding.remove(at);
        }
        is_gone
    }

    /// Gives idle targets their next microbatch, longest idle first.
    #[inline]
    fn feed(&mut self, out: &mut Actions) {
        self.touched.run(Stage::Feed);
        let mut i = 0;
        while let Some(target) = self.state.idle_targets.get(i) {
            if !self.feeds(i, target, out) {
                i += 1;
            } else if i > 0 {
                // Who could not begin what came next may begin what comes next now.
                self.touched.due(&[Stage::Feed]);
            }
        }
    }

    /// Lets the target at `at` in the list of the idle begin its next microbatch, if it may.
    #[inline(never)]
    fn feeds(&mut self, at: usize, target: TargetId, out: &mut Actions) -> bool {
        let copies_out = self.state.targets[target.index()].copies_out;
        if copies_out > self.policy.copies_beside || self.is_paused() {
            return false;
        }
        let Some(id) = self.next_input(target) else {
            return false;
        };
        if self.policy.admission == Admission::Reserve && !self.grants(id, self.consignee(id)) {
            return false;
        }
        self.state.idle_targets.remove(at);
        self.begin(target, id);
        out.push(Action::Forward {
            target,
            microbatch: id,
        });
        true
    }

    /// The microbatch that a target would begin next, were nothing in its way.
    #[inline(always)]
    pub(super) fn next_input(&self, target: TargetId) -> Option<MicrobatchId> {
        let fresh = self.fresh_input(target);
        let next = if self.state.again.is_empty() {
            fresh?
        } else {
            self.first_of_again(fresh)?
        };
        let beyond =
            self.state.phase == Phase::Closing && self.is_composed() && !self.sight.has_come(next);
        (!beyond).then_some(next)
    }

    /// What is begun again or out of turn, or what is `fresh` if that comes first in the plan.
    #[cold]
    fn first_of_again(&self, fresh: Option<MicrobatchId>) -> Option<MicrobatchId> {
        let again = match self.policy.queue {
            // The first one's drafter may have a full queue and wait for another's.
            Queue::PerDrafter => self.again_that_fits(),
            _ => None,
        };
        let again = again.or_else(|| self.state.again.first().copied());
        again.into_iter().chain(fresh).min()
    }

    /// The first microbatch meant for a target that nobody has begun.
    #[inline]
    pub(super) fn fresh_input(&self, target: TargetId) -> Option<MicrobatchId> {
        let row = self.next_row(target);
        ((row as usize) < self.state.lives.len()).then_some(MicrobatchId(row))
    }

    /// The row of the plan that is a target's next, if the plan has so many.
    #[inline]
    fn next_row(&self, target: TargetId) -> u32 {
        match self.policy.input {
            Input::Shared => self.state.next,
            Input::FixedRoundRobin => {
                let begun = self.state.targets[target.index()].begun;
                begun * self.state.targets.len() as u32 + u32::from(target.0)
            }
        }
    }

    /// Keeps the courses of all before `end` from now on.
    #[inline]
    pub(super) fn keep(&mut self, end: u32) {
        self.state.lives.reach(end, &self.plan.microbatches);
    }

    /// Keeps what targets begin with, and what is in sight.
    pub(super) fn keep_what_is_next(&mut self) {
        let targets = (0..self.state.targets.len()).map(TargetId::from_index);
        let next = targets.map(|target| self.next_row(target) + 1).max();
        self.keep(next.unwrap_or(0).max(self.sight.end));
    }

    #[inline(always)]
    pub(super) fn advance_input(&mut self, target: TargetId) {
        match self.policy.input {
            Input::Shared => self.state.next += 1,
            Input::FixedRoundRobin => self.target_mut(target).begun += 1,
        }
        self.keep(self.next_row(target) + 1);
        let has_ended = self.state.next as usize == self.state.lives.len();
        if has_ended || self.state.phase == Phase::Closing {
            // The others may wait for nothing from now on.
            self.touched.targets.fill();
        }
    }

    #[inline]
    fn begin(&mut self, target: TargetId, id: MicrobatchId) {
        if !self.state.again.is_empty() && self.state.again.remove(&id) {
            self.touched.targets.fill();
        } else {
            self.advance_input(target);
        }
        if self.policy.queue == Queue::Composed && !self.state.holding.is_empty() {
            // Slots go by plan order, and what has none moves on.
            self.touched.due(&[Stage::Admit]);
        }
        let life = &mut self.state.lives[id];
        self.state.hs.create(life, target);
        life.status = Status::Forwarding;
        self.state.samples_in_flight += life.samples;
        self.state.in_flight += 1;
        self.target_mut(target).task = TargetTask::Forward(id);
    }

    /// The watermark: targets pause at the high mark and resume at the low one.
    #[inline]
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

    /// What a pool is dealt by has changed, where there is one: what waits, or what drafters have.
    #[inline]
    pub(super) fn pool_has_changed(&mut self) {
        if self.policy.queue == Queue::Dealt {
            self.touched.due(&[Stage::Deal]);
        }
    }

    /// Deals from the pool to the inboxes; where the pool is only looked at now and then, asks to be woken for it.
    #[inline]
    fn deal(&mut self, out: &mut Actions) {
        self.touched.run(Stage::Deal);
        if self.policy.queue == Queue::Dealt {
            self.deal_pool(out);
        }
    }

    fn deal_pool(&mut self, out: &mut Actions) {
        let receivers = self.policy.queue.deal(self);
        if receivers.is_empty() {
            return;
        }
        let poll = self.policy.poll;
        if poll > Span::ZERO && !self.state.is_awake {
            if self.state.wake.is_none() {
                let at = Time::from_ns(self.state.now.as_ns().next_multiple_of(poll.as_ns()));
                self.state.wake = Some(at);
                out.push(Action::Wake { at });
            }
            return;
        }
        // What is left for each to come has changed for all.
        self.touched.all_drafters();
        for drafter in receivers {
            let id = self.state.lanes[0].pop().expect("what is dealt was pooled");
            self.state.lanes[1 + drafter.index()].push(id);
        }
    }
}
