//! Norms of rows and of heads, the latter with rope, and their derivatives.

use half::bf16;

use super::{HEAD_PARTIALS, Ops, PARTIALS, optional, threads};
use crate::cuda::{CudaError, Ptr};

/// The derivative of a norm over rows.
#[derive(Debug, Clone, Copy)]
pub(in crate::cuda::drafter) struct NormBackward {
    /// The norm's input [.., H].
    pub(in crate::cuda::drafter) x: Ptr<bf16>,
    /// Which of its rows each row has; all in order when none.
    pub(in crate::cuda::drafter) from: Option<Ptr<u32>>,
    pub(in crate::cuda::drafter) weight: Ptr<f32>,
    /// Added to the gradient of the input.
    pub(in crate::cuda::drafter) residual: Option<Ptr<bf16>>,
    /// The gradient of the input, if wanted.
    pub(in crate::cuda::drafter) dx: Option<Ptr<bf16>>,
    /// The norm's output again, if wanted.
    pub(in crate::cuda::drafter) y: Option<Ptr<bf16>>,
    pub(in crate::cuda::drafter) rows: usize,
}

/// Heads of some rows, before and after their norm and rope.
#[derive(Debug, Clone, Copy)]
pub(in crate::cuda::drafter) struct HeadRows {
    /// Raw heads: queries, keys, values side by side.
    pub(in crate::cuda::drafter) raw: Ptr<bf16>,
    pub(in crate::cuda::drafter) raw_pitch: usize,
    /// Which raw row each row has; all in order when none.
    pub(in crate::cuda::drafter) from: Option<Ptr<u32>>,
    pub(in crate::cuda::drafter) positions: Ptr<u32>,
    pub(in crate::cuda::drafter) rows: usize,
    pub(in crate::cuda::drafter) queries: usize,
    pub(in crate::cuda::drafter) keys: usize,
    /// Values to copy beside them.
    pub(in crate::cuda::drafter) values: usize,
}

/// Norm weights of query and key heads, and the table of turns.
#[derive(Debug, Clone, Copy)]
pub(in crate::cuda::drafter) struct HeadWeights {
    pub(in crate::cuda::drafter) q: Ptr<f32>,
    pub(in crate::cuda::drafter) k: Ptr<f32>,
    pub(in crate::cuda::drafter) turns: Ptr<f32>,
}

/// Where the gradients of the norms of heads go: `keep` times what is there is added.
#[derive(Debug, Clone, Copy)]
pub(in crate::cuda::drafter) struct HeadSums {
    pub(in crate::cuda::drafter) partial: Ptr<f32>,
    pub(in crate::cuda::drafter) for_q: Option<Ptr<f32>>,
    pub(in crate::cuda::drafter) for_k: Ptr<f32>,
    pub(in crate::cuda::drafter) keep: f32,
}

impl Ops {
    /// y = norm of `rows` rows of x.
    pub(in crate::cuda::drafter) fn norm(
        &self,
        x: Ptr<bf16>,
        from: Option<Ptr<u32>>,
        weight: Ptr<f32>,
        y: Ptr<bf16>,
        rows: usize,
    ) -> Result<(), CudaError> {
        y.check("norm", rows * self.s.hidden)?;
        weight.check("norm weight", self.s.hidden)?;
        let launch = self
            .rms_norm
            .launch([rows, 1, 1], threads(self.s.hidden))
            .ptr(x);
        let launch = optional(launch, from).ptr(weight).ptr(y).float(self.s.eps);
        // SAFETY: as declared in norm.cu; lengths were checked, rows of `from` lie in x by construction of the plan.
        unsafe { launch.on(&self.stream) }
    }

    /// The derivative of a norm; the weight's gradient is added to `keep` times `for_weight`.
    pub(in crate::cuda::drafter) fn norm_backward(
        &self,
        n: &NormBackward,
        dy: Ptr<bf16>,
        partial: Ptr<f32>,
        for_weight: Ptr<f32>,
        keep: f32,
    ) -> Result<(), CudaError> {
        let h = self.s.hidden;
        dy.check("norm gradient", n.rows * h)?;
        n.weight.check("norm weight", h)?;
        partial.check("partial sums", PARTIALS * h)?;
        let launch = self
            .rms_norm_backward
            .launch([PARTIALS, 1, 1], threads(h))
            .ptr(n.x);
        let launch = optional(optional(launch, n.from).ptr(dy), n.residual).ptr(n.weight);
        let launch = optional(optional(launch, n.dx), n.y);
        let launch = launch.ptr(partial).int(n.rows).float(self.s.eps);
        // SAFETY: as declared in norm.cu; all operands have `rows` rows.
        unsafe { launch.on(&self.stream) }?;
        self.add_rows(partial, for_weight, PARTIALS, h, keep)
    }

