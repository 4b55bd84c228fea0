//! What is legal: caps, windows, steps. Policies choose within these; nothing here prefers anything.

use super::{BucketSet, Core, DrafterState, Life, Phase, Presence, Status, TargetTask};
use crate::id::{BucketId, DrafterId, MicrobatchId, TargetId};
use crate::policy::{Admission, Assignment, Barrier, Enforce, Input, Queue};

/// Waiting hidden states that the rules let a drafter take. The core alone makes one, so what a policy picks is legal.
#[derive(Clone, Copy, Debug)]
pub struct Takeable {
    pub(super) drafter: DrafterId,
    pub(super) id: MicrobatchId,
    lane: u16,
}

impl Takeable {
    /// Whose hidden states.
    #[inline]
    pub fn microbatch(&self) -> MicrobatchId {
        self.id
    }

    /// The lane in which they wait.
    #[inline]
    pub fn lane(&self) -> usize {
        self.lane.into()
    }
}

impl Core {
    /// Whether a slot for these hidden states would stay under every cap.
    pub(super) fn fits(&self, id: MicrobatchId) -> bool {
        let life = &self.state.lives[id];
        let with = self.state.hs.with(life, self.consignee(id), &self.caps);
        with.is_some()
    }

    /// Whether a slot may go to this microbatch before all others. Under a plan slots are granted in plan order: later work that holds
    /// them would wait for the earlier's step, and the earlier for a slot.
    #[inline]
    pub(super) fn is_next_for_slot(&self, id: MicrobatchId) -> bool {
        self.policy.queue != Queue::Composed || self.is_next_of_plan(id)
    }

    #[inline(never)]
    fn is_next_of_plan(&self, id: MicrobatchId) -> bool {
        let comes_before = |other: MicrobatchId| other < id;
        let targets = || (0..self.state.targets.len()).map(TargetId::from_index);
        let fresh_comes_before = match self.policy.input {
            // What all share need be asked of one.
            Input::Shared => self.fresh_input(TargetId(0)).is_some_and(comes_before),
            Input::FixedRoundRobin => targets()
                .filter_map(|t| self.fresh_input(t))
                .any(comes_before),
        };
        if fresh_comes_before || self.state.again.first().copied().is_some_and(comes_before) {
            return false;
        }
        // Who reserves computes and holds nothing without a slot.
        let mut held = targets().filter_map(|t| self.without_slot(t));
        self.policy.admission == Admission::Reserve || !held.any(comes_before)
    }

    /// What a target computes or holds without a slot.
    fn without_slot(&self, target: TargetId) -> Option<MicrobatchId> {
        match self.state.targets[target.index()].task {
            TargetTask::Forward(id) | TargetTask::Hold(id) => Some(id),
            TargetTask::Idle | TargetTask::Copy(_) => None,
        }
        .filter(|id| !self.state.lives[*id].has_slot())
    }

    /// Whether a drafter has room for one more, whatever it is.
    #[inline(always)]
    pub(super) fn has_room(&self, drafter: DrafterId) -> bool {
        let d = &self.state.drafters[drafter.index()];
        if !d.is_present() || d.fetching.is_some() {
            return false;
        }
        let prefetch = usize::from(self.policy.prefetch);
        if prefetch == 0 {
            // Only who has something left to do in this step takes anything.
            return !d.is_working()
                && (d.ready.is_empty()
                    || self.is_composed() && self.has_room_for_this_step(drafter, 1))
                && !self.share_is_done(drafter);
        }
        d.ready.len() < prefetch
            || self.is_composed() && self.has_room_for_this_step(drafter, prefetch)
    }

    /// What a drafter holds ahead leaves room for what the planned step under way still lacks.
    #[inline(never)]
    fn has_room_for_this_step(&self, drafter: DrafterId, limit: usize) -> bool {
        let ready = &self.state.drafters[drafter.index()].ready;
        let is_full = ready
            .get(limit - 1)
            .is_some_and(|id| self.is_of_this_step(id));
        !is_full && self.lacks_from_plan(drafter)
    }

    /// Whether a microbatch in hand or ahead belongs to the planned step under way: all of the steps before are done.
    #[inline]
    pub(super) fn is_of_this_step(&self, id: MicrobatchId) -> bool {
        self.sight.has_come(id)
    }

