//! The optimizer step, and sums over drafters.

use half::bf16;

use super::{Ops, PARTIALS};
use crate::cuda::{CudaError, Ptr};

/// What AdamW multiplies with in one step.
#[derive(Debug, Clone, Copy)]
pub(in crate::cuda::drafter) struct Rates {
    /// beta1, beta2, eps, decay, stride, spread.
    pub(in crate::cuda::drafter) factors: [f32; 6],
    pub(in crate::cuda::drafter) weight_sum: f64,
    pub(in crate::cuda::drafter) norm_max: f64,
}

/// The flat vectors of weights and moments.
#[derive(Debug, Clone, Copy)]
pub(in crate::cuda::drafter) struct Vectors {
    pub(in crate::cuda::drafter) weights: Ptr<f32>,
    pub(in crate::cuda::drafter) first: Ptr<f32>,
    pub(in crate::cuda::drafter) second: Ptr<f32>,
    pub(in crate::cuda::drafter) gradients: Ptr<f32>,
    pub(in crate::cuda::drafter) narrow: Ptr<bf16>,
}

impl Ops {
    /// The square of the gradient's norm, then one step of AdamW. `squares` gets the former.
    pub(in crate::cuda::drafter) fn step(
        &self,
        v: &Vectors,
        parts: Ptr<f64>,
        squares: Ptr<f64>,
        loss: Ptr<f64>,
        r: &Rates,
    ) -> Result<(), CudaError> {
        let fours = (v.weights.len() / 4) as u64;
        let launch = self
            .square_sum
            .launch([parts.len(), 1, 1], 256)
            .ptr(v.gradients)
            .long(fours)
            .ptr(parts);
        // SAFETY: as declared in optimizer.cu; the vectors are equally long, a multiple of four.
        unsafe { launch.on(&self.stream) }?;
        let launch = self
            .add_squares
            .launch([1, 1, 1], 1)
            .ptr(parts)
            .int(parts.len())
            .ptr(squares);
        // SAFETY: as declared in optimizer.cu.
        unsafe { launch.on(&self.stream) }?;
        let launch = self
            .adamw
            .launch([8 * PARTIALS, 1, 1], 256)
            .ptr(v.weights)
            .ptr(v.first)
            .ptr(v.second)
            .ptr(v.gradients);
        let launch = launch.ptr(v.narrow).long(fours).ptr(squares).ptr(loss);
        let launch = r
            .factors
            .into_iter()
            .fold(launch, |launch, factor| launch.float(factor));
        let launch = launch
            .long(r.weight_sum.to_bits())
            .long(r.norm_max.to_bits());
        // SAFETY: as declared in optimizer.cu.
        unsafe { launch.on(&self.stream) }
    }

    /// Rounds all weights.
    pub(in crate::cuda::drafter) fn round(&self, v: &Vectors) -> Result<(), CudaError> {
        v.narrow.check("rounded weights", v.weights.len())?;
        let fours = (v.weights.len() / 4) as u64;
        let launch = self
            .round_weights
            .launch([8 * PARTIALS, 1, 1], 256)
            .ptr(v.weights)
            .ptr(v.narrow);
        // SAFETY: as declared in optimizer.cu.
        unsafe { launch.long(fours).on(&self.stream) }
    }

    /// Adds another drafter's gradients, loss and counts.
    pub(in crate::cuda::drafter) fn add(
        &self,
        sum: Ptr<f32>,
        other: Ptr<f32>,
        loss: [Ptr<f64>; 2],
        counts: [Ptr<u64>; 2],
    ) -> Result<(), CudaError> {
        self.add_gradients(sum, other)?;
        self.add_sums(loss, counts)
    }

    /// Adds gradients of the same weights; both are whole groups of four.
    pub(in crate::cuda::drafter) fn add_gradients(
        &self,
        sum: Ptr<f32>,
        other: Ptr<f32>,
    ) -> Result<(), CudaError> {
        other.check("gradients", sum.len())?;
        let fours = (sum.len() / 4) as u64;
        let launch = self
            .add_to
            .launch([8 * PARTIALS, 1, 1], 256)
            .ptr(sum)
            .ptr(other)
            .long(fours);
        // SAFETY: as declared in optimizer.cu.
        unsafe { launch.on(&self.stream) }
    }

    /// Adds loss and counts.
    pub(in crate::cuda::drafter) fn add_sums(
        &self,
        loss: [Ptr<f64>; 2],
        counts: [Ptr<u64>; 2],
    ) -> Result<(), CudaError> {
        let launch = self
            .add_sums
            .launch([1, 1, 1], 64)
            .ptr(loss[0])
            .ptr(loss[1])
            .ptr(counts[0])
            .ptr(counts[1]);
        // SAFETY: as declared in optimizer.cu; blocks have at most 64 slots.
        unsafe { launch.int(self.s.slots).on(&self.stream) }
    }
}
