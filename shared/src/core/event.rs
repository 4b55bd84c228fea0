//! Facts that happened, in the past tense. A driver reports them; the core believes them.

use crate::id::{DrafterId, MicrobatchId, StepId, TargetId};
use serde::{Deserialize, Serialize};

/// How a piece of work ended. Every started piece ends exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// As asked.
    Done,
    /// Without a usable result; whoever worked on it is still there unless a `…Lost` event follows.
    Failed,
}

/// Which drafters an optimizer step concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Group {
    /// All of them, as one.
    All,
    /// One, on its own.
    One(DrafterId),
}

/// A fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Event {
    /// The run began; all workers that the policy names are there and idle.
    Started,
    /// A target forward ended.
    ForwardEnded {
        /// Who ran it.
        target: TargetId,
        /// On what.
        microbatch: MicrobatchId,
        /// How.
        outcome: Outcome,
    },
    /// Hidden states have reached the place where they wait, and left the target's memory.
    StageEnded {
        /// Whose hidden states.
        microbatch: MicrobatchId,
        /// How.
        outcome: Outcome,
    },
    /// Hidden states have reached the drafter that took them.
    FetchEnded {
        /// Who took them.
        drafter: DrafterId,
        /// Whose hidden states.
        microbatch: MicrobatchId,
        /// How.
        outcome: Outcome,
    },
    /// A drafter's forward and backward over one microbatch ended; its gradient is accumulated.
    TrainEnded {
        /// Who ran it.
        drafter: DrafterId,
        /// On what.
        microbatch: MicrobatchId,
        /// How.
        outcome: Outcome,
    },
    /// An optimizer step was applied to the weights of its group.
    StepApplied {
        /// Which step.
        step: StepId,
        /// To whom.
        group: Group,
    },
    /// The instant asked for by [`Action::Wake`](super::Action::Wake) has come.
    WakeDue,
    /// A target worker is there, idle, that was not before.
    TargetJoined(TargetId),
    /// A target worker is gone, with what lay in its memory. It gets no new work; its forward and the copies from its memory that were
    /// under way are reported as failed after this.
    TargetLost(TargetId),
    /// A drafter worker is there, idle, that was not before.
    DrafterJoined(DrafterId),
    /// A drafter worker is gone, with the gradients it had accumulated. It gets no new work; its training and the copies to its memory
    /// that were under way are reported as failed after this. An optimizer step under way still ends for all.
    DrafterLost(DrafterId),
    /// The user asked for an orderly stop: the optimizer steps on which training has begun are finished, no other is. Hidden states that
    /// turn out not to be needed for them are discarded.
    StopAsked,
}
