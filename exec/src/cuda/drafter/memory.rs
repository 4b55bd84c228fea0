//! All device memory of a drafter, taken once.

use std::sync::Arc;

use half::bf16;
use shared::id::Bytes;

use super::layout::Layout;
use super::plan::TARGET_ROWS;
use super::shape::Shape;
use crate::cuda::gemm::WORKSPACE_BYTES;
use crate::cuda::pool::round_up;
use crate::cuda::{Buffer, CudaError, Element, Gpu, Pool};

/// Blocks of kernels that sum over rows; each leaves one partial sum.
pub(super) const PARTIALS: usize = 396;

/// The same where a block holds less.
pub(super) const HEAD_PARTIALS: usize = 1056;

/// The largest microbatch that a drafter can be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrafterLimits {
    /// Slots in all: rows times anchors times block size.
    pub slots_max: usize,
    /// Context tokens in all, padding included: rows times tokens a row.
    pub context_max: usize,
    /// Tokens of one row.
    pub row_max: usize,
    /// Slots whose logits exist at a time; bounds memory, not the result.
    pub logits_max: usize,
}

/// Weights and their optimizer state, each one flat vector.
#[derive(Debug)]
pub(super) struct State {
    pub(super) weights: Buffer<f32>,
    pub(super) first_moments: Buffer<f32>,
    pub(super) second_moments: Buffer<f32>,
    pub(super) gradients: Buffer<f32>,
    /// The weights rounded, for products.
    pub(super) narrow: Buffer<bf16>,
    /// The objective's sum of the step under way.
    pub(super) loss: Buffer<f64>,
    /// Runs of right slots, then right slots 1 … T−1, of the step under way.
    pub(super) counts: Buffer<u64>,
    /// Square of the gradient's norm.
    pub(super) squares: Buffer<f64>,
}

/// What a layer keeps from its forward pass.
#[derive(Debug)]
pub(super) struct LayerTape {
    /// Queries, keys and values before norm and rope [N, qkv]; of the distinct inputs in the first layer [A + 1, qkv].
    pub(super) qkv: Buffer<bf16>,
    /// Keys and values of the context, likewise [C, 2 · keys].
    pub(super) context_kv: Buffer<bf16>,
    /// Attention's output [N, queries].
    pub(super) attended: Buffer<bf16>,
    /// Logarithms of attention's sums.
    pub(super) log_sum: Buffer<f32>,
    /// Behind attention's residual [N, H].
    pub(super) middle: Buffer<bf16>,
    /// Inputs of the product in the feed-forward half [N, 2 · inner]; its gradient in the backward pass.
    pub(super) gate_up: Buffer<bf16>,
}

/// What a microbatch needs.
#[derive(Debug)]
pub(super) struct Activations {
    /// Input of each layer, then the output of the last [N, H].
    pub(super) inputs: Vec<Buffer<bf16>>,
    pub(super) layers: Vec<LayerTape>,
    /// The context before and after its norm [C, H].
    pub(super) fused: Buffer<bf16>,
    pub(super) context: Buffer<bf16>,
    /// A norm's output [N, H].
    pub(super) normed: Buffer<bf16>,
    /// The gradient of a norm's output [N, H].
    pub(super) for_normed: Buffer<bf16>,
    /// The gradient of the residual stream [N, H].
    pub(super) gradient: Buffer<bf16>,
    /// The feed-forward product and its gradient [N, inner].
    pub(super) inner: Buffer<bf16>,
    /// Turned queries and keys, and the first layer's values [N, qkv].
    pub(super) turned: Buffer<bf16>,
    /// Turned keys of the context [C, keys].
    pub(super) context_keys: Buffer<bf16>,
    /// Gradients of the same things.
    pub(super) for_attended: Buffer<bf16>,
    pub(super) for_qkv: Buffer<bf16>,
    pub(super) for_context_kv: Buffer<bf16>,
    pub(super) for_context: Buffer<f32>,
    /// Σ gradient · output of each query.
    pub(super) means: Buffer<f32>,
    pub(super) logits: Buffer<bf16>,
    pub(super) losses: Buffer<f32>,
    /// Largest logit and sum of exponentials of the slots of a chunk, for objectives that look at a block before its gradient is formed.
    pub(super) peaks: Buffer<f32>,
    /// What a chunk's slots are worth in D-PACE.
    pub(super) values: Buffer<f32>,
    pub(super) hits: Buffer<u8>,
    /// Partial sums of whatever is summed over rows.
    pub(super) partial: Buffer<f32>,
    /// Partial sums of the gradient's norm.
    pub(super) square_parts: Buffer<f64>,
    /// Cosine and sine of each position and pair.
    pub(super) turns: Buffer<f32>,
    /// The plan's lists.
    pub(super) words: Buffer<u32>,
}

