//! What the core remembers. Small, comparable and hashable, so that all interleavings of a small run can be searched.

use super::line::Line;
use super::lives::Lives;
use crate::id::{BucketId, Bytes, DrafterId, MicrobatchId, StepId, TargetId};
use crate::plan::Microbatch;
use crate::time::Time;
use std::collections::BTreeSet;

/// Where a microbatch is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// No target has begun it, or it must be done again.
    Pending,
    /// A target computes it.
    Forwarding,
    /// Computed; its target holds the hidden states and waits for a slot.
    Held,
    /// On the way from the target to where it waits.
    Staging,
    /// Waiting for a drafter.
    Queued,
    /// On the way into the memory of the drafter that took it.
    Fetching,
    /// In the hands of the drafter that took it.
    Ready,
    /// Being trained on.
    Training,
    /// Trained on; its gradient waits for the optimizer step.
    Trained,
    /// Part of the weights.
    Committed,
    /// Given up after repeated failures; listed.
    Failed,
    /// Left undone by an orderly stop.
    Skipped,
}

impl Status {
    /// Whether no drafter has taken it yet, though one will.
    pub fn is_untaken(self) -> bool {
        self <= Self::Queued
    }

    /// Whether its hidden states exist somewhere, or are being made.
    pub fn is_alive(self) -> bool {
        (Self::Forwarding..=Self::Training).contains(&self)
    }
}

/// The slot of a microbatch's hidden states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// They have none.
    None,
    /// One that counts against the depths that all share.
    Shared,
    /// One that counts against this drafter's depth too, since the queue knows who will train on them.
    Of(DrafterId),
}

impl Slot {
    /// The drafter whose depth it counts against.
    pub fn drafter(self) -> Option<DrafterId> {
        match self {
            Self::Of(drafter) => Some(drafter),
            Self::None | Self::Shared => None,
        }
    }
}

/// One microbatch's course, beside what the core must know of it again and again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Life {
    /// Its hidden states, as planned. (bytes)
    pub bytes: Bytes,
    /// Its samples, as planned.
    pub samples: u32,
    /// Its bucket, as planned.
    pub bucket: BucketId,
    /// Where it is.
    pub status: Status,
    /// Failed attempts.
    pub attempts: u8,
    /// The slot it occupies.
    pub slot: Slot,
    /// The target in whose memory its hidden states lie, if they do.
    pub at_target: Option<TargetId>,
    /// Whether they lie in host memory.
    pub at_host: bool,
    /// The drafter in whose memory they lie, if they do.
    pub at_drafter: Option<DrafterId>,
    /// When it began to wait, as a running number; lower has waited longer.
    pub ticket: u32,
}

impl Life {
    pub(super) fn new(microbatch: &Microbatch) -> Self {
        Self {
            bytes: microbatch.bytes,
            samples: microbatch.sample_count(),
            bucket: microbatch.bucket,
            status: Status::Pending,
            attempts: 0,
            slot: Slot::None,
            at_target: None,
            at_host: false,
            at_drafter: None,
            ticket: 0,
        }
    }

    /// The drafter in whose memory or slot its hidden states are already.
    #[inline]
    pub(super) fn keeper(&self) -> Option<DrafterId> {
        self.at_drafter.or_else(|| self.slot.drafter())
    }

    /// Whether it occupies a slot.
    pub fn has_slot(&self) -> bool {
        self.slot != Slot::None
    }
}

/// Whether a worker is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Presence {
    /// At work or idle.
    Present,
    /// Lost; it may join again.
    Lost,
    /// Told to stop.
    Stopped,
}

/// What a target does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetTask {
    /// Nothing.
    Idle,
    /// A forward.
    Forward(MicrobatchId),
    /// It holds hidden states that have no slot.
    Hold(MicrobatchId),
    /// It copies hidden states out and can do nothing beside.
    Copy(MicrobatchId),
}

/// A target worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetState {
    /// Whether it is there.
    pub presence: Presence,
    /// What it does.
    pub task: TargetTask,
    /// Copies out of its memory under way beside its work.
    pub copies_out: u8,
    /// Under fixed round robin, how many of its own microbatches it has begun.
    pub begun: u32,
}

impl TargetState {
    /// What it holds without being able to send it off.
    pub fn held(&self) -> Option<MicrobatchId> {
        match self.task {
            TargetTask::Hold(id) => Some(id),
            TargetTask::Idle | TargetTask::Forward(_) | TargetTask::Copy(_) => None,
        }
    }
}

/// A drafter worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DrafterState {
    /// Whether it is there.
    pub presence: Presence,
    /// What it trains on.
    pub training: Option<MicrobatchId>,
    /// What it is fetching.
    pub fetching: Option<MicrobatchId>,
    /// What it holds ready, in training order.
    pub ready: Line<MicrobatchId>,
    /// Whether an optimizer step of its group is being applied.
    pub applying: bool,
    /// Whether it is listed as having room.
    pub listed: bool,
    /// What it has trained on in the step under way, in order.
    pub trained: Vec<MicrobatchId>,
    /// Optimizer steps it has applied on its own.
    pub own_steps: u32,
    /// Under a plan with fixed assignment, its next microbatch that it has not taken, or the end of what is in sight.
    pub cursor: u32,
}

impl DrafterState {
    /// Whether it is there.
    #[inline]
    pub fn is_present(&self) -> bool {
        self.presence == Presence::Present
    }

    /// Whether it computes.
    #[inline]
    pub fn is_working(&self) -> bool {
        self.training.is_some() || self.applying
    }

    /// What it has taken for the window it is taking for: what it trained, trains, holds and is fetching.
    pub fn window(&self) -> impl Iterator<Item = MicrobatchId> {
        let now = self.training.iter().chain(&self.fetching);
        self.trained
            .iter()
            .chain(self.ready.iter())
            .chain(now)
            .copied()
    }

