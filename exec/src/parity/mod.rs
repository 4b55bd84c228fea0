//! One optimizer step, and two more, against numbers that an independent PyTorch implementation
//! computed.
//!
//! A [`Case`] is a folder: a tiny target and drafter, two microbatches, and what every quantity must
//! be. A `Subject` is whatever trains: `compare` asks it for everything that is recorded and
//! measures how far it is off. The same body serves every backend; only the [`Tolerances`] differ.

mod case;
mod compare;
mod cpu;
mod cuda;
mod finding;
#[cfg(test)]
mod mistakes;

pub use case::{Case, Microbatch};
pub use compare::compare;
pub use cpu::CpuSubject;
pub use cuda::CudaSubject;
pub use finding::{Comparison, Finding, Kind, Tolerances};

use crate::cuda::CudaError;
use crate::cuda::drafter::DrafterError;
use crate::model::{HiddenStates, ModelError, PaddedBatch, Tensors};
use crate::train::{BlockPlan, Contribution, StepReport, TrainError};
use candle_core::Tensor;

/// What is compared: models and an optimizer on some device, loaded from the case's folders.
///
/// All tensors that it gives are f32 or f64 on the host.
pub trait Subject {
    /// The blocks it would train on: those of the case, unless something is to be tried.
    ///
    /// # Errors
    /// Anchors that do not fit.
    fn plan(&mut self, case: &Case, microbatch: &Microbatch) -> Result<BlockPlan, ParityError> {
        Ok(BlockPlan::new(
            &microbatch.batch,
            &microbatch.anchors,
            &case.blocks,
        )?)
    }

    /// The target's hidden states [B, S, K·H], the last one with them [B, S, H].
    ///
    /// # Errors
    /// What the models or the device refuse; the same below.
    fn states(&mut self, batch: &PaddedBatch) -> Result<HiddenStates, ParityError>;

    /// Which slots it gives outputs of `[B·A·T]`: all, unless it leaves out what adds nothing.
    fn computed_slots(&self, plan: &BlockPlan) -> Vec<bool> {
        vec![true; plan.weights().len()]
    }

    /// The drafter's output [B, A, T, H] and logits [B, A, T, V], with the weights as they are.
    ///
    /// # Errors
    /// See above.
    fn outputs(
        &mut self,
        batch: &PaddedBatch,
        plan: &BlockPlan,
    ) -> Result<[Tensor; 2], ParityError>;

    /// The sums of one microbatch, with the weights as they are.
    ///
    /// # Errors
    /// See above.
    fn contribution(
        &mut self,
        batch: &PaddedBatch,
        plan: &BlockPlan,
    ) -> Result<Contribution, ParityError>;

    /// Applies one optimizer step over all microbatches.
    ///
    /// # Errors
    /// See above.
    fn step(&mut self, work: &[(PaddedBatch, BlockPlan)]) -> Result<StepReport, ParityError>;

    /// The master weights.
    ///
    /// # Errors
    /// See above.
    fn weights(&mut self) -> Result<Tensors, ParityError>;
}

/// Why a comparison could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ParityError {
    /// A file of the case is not what it should be.
    #[error("{path}: {problem}; write the case anew")]
    Case {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The subject failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The GPU refused.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl From<DrafterError> for ParityError {
    fn from(error: DrafterError) -> Self {
        match error {
            DrafterError::Cuda(error) => Self::Cuda(error),
            DrafterError::Train(error) => Self::Train(error),
        }
    }
}

impl From<ModelError> for ParityError {
    fn from(error: ModelError) -> Self {
        Self::Train(error.into())
    }
}

impl From<candle_core::Error> for ParityError {
    fn from(error: candle_core::Error) -> Self {
        Self::Train(error.into())
    }
}
