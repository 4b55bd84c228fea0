//! What is legal: caps, windows, steps. Policies choose within these; nothing here prefers anything.

use super::{Core, DrafterState, Phase, Presence, Status};
use crate::id::{Bytes, DrafterId, MicrobatchId};
use crate::plan::Plan;
use crate::policy::{Assignment, Barrier, Dispatch, Enforce, Policy, Queue, View};

/// The caps in force, resolved once: a missing cap is the largest number.
#[derive(Clone, Debug)]
pub(super) struct Caps {
    total: (u32, Bytes),
    bucket: (u32, Bytes),
    drafter: (u32, Bytes),
}

impl Caps {
    pub(super) fn of(policy: &Policy, dispatch: &dyn Dispatch, plan: &Plan) -> Self {
        let slots = |cap: Option<u32>| cap.unwrap_or(u32::MAX);
        let bytes = |cap: Option<Bytes>| cap.unwrap_or(Bytes(u64::MAX));
        let mut total = (slots(policy.depth_total), bytes(policy.bytes_total));
        let drafter = (
            slots(policy.depth_per_drafter),
            bytes(policy.bytes_per_drafter),
        );
        let knows_drafter = match dispatch.queue() {
            Queue::PerDrafter => true,
            Queue::Composed => {
                !plan.drafter_of.is_empty() && policy.assignment == Assignment::Fixed
            }
            Queue::Fifo | Queue::Bucketed | Queue::Dealt => false,
        };
        if !knows_drafter {
            // One shared queue of so many a drafter.
            total.0 = total
                .0
                .min(drafter.0.saturating_mul(policy.drafters.into()));
            total.1 = total
                .1
                .min(Bytes(drafter.1.0.saturating_mul(policy.drafters.into())));
        }
        let bucket = (
            slots(policy.depth_per_bucket),
            bytes(policy.bytes_per_bucket),
        );
        Self {
            total,
            bucket,
            drafter,
        }
    }

    /// Slots and bytes that may be in use in all.
    pub(super) fn total(&self) -> (u32, Bytes) {
        self.total
    }

    /// Slots and bytes that may be in use for one bucket.
    pub(super) fn bucket(&self) -> (u32, Bytes) {
        self.bucket
    }

    /// Slots and bytes that may be in use for one drafter.
    pub(super) fn drafter(&self) -> (u32, Bytes) {
        self.drafter
    }
}

impl Core {
    /// Whether a slot for these hidden states would stay under every cap.
    pub(super) fn fits(&self, id: MicrobatchId) -> bool {
        let microbatch = self.plan.microbatch(id);
        let hs = &self.state.hs;
        let room = |used: super::Use, cap: (u32, Bytes)| {
            used.count < cap.0 && used.bytes.0.saturating_add(microbatch.bytes.0) <= cap.1.0
        };
        room(hs.slots, self.caps.total)
            && room(hs.by_bucket[microbatch.bucket.index()], self.caps.bucket)
            && (self.caps.drafter.0 == u32::MAX && self.caps.drafter.1.0 == u64::MAX
                || self
                    .dispatch
                    .consignee(id, &self.view())
                    .is_none_or(|d| room(hs.by_drafter[d.index()], self.caps.drafter)))
    }

    /// Whether a drafter has room for one more, whatever it is.
    pub(super) fn has_room(&self, drafter: DrafterId) -> bool {
        let d = &self.state.drafters[drafter.index()];
        let busy = d.training.is_some() || d.applying || self.share_is_done(drafter);
        let prefetch = usize::from(self.policy.prefetch);
        let limit = if busy { prefetch } else { prefetch.max(1) };
        d.is_present() && d.fetching.is_none() && d.held() < limit
    }

    /// Whether a drafter has nothing left to take or train in the step under way.
    pub(super) fn share_is_done(&self, drafter: DrafterId) -> bool {
        let d = &self.state.drafters[drafter.index()];
        let view = self.view();
        if self.plan.is_composed() {
            let Some(step) = self.plan.steps.get(self.state.step.index()) else {
                return true;
            };
            return match self.policy.assignment {
                Assignment::Shared => {
                    self.state.step_taken >= step.microbatches.len() as u32
                        && !d
                            .ready
                            .iter()
                            .any(|m| self.plan.step_of[m.index()] == self.state.step)
                }
                Assignment::Fixed => !d
                    .ready
                    .front()
                    .or(d.fetching.as_ref())
                    .copied()
                    .or_else(|| view.next_of_plan(drafter))
                    .is_some_and(|m| self.plan.step_of[m.index()] == self.state.step),
            };
        }
        match self.policy.assignment {
            Assignment::Fixed => {
                let trained = d.trained.len() as u32 + u32::from(d.training.is_some());
                trained >= self.grad_accum || d.held() == 0 && !view.could_come(drafter)
            }
            Assignment::Shared => {
                self.state.step_taken >= view.window() && d.held() == 0
                    || d.held() == 0 && !view.could_come(drafter)
            }
        }
    }