    /// Microbatches in that window.
    #[inline]
    pub fn taken(&self) -> u32 {
        (self.trained.len() + self.held()) as u32 + u32::from(self.training.is_some())
    }

    /// Hidden states it holds or is fetching, beside those it trains on.
    #[inline]
    pub fn held(&self) -> usize {
        self.ready.len() + usize::from(self.fetching.is_some())
    }

    /// Hidden states are in its hands; it trains in the order in which they came, and under a plan in plan order.
    #[inline(always)]
    pub(super) fn make_ready(&mut self, id: MicrobatchId, by_plan: bool) {
        if by_plan {
            let at = self.ready.partition_point(|&earlier| earlier < id);
            self.ready.insert(at, id);
        } else {
            self.ready.push(id);
        }
    }

    /// Whether it has begun to train for a step that is not applied yet.
    pub fn has_begun_window(&self) -> bool {
        self.training.is_some() || self.applying || !self.trained.is_empty()
    }
}

/// A number of hidden states and their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Use {
    /// How many. (slots)
    pub count: u32,
    /// How large in all. (bytes)
    pub bytes: Bytes,
}

impl Use {
    /// With one more of so many bytes.
    #[inline]
    pub(super) fn with(self, bytes: Bytes) -> Self {
        Self {
            count: self.count + 1,
            bytes: self.bytes + bytes,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, bytes: Bytes) {
        *self = self.with(bytes);
    }

    #[inline]
    pub(super) fn sub(&mut self, bytes: Bytes) {
        self.count = self
            .count
            .checked_sub(1)
            .expect("what is given back was taken");
        self.bytes -= bytes;
    }
}

/// Hidden states by where they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HsUse {
    /// In slots, from grant to release.
    pub slots: Use,
    /// In existence, from the beginning of the forward to the end of the training, in slots or not.
    pub alive: Use,
    /// In slots, by bucket.
    pub by_bucket: Vec<Use>,
    /// In slots, by the drafter they are meant for, where the queue knows it.
    pub by_drafter: Vec<Use>,
    /// In each target's memory. (bytes)
    pub at_target: Vec<Bytes>,
    /// In host memory. (bytes)
    pub at_host: Bytes,
    /// In each drafter's memory. (bytes)
    pub at_drafter: Vec<Bytes>,
}

/// How far the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not begun.
    New,
    /// Under way.
    Running,
    /// A stop was asked for: the step under way is finished.
    Closing,
    /// Nothing new is begun; what is in flight comes home.
    Draining,
    /// All workers were told to stop.
    Finished,
}

/// What a [`Dispatch`](crate::policy::Dispatch) remembers between decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memo {
    /// A pointer of its own: round robin's next bucket.
    pub cursor: u32,
    /// Decisions taken so far: the number by which random ones are drawn.
    pub decisions: u64,
}

/// Everything the core remembers besides its inputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The latest event's time.
    pub now: Time,
    /// How far the run is.
    pub phase: Phase,
    /// Every microbatch's course.
    pub lives: Lives,
    /// Microbatches to begin out of turn: those that must be done again, and those that were put off. In plan order.
    pub again: BTreeSet<MicrobatchId>,
    /// Under shared input, the next microbatch that nobody has begun.
    pub next: u32,
    /// Target workers.
    pub targets: Vec<TargetState>,
    /// Idle targets, longest idle first.
    pub idle_targets: Line<TargetId>,
    /// Targets that hold hidden states without a slot, longest first.
    pub holding: Line<TargetId>,
    /// Hidden states that wait, by lane, in order of arrival.
    pub lanes: Vec<Line<MicrobatchId>>,
    /// Drafter workers.
    pub drafters: Vec<DrafterState>,
    /// Drafters with room for hidden states, longest first.
    pub idle_drafters: Line<DrafterId>,
    /// Hidden states in lanes.
    pub waiting: u32,
    /// Drafters that are there.
    pub drafters_present: u32,
    /// Drafters that train.
    pub drafters_training: u32,
    /// Drafters of which an optimizer step is being applied.
    pub drafters_applying: u32,
    /// Hidden states by where they are.
    pub hs: HsUse,
    /// Microbatches that no drafter has taken yet and one will.
    pub untaken: u32,
    /// The same by bucket.
    pub untaken_of_bucket: Vec<u32>,
    /// The same by the drafter that will take them as things stand; all zero unless there is a queue a drafter.
    pub untaken_of_drafter: Vec<u32>,
    /// Microbatches that are neither part of the weights nor given up.
    pub open: u32,
    /// Forwards, copies, trainings and optimizer steps under way.
    pub in_flight: u32,
    /// The optimizer step under way (all drafters as one).
    pub step: StepId,
    /// Microbatches of it that no drafter is still to take: taken, or, of a planned step, given up.
    pub step_taken: u32,
    /// Microbatches trained for it.
    pub step_trained: u32,
    /// Microbatches of it, if it is planned, that were given up.
    pub step_failed: u32,
    /// The policy's memory.
    pub memo: Memo,
    /// Whether the watermark holds targets back.
    pub paused: bool,
    /// Samples from the beginning of their forward to the end of their optimizer step. (samples)
    pub samples_in_flight: u32,
    /// Samples of past steps still counted in flight, oldest first; as many as the gate's lag.
    pub lagging: Line<u32>,
    /// The wake-up asked for.
    pub wake: Option<Time>,
    /// Whether the wake-up has just come, so that a pool that is polled is looked at now.
    pub is_awake: bool,
    /// Arrivals so far.
    pub tickets: u32,
}
