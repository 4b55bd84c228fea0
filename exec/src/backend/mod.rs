//! What a backend provides: workers that run forwards, train and copy, over plain types.
//!
//! A backend makes one worker for each thread *on that thread*, so a worker may hold a device context that cannot move. Pieces of
//! work are answered by returning; the thread that called reports to the driver. A panic is caught at the thread's border: the worker
//! counts as lost and the run goes on with the others. An `Err` is told apart by [`WorkError`].

pub mod cpu;
pub mod cuda;
pub mod emulated;

use crate::checkpoint::Checkpoint;
use crate::clock::Clock;
use crate::error::WorkerId;
use crate::store::Place;
use shared::id::{DrafterId, MicrobatchId, StepId, TargetId};
use shared::time::Time;

/// A kind of machine that a run can be driven on.
pub trait Backend: Send + Sync + 'static {
    /// The hidden states of one microbatch.
    type Hidden: Send + Sync + 'static;

    /// Its name in records and reports.
    fn name(&self) -> &'static str;

    /// Seconds of the run in one second on the wall.
    fn speedup(&self) -> f64 {
        1.0
    }

    /// Makes target worker `id`; called once, on the thread that will run it.
    fn target(&self, id: TargetId) -> Result<Box<dyn TargetWorker<Self::Hidden>>, WorkError>;

    /// Makes drafter worker `id`; called once, on the thread that will run it.
    fn drafter(&self, id: DrafterId) -> Result<Box<dyn DrafterWorker<Self::Hidden>>, WorkError>;

    /// Makes whoever copies hidden states out of target `end`, or into drafter `end`; called once, on the thread that will copy.
    fn copier(&self, end: WorkerId) -> Result<Box<dyn Copier<Self::Hidden>>, WorkError>;
}

/// A backend whose drafters are trained for real, so that their masters can be saved.
pub trait Trainer {
    /// A checkpoint of the masters that `drafter` trains; `run` is the caller's own state as JSON.
    ///
    /// Call it where no optimizer step is under way, such as an observer at a step's record.
    fn checkpoint(&self, drafter: DrafterId, run: String) -> Result<Checkpoint, WorkError>;

    /// Optimizer steps in the masters that `drafter` trains, those before a resume included.
    fn steps(&self, drafter: DrafterId) -> u64;
}

/// Runs the target model.
pub trait TargetWorker<Hidden> {
    /// Runs the target over a microbatch.
    fn forward(&mut self, job: Job) -> Result<Hidden, WorkError>;
}

/// Moves hidden states.
pub trait Copier<Hidden> {
    /// A copy of `hidden` in the place the job names; the original is freed by the caller.
    fn copy(&mut self, job: CopyJob, hidden: &Hidden) -> Result<Hidden, WorkError>;
}

/// Trains the drafter model.
pub trait DrafterWorker<Hidden> {
    /// Forward and backward over a microbatch; adds its contribution to that of the step under way.
    fn train(&mut self, job: Job, step: StepId, hidden: &Hidden) -> Result<(), WorkError>;

    /// Sums the contributions of `members` in the order given, updates the weights once, gives them to all members and clears the
    /// contributions.
    ///
    /// One member leads: the others are idle until this returns, and start nothing for the next step before.
    fn apply(&mut self, job: ApplyJob, members: &[DrafterId]) -> Result<(), WorkError>;
}

/// A forward, or a forward and backward.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Of what.
    pub microbatch: MicrobatchId,
    /// When and by which clock it was ordered.
    pub ordered: Ordered,
}

/// A copy of hidden states.
#[derive(Clone, Copy, Debug)]
pub struct CopyJob {
    /// Whose.
    pub microbatch: MicrobatchId,
    /// Which leg of the way.
    pub leg: Leg,
    /// From where.
    pub from: Place,
    /// To where.
    pub to: Place,
    /// When and by which clock it was ordered.
    pub ordered: Ordered,
}

/// An optimizer step.
#[derive(Clone, Copy, Debug)]
pub struct ApplyJob {
    /// Which.
    pub step: StepId,
    /// When and by which clock it was ordered.
    pub ordered: Ordered,
}

/// The instant of an order, with the clock it was read from.
#[derive(Clone, Copy, Debug)]
pub struct Ordered {
    /// The instant.
    pub at: Time,
    /// The clock.
    pub clock: Clock,
}

/// The two legs of the way from target to drafter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leg {
    /// Out of the target's memory to where hidden states wait.
    Stage,
    /// From there into the drafter's memory.
    Fetch,
}

/// Why a piece of work has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// This piece failed and the worker is well; the core may order it again.
    #[error("{0}")]
    Transient(String),
    /// The run cannot go on.
    #[error("{0}")]
    Fatal(String),
    /// A loss, gradient or weight is not finite.
    #[error("{0}")]
    NonFinite(String),
}
