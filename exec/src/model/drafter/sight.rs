//! What a slot sees: the context before its block, and its own block.
//!
//! Full layer: slot k of a block at anchor a sees context p with p < a, and all slots of its block.
//! Sliding layer of window W: of the context also p ≥ a + k − (W − 1), and of its block, where the
//! window is causal, slots 0 … k. Windows of real drafters are longer than blocks, so inside a
//! block the window itself never bites; [`crate::model::SlidingAttention`] demands that.

use candle_core::{DType, Device, Result, Tensor};

use super::attention::Extent;

/// Biases of attention scores: 0 where a slot sees a key, −∞ elsewhere.
pub(super) struct Sight {
    /// For the context: [B, 1, A, 1, 1, S] when all slots of a block see the same, else
    /// [B, 1, A, 1, T, S].
    pub(super) context: Tensor,
    /// Inside the block [T, T], queries first; none when every slot sees every slot.
    pub(super) block: Option<Tensor>,
}

impl Sight {
    /// Of full layers. `starts` are the anchors [B·A]; a dropped block starts at 0 and so sees no
    /// context.
    pub(super) fn full(e: &Extent, starts: &[u32], dtype: DType, device: &Device) -> Result<Self> {
        let seen = starts
            .iter()
            .flat_map(|&start| (0..e.context).map(move |p| p < start as usize));
        let context = biases(seen, &[e.rows, 1, e.blocks, 1, 1, e.context], dtype, device)?;
        Ok(Self {
            context,
            block: None,
        })
    }

    /// Of sliding layers. `positions` are those of all slots [B·A·T].
    pub(super) fn sliding(
        e: &Extent,
        starts: &[u32],
        positions: &[u32],
        window: usize,
        causal: bool,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let slots = positions.iter().enumerate();
        let seen = slots.flat_map(|(slot, &position)| {
            let end = starts[slot / e.slots] as usize;
            // p ≥ position − (W − 1) without going below zero.
            let inside = move |p: usize| p + window > position as usize;
            (0..e.context).map(move |p| p < end && inside(p))
        });
        let shape = [e.rows, 1, e.blocks, 1, e.slots, e.context];
        let pairs = (0..e.slots).flat_map(|q| (0..e.slots).map(move |kv| kv <= q));
        Ok(Self {
            context: biases(seen, &shape, dtype, device)?,
            block: match causal {
                true => Some(biases(pairs, &[e.slots, e.slots], dtype, device)?),
                false => None,
            },
        })
    }
}

fn biases(
    seen: impl Iterator<Item = bool>,
    shape: &[usize],
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    let biases: Vec<f32> = seen
        .map(|seen| if seen { 0.0 } else { f32::NEG_INFINITY })
        .collect();
    Tensor::from_vec(biases, shape, device)?.to_dtype(dtype)
}