/// Hands out buffers, or only counts them.
struct Taker {
    pool: Option<Arc<Pool>>,
    bytes: usize,
}

/// A buffer to be, or nothing while counting.
type Taken<T> = Result<Option<Buffer<T>>, CudaError>;

impl Taker {
    fn take<T: Element>(&mut self, len: usize) -> Taken<T> {
        self.bytes += round_up(len * T::BYTES);
        self.pool.as_ref().map(|pool| pool.buffer(len)).transpose()
    }
}

/// Everything.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) state: State,
    pub(super) activations: Activations,
}

impl Memory {
    /// What [`Memory::new`] takes, products' workspace included.
    pub(super) fn bytes(
        s: &Shape,
        layout: &Layout,
        limits: &DrafterLimits,
    ) -> Result<Bytes, CudaError> {
        let mut counter = Taker {
            pool: None,
            bytes: round_up(WORKSPACE_BYTES),
        };
        lay_out(&mut counter, s, layout, limits)?;
        Ok(Bytes(counter.bytes as u64))
    }

    /// Takes all memory; the pool has room for the products' workspace besides.
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        s: &Shape,
        layout: &Layout,
        limits: &DrafterLimits,
    ) -> Result<(Self, Arc<Pool>), CudaError> {
        let pool = Pool::new(gpu, Self::bytes(s, layout, limits)?, "a drafter")?;
        let mut taker = Taker {
            pool: Some(Arc::clone(&pool)),
            bytes: 0,
        };
        match lay_out(&mut taker, s, layout, limits)? {
            Some(memory) => Ok((memory, pool)),
            None => Err(CudaError::Shape(
                "a drafter's memory was counted, not taken".to_owned(),
            )),
        }
    }
}

fn lay_out(
    t: &mut Taker,
    s: &Shape,
    layout: &Layout,
    limits: &DrafterLimits,
) -> Result<Option<Memory>, CudaError> {
    let state = take_state(t, s, layout)?;
    let activations = take_activations(t, s, limits)?;
    Ok(state
        .zip(activations)
        .map(|(state, activations)| Memory { state, activations }))
}

fn take_state(t: &mut Taker, s: &Shape, layout: &Layout) -> Result<Option<State>, CudaError> {
    let (weights, first, second) = (
        t.take(layout.len)?,
        t.take(layout.len)?,
        t.take(layout.len)?,
    );
    let (gradients, narrow) = (t.take(layout.len)?, t.take(layout.len)?);
    let (loss, counts, squares) = (t.take(1)?, t.take(s.slots)?, t.take(1)?);
    let all = || {
        Some(State {
            weights: weights?,
            first_moments: first?,
            second_moments: second?,
            gradients: gradients?,
            narrow: narrow?,
            loss: loss?,
            counts: counts?,
            squares: squares?,
        })
    };
    Ok(all())
}

