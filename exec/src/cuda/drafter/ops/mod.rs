//! Launches of the drafter's kernels, each behind a function that checks lengths.

mod loss;
mod norm;
mod optimizer;
mod rows;

use std::sync::Arc;

use super::memory::{HEAD_PARTIALS, PARTIALS};
use super::shape::Shape;
use crate::cuda::kernels::Launch;
use crate::cuda::{CudaError, Element, Gpu, Kernel, Module, Ptr, Source, Stream};

pub(super) use loss::{Chunk, Soft};
pub(super) use norm::{HeadRows, HeadSums, HeadWeights, NormBackward};
pub(super) use optimizer::{Rates, Vectors};

const PRELUDE: &str = include_str!("../../kernels/drafter/prelude.cuh");

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
            include_str!("../../kernels/drafter/norm.cu"),
            vec![("HIDDEN", s.hidden), ("THREADS", threads(s.hidden))],
        ),
        (
            "drafter/rope",
            include_str!("../../kernels/drafter/rope.cu"),
            vec![("HEAD_DIM", s.head_dim)],
        ),
        (
            "drafter/rows",
            include_str!("../../kernels/drafter/rows.cu"),
            vec![],
        ),
        (
            "drafter/feed_forward",
            include_str!("../../kernels/drafter/feed_forward.cu"),
            vec![],
        ),
        (
            "drafter/loss",
            include_str!("../../kernels/drafter/loss.cu"),
            vec![("VOCAB", s.vocab)],
        ),
        (
            "drafter/optimizer",
            include_str!("../../kernels/drafter/optimizer.cu"),
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
    entropies: Kernel,
    block_values: Kernel,
    entropy_gradients: Kernel,
    distil: Kernel,
    add_losses: Kernel,
    add_hits: Kernel,
    square_sum: Kernel,
    add_squares: Kernel,
    adamw: Kernel,
    round_weights: Kernel,
    add_to: Kernel,
    add_sums: Kernel,
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
            entropies: loss.kernel("entropies")?,
            block_values: loss.kernel("block_values")?,
            entropy_gradients: loss.kernel("entropy_gradients")?,
            distil: loss.kernel("distil")?,
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
}

fn optional<'a, T: Element>(launch: Launch<'a>, ptr: Option<Ptr<T>>) -> Launch<'a> {
    match ptr {
        Some(ptr) => launch.ptr(ptr),
        None => launch.null(),
    }
}