    /// Whether the step under way has all the microbatches it will get, all trained.
    pub(super) fn step_is_complete(&self) -> bool {
        let drafters = || self.present_drafters();
        if self
            .state
            .drafters
            .iter()
            .any(|d| d.training.is_some() || d.applying)
        {
            return false;
        }
        if let Some(step) = self.plan.steps.get(self.state.step.index()) {
            return step.microbatches.clone().all(|m| {
                matches!(
                    self.state.lives[m as usize].status,
                    Status::Trained | Status::Failed
                )
            });
        }
        match self.policy.assignment {
            Assignment::Fixed => drafters().all(|d| self.share_is_done(d)),
            Assignment::Shared => {
                self.state.step_trained >= self.view().window()
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

impl View<'_> {
    /// The drafter that stands in for `planned`: itself while it is there, else the next one that is.
    pub fn heir(&self, planned: DrafterId) -> Option<DrafterId> {
        let drafters = &self.state.drafters;
        (0..drafters.len())
            .map(|i| (planned.index() + i) % drafters.len())
            .find(|&d| drafters[d].presence != Presence::Lost)
            .map(DrafterId::from_index)
    }

    /// Under a composed plan with fixed assignment, the first microbatch of this step or the next that is `drafter`'s and untaken.
    pub fn next_of_plan(&self, drafter: DrafterId) -> Option<MicrobatchId> {
        let last = self.state.step.index() + 1;
        let end = self
            .plan
            .steps
            .get(last)
            .or_else(|| self.plan.steps.last())?
            .microbatches
            .end;
        (self.state.drafters[drafter.index()].cursor..end)
            .map(MicrobatchId)
            .find(|&id| {
                self.heir(self.plan.drafter_of[id.index()]) == Some(drafter)
                    && self.status(id).is_untaken()
            })
    }

    /// Whether hidden states may still reach `drafter`: some are waiting, in the making or to be made.
    pub fn could_come(&self, drafter: DrafterId) -> bool {
        let lanes = &self.state.lanes;
        match self.policy.queue {
            Queue::PerDrafter => (0..self.state.drafters.len()).any(|planned| {
                self.state.untaken_of_drafter[planned] > 0
                    && self.heir(DrafterId::from_index(planned)) == Some(drafter)
            }),
            Queue::Dealt => {
                let inboxes: usize = lanes.iter().skip(1).map(|l| l.len()).sum();
                !lanes[1 + drafter.index()].is_empty() || self.state.untaken as usize > inboxes
            }
            Queue::Fifo | Queue::Bucketed | Queue::Composed => self.state.untaken > 0,
        }
    }

    /// Whether every microbatch that will wait in the pool is there.
    pub fn all_arrived(&self) -> bool {
        let waiting: usize = self.state.lanes.iter().map(|l| l.len()).sum();
        self.state.untaken as usize == waiting
    }
}

/// Whether the rules allow `drafter` to take a waiting microbatch now: its window and step have room, and the mixing rule, where it
/// acts on taking, stays within reach.
pub fn may_take(view: &View<'_>, drafter: DrafterId, id: MicrobatchId) -> bool {
    let d = &view.state.drafters[drafter.index()];
    let closing = view.state.phase == Phase::Closing;
    if view.plan.is_composed() {
        let step = view.plan.step_of[id.index()];
        let ahead = step > view.state.step;
        let all_taken = || {
            let now = &view.plan.steps[view.state.step.index()].microbatches;
            view.state.step_taken >= now.len() as u32
        };
        return !ahead
            || !closing
                && view.policy.prefetch > 0
                && step.0 == view.state.step.0 + 1
                && (view.policy.assignment == Assignment::Fixed || all_taken());
    }
    let within = match view.policy.assignment {
        Assignment::Fixed => d.taken < view.grad_accum,
        Assignment::Shared => view.state.step_taken < view.window(),
    };
    if closing && (!within || view.policy.barrier == Barrier::None && d.taken == 0) {
        return false;
    }
    let rule_acts = view.policy.mix_enforce == Enforce::Take && view.policy.mix_window_min > 1;
    (within || view.policy.prefetch > 0 && !rule_acts)
        && (!rule_acts || keeps_mixing_within_reach(view, d, id))
}

/// After taking `id`, the rest of the window can still bring the distinct buckets that the rule asks for. When no work outside the
/// window's buckets is left, the rule asks for nothing more.
fn keeps_mixing_within_reach(view: &View<'_>, d: &DrafterState, id: MicrobatchId) -> bool {
    let with = d.window_buckets | 1 << view.plan.microbatch(id).bucket.0;
    let rest = view.grad_accum - d.taken - 1;
    let others_have_work = view
        .state
        .untaken_of_bucket
        .iter()
        .enumerate()
        .any(|(bucket, &left)| left > 0 && d.window_buckets >> bucket & 1 == 0);
    with.count_ones() + rest >= u32::from(view.policy.mix_window_min) || !others_have_work
}
