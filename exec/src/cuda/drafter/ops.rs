//! Launches of the drafter's kernels, each behind a function that checks lengths.

use std::sync::Arc;

use half::bf16;

use super::memory::{HEAD_PARTIALS, PARTIALS};
use super::shape::Shape;
use crate::cuda::{CudaError, Gpu, Kernel, Module, Ptr, Source, Stream};

const PRELUDE: &str = include_str!("../kernels/drafter/prelude.cuh");

/// A file of the drafter's kernels, with what the host defines for it.
pub(super) fn source(file: &str, defines: &[(&str, usize)]) -> String {
    let lines = defines
        .iter()
        .map(|(name, value)| format!("#define {name} {value}\n"));
    lines.collect::<String>() + PRELUDE + file
}

/// The drafter's files of kernels and their texts for one shape; attention's come in two kinds.
pub(super) fn sources(s: &Shape) -> Vec<(&'static str, String)> {
    let plain = [
        (
            "drafter/norm",
            include_str!("../kernels/drafter/norm.cu"),
            vec![("HIDDEN", s.hidden), ("THREADS", threads(s.hidden))],
        ),
        (
            "drafter/rope",
            include_str!("../kernels/drafter/rope.cu"),
            vec![("HEAD_DIM", s.head_dim)],
        ),
        (
            "drafter/rows",
            include_str!("../kernels/drafter/rows.cu"),
            vec![],
        ),
        (
            "drafter/feed_forward",
            include_str!("../kernels/drafter/feed_forward.cu"),
            vec![],
        ),
        (
            "drafter/loss",
            include_str!("../kernels/drafter/loss.cu"),
            vec![("VOCAB", s.vocab)],
        ),
        (
            "drafter/optimizer",
            include_str!("../kernels/drafter/optimizer.cu"),
            vec![],
        ),
    ];
    plain
        .map(|(name, text, defines)| (name, source(text, &defines)))
        .into()
}

/// Threads of a block that works on a row: 16 numbers each, or 8 in narrow rows.
fn threads(width: usize) -> usize {
    (width / 16).next_multiple_of(32).clamp(32, 512)
}

/// Threads of a block that works on a slot's logits.
const LOSS_THREADS: usize = 1024;

/// Kernels outside attention.
#[derive(Debug)]
pub(super) struct Ops {
    s: Shape,
    stream: Stream,
    rms_norm: Kernel,
    rms_norm_backward: Kernel,
    rms_norm_backward_wide: Kernel,
    add_rows: Kernel,
    head_norm_rope: Kernel,
    head_norm_rope_backward: Kernel,
    gather_rows: Kernel,
    scatter_rows: Kernel,
    sum_masked_slots: Kernel,
    round_rows: Kernel,
    swiglu: Kernel,
    swiglu_backward: Kernel,
    cross_entropy: Kernel,
    add_losses: Kernel,
    add_hits: Kernel,
    square_sum: Kernel,
    add_squares: Kernel,
    adamw: Kernel,
    round_weights: Kernel,
    add_to: Kernel,
    add_sums: Kernel,
}

/// Heads of some rows, before and after their norm and rope.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadRows {
    /// Raw heads: queries, keys, values side by side.
    pub(super) raw: Ptr<bf16>,
    pub(super) raw_pitch: usize,
    /// Which raw row each row has; all in order when none.
    pub(super) from: Option<Ptr<u32>>,
    pub(super) positions: Ptr<u32>,
    pub(super) rows: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    /// Values to copy beside them.
    pub(super) values: usize,
}

/// Norm weights of query and key heads, and the table of turns.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadWeights {
    pub(super) q: Ptr<f32>,
    pub(super) k: Ptr<f32>,
    pub(super) turns: Ptr<f32>,
}

/// The derivative of a norm over rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct NormBackward {
    /// The norm's input [.., H].
    pub(super) x: Ptr<bf16>,
    /// Which of its rows each row has; all in order when none.
    pub(super) from: Option<Ptr<u32>>,
    pub(super) weight: Ptr<f32>,
    /// Added to the gradient of the input.
    pub(super) residual: Option<Ptr<bf16>>,
    /// The gradient of the input, if wanted.
    pub(super) dx: Option<Ptr<bf16>>,
    /// The norm's output again, if wanted.
    pub(super) y: Option<Ptr<bf16>>,
    pub(super) rows: usize,
}

/// One chunk of supervised slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    pub(super) targets: Ptr<u32>,
    pub(super) labels: Ptr<u32>,
    pub(super) weights: Ptr<f32>,
    pub(super) losses: Ptr<f32>,
    pub(super) rows: usize,
}

/// What AdamW multiplies with in one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    /// beta1, beta2, eps, decay, stride, spread.
    pub(super) factors: [f32; 6],
    pub(super) weight_sum: f64,
    pub(super) norm_max: f64,
}

/// The flat vectors of weights and moments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vectors {
    pub(super) weights: Ptr<f32>,
    pub(super) first: Ptr<f32>,
    pub(super) second: Ptr<f32>,
    pub(super) gradients: Ptr<f32>,
    pub(super) narrow: Ptr<bf16>,
}