    /// Whether the planned step under way holds something that a drafter is still to take.
    #[inline]
    fn lacks_from_plan(&self, drafter: DrafterId) -> bool {
        match self.policy.assignment {
            Assignment::Shared => self.state.step_taken < self.sight.size,
            Assignment::Fixed => {
                let next = self.state.drafters[drafter.index()].cursor;
                self.is_of_this_step(MicrobatchId(next))
            }
        }
    }

    /// Whether a drafter has nothing left to take or train in the step under way, but for what it trains on now.
    #[inline(always)]
    pub(super) fn share_is_done(&self, drafter: DrafterId) -> bool {
        if self.is_composed() {
            return self.planned_share_is_done(drafter);
        }
        let d = &self.state.drafters[drafter.index()];
        let is_full = match self.policy.assignment {
            Assignment::Fixed => {
                d.trained.len() as u32 + u32::from(d.training.is_some()) >= self.grad_accum
            }
            Assignment::Shared => d.held() == 0 && self.state.step_taken >= self.window(),
        };
        is_full || d.held() == 0 && !self.could_come(drafter)
    }

    #[inline(never)]
    fn planned_share_is_done(&self, drafter: DrafterId) -> bool {
        let d = &self.state.drafters[drafter.index()];
        // What is ready is in plan order.
        let mut in_hand = d.ready.first().into_iter().chain(d.fetching);
        !in_hand.any(|id| self.is_of_this_step(id)) && !self.lacks_from_plan(drafter)
    }

    /// Buckets in the window that a drafter is taking for.
    pub(super) fn window_buckets(&self, d: &DrafterState) -> BucketSet {
        d.window().map(|id| self.bucket(id)).collect()
    }

    /// Whether the step under way has all the microbatches it will get, all trained.
    pub(super) fn step_is_complete(&self) -> bool {
        let drafters = || self.present_drafters();
        let state = &self.state;
        if state.drafters_training > 0 || state.drafters_applying > 0 {
            return false;
        }
        if self.is_composed() {
            return state.step_trained + state.step_failed == self.sight.size;
        }
        match self.policy.assignment {
            Assignment::Fixed => drafters().all(|d| self.share_is_done(d)),
            Assignment::Shared => {
                self.state.step_trained >= self.window()
                    || drafters().all(|d| self.share_is_done(d))
            }
        }
    }

    pub(super) fn present_drafters(&self) -> impl Iterator<Item = DrafterId> {
        let drafters = &self.state.drafters;
        (0..drafters.len())
            .filter(|&d| drafters[d].is_present())
            .map(DrafterId::from_index)
    }
}

impl Core {
    /// The drafter that will train what is `planned` for one and in nobody's hands: that one while it is there, else the next one that is.
    /// With nobody there it stays with the planned one, who may come back.
    #[inline]
    pub(super) fn heir(&self, planned: DrafterId) -> DrafterId {
        let drafters = &self.state.drafters;
        let is_there = |d: usize| drafters[d].presence != Presence::Lost;
        if is_there(planned.index()) {
            return planned;
        }
        (1..drafters.len())
            .map(|i| (planned.index() + i) % drafters.len())
            .find(|&d| is_there(d))
            .map_or(planned, DrafterId::from_index)
    }

    /// Under a composed plan with fixed assignment, the first microbatch of this step or the next that is `drafter`'s and untaken.
    pub fn next_of_plan(&self, drafter: DrafterId) -> Option<MicrobatchId> {
        let next = MicrobatchId(self.state.drafters[drafter.index()].cursor);
        self.sight.reaches(next).then_some(next)
    }

    /// Where a drafter's cursor belongs that stands at `from` or after it: at its next microbatch, else at the end of what is in sight.
    pub(super) fn cursor_after(&self, from: u32, drafter: DrafterId) -> u32 {
        let end = self.sight.end.max(from);
        let (from, lives) = self.state.lives.in_rows(from..end);
        let planned = &self.plan.drafter_of[from as usize..];
        let is_its_own = |(life, &planned): (&Life, &DrafterId)| {
            life.status.is_untaken()
                && life.keeper().unwrap_or_else(|| self.heir(planned)) == drafter
        };
        let mut ahead = lives.iter().zip(planned);
        ahead
            .position(is_its_own)
            .map_or(end, |steps| from + steps as u32)
    }

