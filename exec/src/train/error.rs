//! What can stop training.

use crate::model::ModelError;

/// A microbatch or an optimizer step that could not be done. The weights are as before it.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The loss of a step is infinite or not a number.
    #[error("step {step}: the loss is {loss}; resume from a checkpoint with a lower learning rate")]
    LossNotFinite {
        /// The step, from 1.
        step: u64,
        /// The loss sum.
        loss: f64,
    },
    /// The gradient of a step is infinite or not a number.
    #[error(
        "step {step}: the gradient norm is {norm}; resume from a checkpoint with a lower learning \
         rate"
    )]
    GradientNotFinite {
        /// The step, from 1.
        step: u64,
        /// The norm before clipping.
        norm: f64,
    },
    /// No slot of a whole step is supervised.
    #[error(
        "step {step}: no slot bears loss; give every step samples with two loss tokens in a row"
    )]
    NothingSupervised {
        /// The step, from 1.
        step: u64,
    },
    /// Tensors that belong to other weights.
    #[error("{what}: tensor {name} {problem}")]
    Mismatch {
        /// Gradients or optimizer state.
        what: &'static str,
        /// The tensor.
        name: String,
        /// What is missing or different.
        problem: String,
    },
    /// A plan that does not fit its batch.
    #[error("block plan: row {row}: {problem}")]
    Plan {
        /// The row, from 0.
        row: usize,
        /// The limit and the value.
        problem: String,
    },
    /// The model refused its input or failed.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl From<candle_core::Error> for TrainError {
    fn from(error: candle_core::Error) -> Self {
        Self::Model(error.into())
    }
}