fn take_layer(
    t: &mut Taker,
    s: &Shape,
    qkv_rows: usize,
    slots: usize,
    context: usize,
) -> Result<Option<LayerTape>, CudaError> {
    let (qkv, context_kv) = (t.take(qkv_rows * s.qkv())?, t.take(context * 2 * s.keys())?);
    let (attended, log_sum) = (t.take(slots * s.queries())?, t.take(slots * s.heads)?);
    let (middle, gate_up) = (t.take(slots * s.hidden)?, t.take(slots * 2 * s.inner)?);
    let all = || {
        Some(LayerTape {
            qkv: qkv?,
            context_kv: context_kv?,
            attended: attended?,
            log_sum: log_sum?,
            middle: middle?,
            gate_up: gate_up?,
        })
    };
    Ok(all())
}

fn take_activations(
    t: &mut Taker,
    s: &Shape,
    limits: &DrafterLimits,
) -> Result<Option<Activations>, CudaError> {
    let (n, c) = (
        limits.slots_max.next_multiple_of(TARGET_ROWS),
        limits.context_max,
    );
    let h = s.hidden;
    let mut inputs = Vec::new();
    for _ in 0..=s.layers {
        inputs.extend(t.take(n * h)?);
    }
    let mut layers = Vec::new();
    for layer in 0..s.layers {
        let qkv_rows = if layer == 0 { n / s.slots + 2 } else { n };
        layers.extend(take_layer(t, s, qkv_rows, n, c)?);
    }
    let (fused, context) = (t.take(c * h)?, t.take(c * h)?);
    let (normed, for_normed, gradient) = (t.take(n * h)?, t.take(n * h)?, t.take(n * h)?);
    let (inner, turned) = (t.take(n * s.inner)?, t.take(n * s.qkv())?);
    let context_keys = t.take(c * s.keys())?;
    let (for_attended, for_qkv) = (t.take(n * s.queries())?, t.take(n * s.qkv())?);
    let (for_context_kv, for_context) = (t.take(c * 2 * s.keys())?, t.take(c * h)?);
    let means = t.take(n * s.heads)?;
    let logits = t.take(limits.logits_max.next_multiple_of(TARGET_ROWS) * s.logits_pitch())?;
    let (losses, hits) = (t.take(n)?, t.take(n)?);
    let chunk = limits.logits_max.next_multiple_of(TARGET_ROWS);
    let (peaks, values) = (t.take(2 * chunk)?, t.take(chunk)?);
    let partial = t.take((PARTIALS * h.max(s.qkv())).max(HEAD_PARTIALS * 2 * s.head_dim))?;
    let square_parts = t.take(4 * PARTIALS)?;
    let turns = t.take((limits.row_max + s.slots) * s.head_dim)?;
    let words = t.take(words_max(s, limits))?;
    let all = || {
        Some(Activations {
            inputs,
            layers,
            fused: fused?,
            context: context?,
            normed: normed?,
            for_normed: for_normed?,
            gradient: gradient?,
            inner: inner?,
            turned: turned?,
            context_keys: context_keys?,
            for_attended: for_attended?,
            for_qkv: for_qkv?,
            for_context_kv: for_context_kv?,
            for_context: for_context?,
            means: means?,
            logits: logits?,
            losses: losses?,
            peaks: peaks?,
            values: values?,
            hits: hits?,
            partial: partial?,
            square_parts: square_parts?,
            turns: turns?,
            words: words?,
        })
    };
    Ok(all())
}

/// Words that the lists of any plan within the limits fit into.
pub(super) fn words_max(s: &Shape, limits: &DrafterLimits) -> usize {
    let (n, c) = (
        limits.slots_max.next_multiple_of(TARGET_ROWS),
        limits.context_max,
    );
    let blocks = n / s.slots + 2;
    // Tokens, positions, first inputs, targets, labels, weights, teachers; context positions; distinct inputs, anchors, sights, shares; key shares.
    7 * n + c + 9 * blocks + 6 * (c / 128 + c + n / 128 + 2) + 64
}