impl Ops {
    pub(super) fn new(gpu: &Arc<Gpu>, stream: &Stream, s: &Shape) -> Result<Self, CudaError> {
        let mut modules = Vec::new();
        for (file, text) in &sources(s) {
            modules.push(Module::load(gpu, &Source { file, text })?);
        }
        let [norm, rope, rows, feed_forward, loss, optimizer] = &modules[..] else {
            return Err(CudaError::Shape(
                "a file of drafter kernels is missing".to_owned(),
            ));
        };
        Ok(Self {
            s: *s,
            stream: stream.clone(),
            rms_norm: norm.kernel("rms_norm")?,
            rms_norm_backward: norm.kernel("rms_norm_backward")?,
            rms_norm_backward_wide: norm.kernel("rms_norm_backward_wide")?,
            add_rows: norm.kernel("add_rows")?,
            head_norm_rope: rope.kernel("head_norm_rope")?,
            head_norm_rope_backward: rope.kernel("head_norm_rope_backward")?,
            gather_rows: rows.kernel("gather_rows")?,
            scatter_rows: rows.kernel("scatter_rows")?,
            sum_masked_slots: rows.kernel("sum_masked_slots")?,
            round_rows: rows.kernel("round_rows")?,
            swiglu: feed_forward.kernel("swiglu")?,
            swiglu_backward: feed_forward.kernel("swiglu_backward")?,
            cross_entropy: loss.kernel("cross_entropy")?,
            add_losses: loss.kernel("add_losses")?,
            add_hits: loss.kernel("add_hits")?,
            square_sum: optimizer.kernel("square_sum")?,
            add_squares: optimizer.kernel("add_squares")?,
            adamw: optimizer.kernel("adamw")?,
            round_weights: optimizer.kernel("round_weights")?,
            add_to: optimizer.kernel("add_to")?,
            add_sums: optimizer.kernel("add_sums")?,
        })
    }

    /// y = norm of `rows` rows of x.
    pub(super) fn norm(
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
    pub(super) fn norm_backward(
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
    pub(super) fn norm_backward_wide(
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
    pub(super) fn turn(
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

    /// The derivative of [`Ops::turn`] in place over `gradient`, `pitch` apart. The gradients of the norms' weights are added to `keep` times
    /// `for_q` (if wanted) and `for_k`.
    pub(super) fn turn_back(
        &self,
        r: &HeadRows,
        w: &HeadWeights,
        gradient: Ptr<bf16>,
        pitch: usize,
        partial: Ptr<f32>,
        [for_q, for_k]: [Option<Ptr<f32>>; 2],
        keep: f32,
    ) -> Result<(), CudaError> {
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
        for (n, sum) in [for_q, for_k].into_iter().enumerate() {
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

    /// y[i] = x[from[i]] for rows of `width`.
    pub(super) fn gather(
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

    /// y[to[i]] = x[i].
    pub(super) fn scatter(
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
    pub(super) fn merge_masked(
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
    pub(super) fn swiglu(
        &self,
        gate_up: Ptr<bf16>,
        inner: Ptr<bf16>,
        rows: usize,
    ) -> Result<(), CudaError> {
        self.feed_forward(&self.swiglu, gate_up, inner, rows)
    }

    /// The derivative, in place: see feed_forward.cu.
    pub(super) fn swiglu_backward(
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

    /// Losses and hits of a chunk, and the gradient of its logits over them.
    pub(super) fn cross_entropy(
        &self,
        logits: Ptr<bf16>,
        c: &Chunk,
        hits: Ptr<u8>,
    ) -> Result<(), CudaError> {
        let pitch = self.s.logits_pitch();
        logits.check("logits", c.rows * pitch)?;
        c.targets.check("targets", c.rows)?;
        c.labels.check("labels", c.rows)?;
        c.weights.check("weights", c.rows)?;
        c.losses.check("losses", c.rows)?;
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

    /// Adds losses to the step's, and the hits of all slots to its counts.
    pub(super) fn add_sums_of(
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

    /// The square of the gradient's norm, then one step of AdamW. `squares` gets the former.
    pub(super) fn step(
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
    pub(super) fn round(&self, v: &Vectors) -> Result<(), CudaError> {
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
    pub(super) fn add(
        &self,
        sum: Ptr<f32>,
        other: Ptr<f32>,
        loss: [Ptr<f64>; 2],
        counts: [Ptr<u64>; 2],
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
        unsafe { launch.on(&self.stream) }?;
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

/// Elements up to the end of the last of some rows.
fn last_row(rows: usize, pitch: usize, width: usize) -> usize {
    rows.saturating_sub(1) * pitch + width
}

fn optional<'a, T: crate::cuda::Element>(
    launch: crate::cuda::kernels::Launch<'a>,
    ptr: Option<Ptr<T>>,
) -> crate::cuda::kernels::Launch<'a> {
    match ptr {
        Some(ptr) => launch.ptr(ptr),
        None => launch.null(),
    }
}