    /// Whether hidden states may still reach `drafter`: some are waiting, in the making or to be made.
    #[inline]
    pub fn could_come(&self, drafter: DrafterId) -> bool {
        self.state.untaken > 0 && (!self.deals_out() || self.could_be_dealt_to(drafter))
    }

    /// Whether drafters have queues or inboxes of their own before anybody takes.
    #[inline]
    fn deals_out(&self) -> bool {
        matches!(self.policy.queue, Queue::PerDrafter | Queue::Dealt)
    }

    #[inline(never)]
    fn could_be_dealt_to(&self, drafter: DrafterId) -> bool {
        let lanes = &self.state.lanes;
        if self.policy.queue == Queue::PerDrafter {
            return self.state.untaken_of_drafter[drafter.index()] > 0;
        }
        let inboxes = self.state.waiting as usize - lanes[0].len();
        !lanes[1 + drafter.index()].is_empty() || self.state.untaken as usize > inboxes
    }

    /// Whether every microbatch that will wait in the pool is there.
    pub fn all_arrived(&self) -> bool {
        self.state.untaken == self.state.waiting
    }

    /// Whether the rules allow a drafter to take anything now: its window and step have room.
    #[inline(always)]
    pub(super) fn may_take(&self, drafter: DrafterId) -> bool {
        if self.is_composed() {
            return true;
        }
        let d = &self.state.drafters[drafter.index()];
        let has_space = match self.policy.assignment {
            Assignment::Fixed => d.taken() < self.grad_accum,
            Assignment::Shared => self.state.step_taken < self.window(),
        };
        if self.state.phase == Phase::Closing {
            let is_open = self.policy.barrier == Barrier::All || d.has_begun_window();
            return has_space && is_open;
        }
        has_space || self.policy.prefetch > 0 && !self.mixes_by_taking()
    }

    /// A waiting microbatch as one that `drafter`, who may take, may take from its lane: it is of a step whose turn it is, and the mixing
    /// rule, where it acts on taking, stays within reach.
    #[inline]
    pub fn takeable(&self, drafter: DrafterId, id: MicrobatchId, lane: usize) -> Option<Takeable> {
        let may_come = if self.is_composed() {
            self.may_take_of_plan(id)
        } else {
            !self.mixes_by_taking() || self.keeps_mixing_within_reach(drafter, id)
        };
        let is_legal = may_come && self.state.lives[id].status == Status::Queued;
        is_legal.then_some(Takeable {
            drafter,
            id,
            lane: lane as u16,
        })
    }

    /// Whether the mixing rule for windows acts on what is taken.
    #[inline]
    fn mixes_by_taking(&self) -> bool {
        self.policy.mix_enforce == Enforce::Take && self.policy.mix_window_min > 1
    }

    /// Of the step under way anything may be taken; of the next one, what is prefetched. Under shared assignment that must not keep a
    /// drafter from what the step under way still holds.
    #[inline]
    fn may_take_of_plan(&self, id: MicrobatchId) -> bool {
        if self.sight.has_come(id) {
            return true;
        }
        self.sight.reaches(id)
            && self.state.phase != Phase::Closing
            && self.policy.prefetch > 0
            && (self.policy.assignment == Assignment::Fixed
                || self.state.step_taken >= self.sight.size)
    }

    /// After taking `id`, the rest of the window can still bring the distinct buckets that the rule asks for. When no work outside the
    /// window's buckets is left, the rule asks for nothing more.
    #[inline(never)]
    fn keeps_mixing_within_reach(&self, drafter: DrafterId, id: MicrobatchId) -> bool {
        let d = &self.state.drafters[drafter.index()];
        let buckets = self.window_buckets(d);
        let mut with = buckets;
        with.insert(self.bucket(id));
        let rest = self.grad_accum - d.taken() - 1;
        let untaken = self.state.untaken_of_bucket.iter().enumerate();
        let mut others = untaken
            .filter(|&(bucket, &left)| left > 0 && !buckets.contains(BucketId::from_index(bucket)));
        with.count() + rest >= u32::from(self.policy.mix_window_min) || others.next().is_none()
    }
}