    /// The same for an f32 gradient, of rows in order.
    pub(in crate::cuda::drafter) fn norm_backward_wide(
        &self,
        n: &NormBackward,
        dy: Ptr<f32>,
        dx: Ptr<bf16>,
        partial: Ptr<f32>,
        for_weight: Ptr<f32>,
        keep: f32,
    ) -> Result<(), CudaError> {
        let h = self.s.hidden;
        dy.check("norm gradient", n.rows * h)?;
        dx.check("norm gradient", n.rows * h)?;
        partial.check("partial sums", PARTIALS * h)?;
        let launch = self
            .rms_norm_backward_wide
            .launch([PARTIALS, 1, 1], threads(h))
            .ptr(n.x)
            .ptr(dy);
        let launch = launch
            .ptr(n.weight)
            .ptr(dx)
            .ptr(partial)
            .int(n.rows)
            .float(self.s.eps);
        // SAFETY: as declared in norm.cu; all operands have `rows` rows.
        unsafe { launch.on(&self.stream) }?;
        self.add_rows(partial, for_weight, PARTIALS, h, keep)
    }

    fn add_rows(
        &self,
        partial: Ptr<f32>,
        sum: Ptr<f32>,
        rows: usize,
        width: usize,
        keep: f32,
    ) -> Result<(), CudaError> {
        sum.check("sum of rows", width)?;
        let launch = self
            .add_rows
            .launch([width.div_ceil(32), 1, 1], 256)
            .ptr(partial)
            .ptr(sum);
        // SAFETY: as declared in norm.cu; partial holds rows · width numbers, as its writer checked.
        unsafe {
            launch
                .int(rows)
                .int(width)
                .int(width)
                .float(keep)
                .on(&self.stream)
        }
    }

    /// Turned heads, `pitch` apart.
    pub(in crate::cuda::drafter) fn turn(
        &self,
        r: &HeadRows,
        w: &HeadWeights,
        out: Ptr<bf16>,
        pitch: usize,
    ) -> Result<(), CudaError> {
        let heads = r.queries + r.keys + r.values;
        out.check(
            "turned heads",
            last_row(r.rows, pitch, heads * self.s.head_dim),
        )?;
        r.positions.check("positions", r.rows)?;
        let launch = self
            .head_norm_rope
            .launch([self.head_blocks(r.rows * heads), 1, 1], 256)
            .ptr(r.raw)
            .int(r.raw_pitch);
        let launch = optional(launch, r.from)
            .ptr(out)
            .int(pitch)
            .ptr(r.positions)
            .ptr(w.turns)
            .ptr(w.q)
            .ptr(w.k);
        let launch = launch
            .int(r.rows)
            .int(r.queries)
            .int(r.keys)
            .int(r.values)
            .float(self.s.eps);
        // SAFETY: as declared in rope.cu; the table of turns reaches as far as the limits that the plan was checked against.
        unsafe { launch.on(&self.stream) }
    }

    /// The derivative of [`Ops::turn`] in place over `gradient`, `pitch` apart. The gradients of the norms' weights go to
    /// `sums`.
    pub(in crate::cuda::drafter) fn turn_back(
        &self,
        r: &HeadRows,
        w: &HeadWeights,
        gradient: Ptr<bf16>,
        pitch: usize,
        sums: &HeadSums,
    ) -> Result<(), CudaError> {
        let HeadSums {
            partial,
            for_q,
            for_k,
            keep,
        } = *sums;
        let (heads, d) = (r.queries + r.keys, self.s.head_dim);
        gradient.check("gradient of heads", last_row(r.rows, pitch, heads * d))?;
        partial.check("partial sums", HEAD_PARTIALS * 2 * d)?;
        let launch = self
            .head_norm_rope_backward
            .launch([HEAD_PARTIALS, 1, 1], 256)
            .ptr(r.raw)
            .int(r.raw_pitch);
        let launch = optional(launch, r.from)
            .ptr(gradient)
            .int(pitch)
            .ptr(r.positions)
            .ptr(w.turns)
            .ptr(w.q)
            .ptr(w.k);
        let launch = launch
            .ptr(partial)
            .int(r.rows)
            .int(r.queries)
            .int(r.keys)
            .float(self.s.eps);
        // SAFETY: as declared in rope.cu.
        unsafe { launch.on(&self.stream) }?;
        for (n, sum) in [for_q, Some(for_k)].into_iter().enumerate() {
            let Some(sum) = sum else { continue };
            sum.check("norm weight", d)?;
            let launch = self.add_rows.launch([d.div_ceil(32), 1, 1], 256);
            let from = partial.at(n * d..partial.len());
            // SAFETY: as declared in norm.cu.
            unsafe {
                launch
                    .ptr(from)
                    .ptr(sum)
                    .int(HEAD_PARTIALS)
                    .int(d)
                    .int(2 * d)
                    .float(keep)
                    .on(&self.stream)
            }?;
        }
        Ok(())
    }

    fn head_blocks(&self, items: usize) -> usize {
        items
            .div_ceil(256 / (self.s.head_dim / 4))
            .min(64 * PARTIALS)
    }
}

/// Elements up to the end of the last of some rows.
fn last_row(rows: usize, pitch: usize, width: usize) -> usize {
    rows.saturating_sub(1) * pitch + width
}
