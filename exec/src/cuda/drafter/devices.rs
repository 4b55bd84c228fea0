//! Sums and weights between drafters on different GPUs.

use super::{CudaDrafter, CudaError, DrafterError};
use crate::cuda::{Buffer, Gpu, Pool, Ptr, Way};
use shared::id::Bytes;
use std::sync::Arc;

/// Gradients that arrive at a time. (numbers)
const PIECE: usize = 16 << 20;

/// Most slots of a block.
const SLOTS_MAX: usize = 64;

/// Memory on the adding drafter's GPU that another's sums pass through.
#[derive(Debug)]
pub struct Landing {
    gradients: Buffer<f32>,
    loss: Buffer<f64>,
    counts: Buffer<u64>,
}

impl Landing {
    /// What [`Landing::new`] takes.
    pub fn bytes() -> Bytes {
        let parts = [4 * PIECE, 8, 8 * SLOTS_MAX].map(crate::cuda::piece_bytes);
        Bytes(parts.iter().sum::<usize>() as u64)
    }

    /// Takes the memory.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        let pool = Pool::new(gpu, Self::bytes(), "sums over devices")?;
        Ok(Self {
            gradients: pool.buffer(PIECE)?,
            loss: pool.buffer(1)?,
            counts: pool.buffer(SLOTS_MAX)?,
        })
    }
}

/// What the step under way has summed on a device.
#[derive(Debug, Clone, Copy)]
pub struct StepVectors {
    /// Gradients, not divided by anything.
    pub gradients: Ptr<f32>,
    /// Σ weight · cross entropy.
    pub loss: Ptr<f64>,
    /// Runs of right slots, then right slots.
    pub counts: Ptr<u64>,
}

impl CudaDrafter {
    /// The step's sums, for a sum over devices; gradients are zero where the step has none yet.
    ///
    /// # Errors
    /// Failures of the device.
    pub fn step_vectors(&mut self) -> Result<StepVectors, CudaError> {
        let state = &self.memory.state;
        if !self.sums.holds_gradients {
            self.stream.zero(state.gradients.ptr())?;
            self.sums.holds_gradients = true;
        }
        Ok(StepVectors {
            gradients: state.gradients.ptr(),
            loss: state.loss.ptr(),
            counts: state.counts.ptr(),
        })
    }

    /// Adds the host's part of what another drafter accumulated, whose vectors were added on the devices, and clears the other's step.
    ///
    /// # Errors
    /// Failures of the device.
    pub fn merge(&mut self, other: &mut Self) -> Result<(), CudaError> {
        self.sums.add(&other.sums);
        self.sums.holds_gradients |= other.sums.holds_gradients;
        other.clear_sums()
    }

    /// Adds what a drafter on another GPU accumulated, brought piece by piece along `way`, and clears the other's step. In a fixed order of
    /// calls the sum is the one that [`CudaDrafter::add_from`] gives on a single device, to the last bit.
    ///
    /// # Errors
    /// Another geometry, or failures of the devices.
    pub fn add_from_device(
        &mut self,
        other: &mut Self,
        way: &mut Way,
        landing: &Landing,
    ) -> Result<(), DrafterError> {
        self.check_shape(other)?;
        if other.sums.holds_gradients {
            let (mine, theirs) = (self.step_vectors()?, other.step_vectors()?);
            let len = mine.gradients.len();
            for start in (0..len).step_by(PIECE) {
                let piece = start..len.min(start + PIECE);
                let arrived = landing.gradients.ptr().at(0..piece.len());
                let from = theirs.gradients.at(piece.clone());
                way.carry((&other.stream, from), (&self.stream, arrived))?;
                self.ops.add_gradients(mine.gradients.at(piece), arrived)?;
            }
            let counts = landing.counts.ptr().at(0..mine.counts.len());
            let loss = landing.loss.ptr();
            way.carry((&other.stream, theirs.loss), (&self.stream, loss))?;
            way.carry((&other.stream, theirs.counts), (&self.stream, counts))?;
            self.ops
                .add_sums([mine.loss, loss], [mine.counts, counts])?;
        }
        Ok(self.merge(other)?)
    }

    /// Takes over the weights of a drafter on another GPU, which has just applied a step for both.
    ///
    /// # Errors
    /// Another geometry, or failures of the devices.
    pub fn take_weights_from_device(
        &mut self,
        other: &Self,
        way: &mut Way,
    ) -> Result<(), DrafterError> {
        self.check_shape(other)?;
        let (from, to) = (other.weight_vector(), self.weight_vector());
        way.carry((&other.stream, from), (&self.stream, to))?;
        Ok(self.weights_arrived(other)?)
    }

    /// The flat vector of the master weights.
    pub fn weight_vector(&self) -> Ptr<f32> {
        self.memory.state.weights.ptr()
    }

    /// Makes use of master weights that were copied here from `other`.
    ///
    /// # Errors
    /// Failures of the device.
    pub fn weights_arrived(&mut self, other: &Self) -> Result<(), CudaError> {
        self.ops.round(&self.vectors())?;
        self.step = other.step;
        Ok(())
    }

    pub(super) fn check_shape(&self, other: &Self) -> Result<(), CudaError> {
        match self.shape == other.shape {
            true => Ok(()),
            false => Err(CudaError::Shape(
                "two drafters of different geometry".to_owned(),
            )),
        }
    }
}
