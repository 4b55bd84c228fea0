//! Losses, hits and the gradient of logits.

use half::bf16;

use super::{LOSS_THREADS, Ops};
use crate::cuda::{CudaError, Ptr};

/// One chunk of supervised slots.
#[derive(Debug, Clone, Copy)]
pub(in crate::cuda::drafter) struct Chunk {
    pub(in crate::cuda::drafter) targets: Ptr<u32>,
    pub(in crate::cuda::drafter) labels: Ptr<u32>,
    pub(in crate::cuda::drafter) weights: Ptr<f32>,
    pub(in crate::cuda::drafter) losses: Ptr<f32>,
    pub(in crate::cuda::drafter) rows: usize,
}

/// How a drafter is taught by the target's distribution.
#[derive(Debug, Clone, Copy)]
pub(in crate::cuda::drafter) struct Soft {
    /// Of both distributions.
    pub(in crate::cuda::drafter) temperature: f32,
    /// Share of the cross entropy with the data's tokens.
    pub(in crate::cuda::drafter) hard_share: f32,
}

impl Ops {
    /// Losses and hits of a chunk, and the gradient of its logits over them.
    pub(in crate::cuda::drafter) fn cross_entropy(
        &self,
        logits: Ptr<bf16>,
        c: &Chunk,
        hits: Ptr<u8>,
    ) -> Result<(), CudaError> {
        let pitch = self.s.logits_pitch();
        self.check_chunk(logits, c)?;
        let launch = self
            .cross_entropy
            .launch([c.rows, 1, 1], LOSS_THREADS)
            .ptr(logits)
            .int(pitch);
        let launch = launch
            .ptr(c.targets)
            .ptr(c.labels)
            .ptr(c.weights)
            .ptr(c.losses)
            .ptr(hits);
        // SAFETY: as declared in loss.cu; labels lie in the vocabulary and targets among the slots, as the plan was checked.
        unsafe { launch.on(&self.stream) }
    }

    /// Losses of a chunk of whole blocks after D-PACE, hits, and the gradient of its logits over them. `peaks` and `values` are worked with.
    pub(in crate::cuda::drafter) fn d_pace(
        &self,
        logits: Ptr<bf16>,
        c: &Chunk,
        hits: Ptr<u8>,
        [peaks, values]: [Ptr<f32>; 2],
        alpha: f32,
    ) -> Result<(), CudaError> {
        let pitch = self.s.logits_pitch();
        self.check_chunk(logits, c)?;
        peaks.check("peaks", 2 * c.rows)?;
        values.check("values", c.rows)?;
        let launch = self
            .entropies
            .launch([c.rows, 1, 1], LOSS_THREADS)
            .ptr(logits)
            .int(pitch)
            .ptr(c.targets)
            .ptr(c.labels)
            .ptr(c.weights)
            .ptr(c.losses)
            .ptr(hits)
            .ptr(peaks);
        // SAFETY: as declared in loss.cu; labels lie in the vocabulary and targets among the slots, as the plan was checked.
        unsafe { launch.on(&self.stream) }?;
        let launch = self
            .block_values
            .launch([c.rows.div_ceil(128), 1, 1], 128)
            .ptr(c.targets)
            .ptr(c.weights)
            .ptr(c.losses)
            .ptr(values)
            .int(c.rows)
            .int(self.s.slots)
            .float(alpha);
        // SAFETY: as declared in loss.cu.
        unsafe { launch.on(&self.stream) }?;
        let launch = self
            .entropy_gradients
            .launch([c.rows, 1, 1], LOSS_THREADS)
            .ptr(logits)
            .int(pitch)
            .ptr(c.labels)
            .ptr(values)
            .ptr(peaks);
        // SAFETY: as above.
        unsafe { launch.on(&self.stream) }
    }

    /// Losses of a chunk against the target's logits, hits, and the gradient of the drafter's logits over them.
    pub(in crate::cuda::drafter) fn distil(
        &self,
        logits: Ptr<bf16>,
        theirs: Ptr<bf16>,
        c: &Chunk,
        hits: Ptr<u8>,
        soft: Soft,
    ) -> Result<(), CudaError> {
        self.check_chunk(logits, c)?;
        self.check_chunk(theirs, c)?;
        let launch = self
            .distil
            .launch([c.rows, 1, 1], LOSS_THREADS)
            .ptr(logits)
            .ptr(theirs)
            .int(self.s.logits_pitch())
            .ptr(c.targets)
            .ptr(c.labels)
            .ptr(c.weights)
            .ptr(c.losses)
            .ptr(hits)
            .float(soft.temperature)
            .float(soft.hard_share);
        // SAFETY: as declared in loss.cu; labels lie in the vocabulary and targets among the slots, as the plan was checked.
        unsafe { launch.on(&self.stream) }
    }

    fn check_chunk(&self, logits: Ptr<bf16>, c: &Chunk) -> Result<(), CudaError> {
        logits.check("logits", c.rows * self.s.logits_pitch())?;
        c.targets.check("targets", c.rows)?;
        c.labels.check("labels", c.rows)?;
        c.weights.check("weights", c.rows)?;
        c.losses.check("losses", c.rows)
    }

    /// Adds losses to the step's, and the hits of all slots to its counts.
    pub(in crate::cuda::drafter) fn add_sums_of(
        &self,
        losses: Ptr<f32>,
        count: usize,
        loss: Ptr<f64>,
        hits: Ptr<u8>,
        blocks: usize,
        counts: Ptr<u64>,
    ) -> Result<(), CudaError> {
        losses.check("losses", count)?;
        hits.check("hits", blocks * self.s.slots)?;
        counts.check("counts", self.s.slots)?;
        let launch = self
            .add_losses
            .launch([1, 1, 1], 256)
            .ptr(losses)
            .int(count)
            .ptr(loss);
        // SAFETY: as declared in loss.cu.
        unsafe { launch.on(&self.stream) }?;
        let launch = self
            .add_hits
            .launch([blocks.div_ceil(128), 1, 1], 128)
            .ptr(hits);
        // SAFETY: as declared in loss.cu.
        unsafe {
            launch
                .int(blocks)
                .int(self.s.slots)
                .ptr(counts)
                .on(&self.stream)
        }
    }
}
