//! Orders, in the imperative. The core gives them; a driver carries them out and reports how each ended.

use super::event::Group;
use crate::id::{DrafterId, MicrobatchId, StepId, TargetId};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Run the target over a microbatch and keep its hidden states in the target's memory.
    /// Ends with [`Event::ForwardEnded`](super::Event::ForwardEnded).
    Forward {
        /// Who.
        target: TargetId,
        /// What.
        microbatch: MicrobatchId,
    },
    /// A slot is granted to hidden states that a target was holding. Nothing moves by this; a `Stage` follows where something must.
    Admit {
        /// Whose slot.
        microbatch: MicrobatchId,
    },
    /// Move hidden states from the target's memory to where they wait (the policy's placement; with placement `drafter`, the memory of
    /// `drafter`). Ends with [`Event::StageEnded`](super::Event::StageEnded).
    Stage {
        /// Where they are.
        target: TargetId,
        /// Whose hidden states.
        microbatch: MicrobatchId,
        /// Where they go, when they wait with a drafter; `None` means the host.
        drafter: Option<DrafterId>,
    },
    /// Move hidden states from where they wait into a drafter's own memory.
    /// Ends with [`Event::FetchEnded`](super::Event::FetchEnded).
    Fetch {
        /// Who takes them.
        drafter: DrafterId,
        /// Whose hidden states.
        microbatch: MicrobatchId,
        /// The target whose memory they wait in; `None` means the host.
        target: Option<TargetId>,
    },
    /// Run the drafter's forward and backward over a microbatch, add its gradient to the step's, then free its hidden states.
    /// Ends with [`Event::TrainEnded`](super::Event::TrainEnded).
    Train {
        /// Who.
        drafter: DrafterId,
        /// What.
        microbatch: MicrobatchId,
        /// For which optimizer step.
        step: StepId,
    },
    /// Sum the gradients of the group in drafter order, update its weights, clear the gradients.
    /// Ends with [`Event::StepApplied`](super::Event::StepApplied).
    Apply {
        /// Which step.
        step: StepId,
        /// Whose weights.
        group: Group,
    },
    /// Free hidden states that nobody will train on.
    Discard {
        /// Whose.
        microbatch: MicrobatchId,
    },
    /// Report [`Event::WakeDue`](super::Event::WakeDue) at this instant.
    Wake {
        /// When.
        at: Time,
    },
    /// There is no more work for this target. Sent once.
    StopTarget {
        /// Who.
        target: TargetId,
    },
    /// There is no more work for this drafter. Sent once.
    StopDrafter {
        /// Who.
        drafter: DrafterId,
    },
}

/// The orders that one event caused, in order. A driver reuses one buffer for a whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    list: Vec<Action>,
}

impl Actions {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// The orders.
    pub fn as_slice(&self) -> &[Action] {
        &self.list
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets them, keeping the memory. The driver does this after it has carried out or recorded all of them.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    pub(super) fn push(&mut self, action: Action) {
        self.list.push(action);
    }
}
