//! The trait of a dispatch discipline, what it may see, and the registry of all of them.

use super::{Policy, Queue, bucketed, composed, dealt, fifo, per_drafter};
use crate::core::{Memo, State, Status};
use crate::draw::{Seed, Stream};
use crate::id::{BucketId, DrafterId, MicrobatchId};
use crate::plan::Plan;

/// How hidden states wait and who takes which. It prefers; the core has the last word on what is legal.
///
/// Implementations hold no state of their own: what they must remember is a [`Memo`], which the core keeps. Asking changes nothing.
pub trait Dispatch {
    /// The number of lanes in which hidden states wait.
    fn lanes(&self, plan: &Plan, policy: &Policy) -> usize;

    /// The lane that a microbatch joins on arrival.
    fn lane(&self, microbatch: MicrobatchId, view: &View<'_>) -> usize;

    /// The drafter that will train on a microbatch, when the discipline knows it before one is taken.
    fn consignee(&self, _microbatch: MicrobatchId, _view: &View<'_>) -> Option<DrafterId> {
        None
    }

    /// The waiting microbatch that `drafter` should take next, among those that [`View::may_take`] allows.
    fn pick(&self, drafter: DrafterId, view: &View<'_>) -> Option<MicrobatchId>;

    /// What to remember once `microbatch` was taken.
    fn taken(&self, _microbatch: MicrobatchId, view: &View<'_>) -> Memo {
        view.memo()
    }

    /// The drafters to whose lanes, those after lane 0, the heads of lane 0 should be dealt, one each.
    fn deal(&self, _view: &View<'_>) -> Vec<DrafterId> {
        Vec::new()
    }
}

/// The registry of all disciplines: asks the one that a choice in a policy file names. A new one is a file in this folder and a line here.
macro_rules! ask {
    ($queue:expr, $question:ident($($argument:expr),*)) => {
        match $queue {
            Queue::Fifo => fifo::Fifo.$question($($argument),*),
            Queue::PerDrafter => per_drafter::PerDrafter.$question($($argument),*),
            Queue::Bucketed => bucketed::Bucketed.$question($($argument),*),
            Queue::Composed => composed::Composed.$question($($argument),*),
            Queue::Dealt => dealt::Dealt.$question($($argument),*),
        }
    };
}

/// A choice stands for the discipline that it names.
impl Dispatch for Queue {
    fn lanes(&self, plan: &Plan, policy: &Policy) -> usize {
        ask!(self, lanes(plan, policy))
    }

    #[inline]
    fn lane(&self, microbatch: MicrobatchId, view: &View<'_>) -> usize {
        ask!(self, lane(microbatch, view))
    }

    #[inline]
    fn consignee(&self, microbatch: MicrobatchId, view: &View<'_>) -> Option<DrafterId> {
        ask!(self, consignee(microbatch, view))
    }

    #[inline]
    fn pick(&self, drafter: DrafterId, view: &View<'_>) -> Option<MicrobatchId> {
        ask!(self, pick(drafter, view))
    }

    #[inline]
    fn taken(&self, microbatch: MicrobatchId, view: &View<'_>) -> Memo {
        ask!(self, taken(microbatch, view))
    }

    fn deal(&self, view: &View<'_>) -> Vec<DrafterId> {
        ask!(self, deal(view))
    }
}

/// What a discipline may see: everything that has happened, nothing that will.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The work.
    pub plan: &'a Plan,
    /// The choices.
    pub policy: &'a Policy,
    /// What happened so far.
    pub state: &'a State,
    /// Microbatches a drafter accumulates in one optimizer step.
    pub grad_accum: u32,
    /// Decides random choices.
    pub seed: Seed,
}

impl View<'_> {
    /// What the discipline asked to remember last.
    pub fn memo(&self) -> Memo {
        self.state.memo
    }

    /// A random word for choice `k` of the present decision.
    pub fn draw(&self, k: u32) -> u64 {
        self.seed.draw(
            Stream::Decision,
            (self.state.memo.decisions << 16) | u64::from(k),
        )
    }

    /// Where a microbatch is on its way.
    pub fn status(&self, microbatch: MicrobatchId) -> Status {
        self.state.lives[microbatch.index()].status
    }

    /// The bucket of a microbatch.
    pub fn bucket(&self, microbatch: MicrobatchId) -> BucketId {
        self.state.lives[microbatch.index()].bucket
    }

    /// The head of a lane.
    pub fn head(&self, lane: usize) -> Option<MicrobatchId> {
        self.state.lanes[lane].first().copied()
    }

    /// Microbatches of one optimizer step over all drafters that are there.
    pub fn window(&self) -> u32 {
        self.grad_accum * self.drafters_present()
    }

    /// Drafters that are there.
    pub fn drafters_present(&self) -> u32 {
        self.state.drafters_present
    }

    /// Whether the rules allow `drafter` to take a waiting microbatch now.
    pub fn may_take(&self, drafter: DrafterId, microbatch: MicrobatchId) -> bool {
        crate::core::may_take(self, drafter, microbatch)
    }
}
