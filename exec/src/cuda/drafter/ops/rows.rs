//! Rows by index, rows of the first layer, and the feed-forward product.

use half::bf16;

use super::{Ops, PARTIALS};
use crate::cuda::{CudaError, Kernel, Ptr};

impl Ops {
    /// `y[i]` = `x[from[i]]` for rows of `width`.
    pub(in crate::cuda::drafter) fn gather(
        &self,
        x: Ptr<bf16>,
        from: Ptr<u32>,
        y: Ptr<bf16>,
        rows: usize,
        width: usize,
    ) -> Result<(), CudaError> {
        y.check("gathered rows", rows * width)?;
        from.check("row numbers", rows)?;
        let launch = self
            .gather_rows
            .launch([rows, 1, 1], 256)
            .ptr(x)
            .ptr(from)
            .ptr(y)
            .int(width);
        // SAFETY: as declared in rows.cu; the plan's numbers name rows of x.
        unsafe { launch.on(&self.stream) }
    }

    /// `y[to[i]]` = `x[i]`.
    pub(in crate::cuda::drafter) fn scatter(
        &self,
        x: Ptr<bf16>,
        to: Ptr<u32>,
        y: Ptr<bf16>,
        rows: usize,
        width: usize,
    ) -> Result<(), CudaError> {
        x.check("rows to scatter", rows * width)?;
        to.check("row numbers", rows)?;
        let launch = self
            .scatter_rows
            .launch([rows, 1, 1], 256)
            .ptr(x)
            .ptr(to)
            .ptr(y)
            .int(width);
        // SAFETY: as declared in rows.cu; the plan's numbers name rows of y.
        unsafe { launch.on(&self.stream) }
    }

    /// Rows of the distinct inputs of the first layer, from those of all slots: anchors' rows (`first_slots`) as they are, those of masks
    /// summed.
    pub(in crate::cuda::drafter) fn merge_masked(
        &self,
        x: Ptr<bf16>,
        first_slots: Ptr<u32>,
        partial: Ptr<f32>,
        y: Ptr<bf16>,
        blocks: usize,
        width: usize,
    ) -> Result<(), CudaError> {
        let slots = self.s.slots;
        x.check("slots", blocks * slots * width)?;
        y.check("distinct rows", (blocks + 1) * width)?;
        let chunks = PARTIALS.min(blocks);
        partial.check("partial sums", chunks * width)?;
        self.gather(x, first_slots, y, blocks, width)?;
        let across = (width / 8).div_ceil(128);
        let launch = self
            .sum_masked_slots
            .launch([across, chunks, 1], 128)
            .ptr(x)
            .ptr(partial);
        // SAFETY: as declared in rows.cu.
        unsafe { launch.int(blocks).int(slots).int(width).on(&self.stream) }?;
        let last = y.at(blocks * width..(blocks + 1) * width);
        let launch = self
            .round_rows
            .launch([width.div_ceil(32), 1, 1], 256)
            .ptr(partial)
            .ptr(last);
        // SAFETY: as declared in rows.cu.
        unsafe { launch.int(chunks).int(width).on(&self.stream) }
    }

    /// inner = silu(gate) · up.
    pub(in crate::cuda::drafter) fn swiglu(
        &self,
        gate_up: Ptr<bf16>,
        inner: Ptr<bf16>,
        rows: usize,
    ) -> Result<(), CudaError> {
        self.feed_forward(&self.swiglu, gate_up, inner, rows)
    }

    /// The derivative, in place: see feed_forward.cu.
    pub(in crate::cuda::drafter) fn swiglu_backward(
        &self,
        gate_up: Ptr<bf16>,
        inner: Ptr<bf16>,
        rows: usize,
    ) -> Result<(), CudaError> {
        self.feed_forward(&self.swiglu_backward, gate_up, inner, rows)
    }

    fn feed_forward(
        &self,
        kernel: &Kernel,
        gate_up: Ptr<bf16>,
        inner: Ptr<bf16>,
        rows: usize,
    ) -> Result<(), CudaError> {
        let width = self.s.inner;
        gate_up.check("gate and up", rows * 2 * width)?;
        inner.check("feed-forward product", rows * width)?;
        let launch = kernel.launch([rows, (width / 8).div_ceil(256), 1], 256);
        // SAFETY: as declared in feed_forward.cu.
        unsafe { launch.ptr(gate_up).ptr(inner).int(width).on(&self.stream) }
    }
}
