//! Sizes of a drafter as the kernels see them.

use crate::cuda::CudaError;
use crate::model::DrafterConfig;

/// Rows of queries that one warpgroup works on.
const UNIT_ROWS_MAX: usize = 64;

/// Widths and counts of one drafter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    /// Hidden size (H).
    pub(super) hidden: usize,
    /// Width inside the feed-forward layers.
    pub(super) inner: usize,
    /// Decoder layers.
    pub(super) layers: usize,
    /// Query heads.
    pub(super) heads: usize,
    /// Key and value heads.
    pub(super) key_heads: usize,
    /// Width of a head (D).
    pub(super) head_dim: usize,
    /// Vocabulary (V).
    pub(super) vocab: usize,
    /// Slots a block (T).
    pub(super) slots: usize,
    /// Captured layers (K) times the hidden size.
    pub(super) features: usize,
    /// Added to the mean square in every norm.
    pub(super) eps: f32,
    /// Base of the rotary angles.
    pub(super) theta: f64,
    /// Tokens of context that sliding layers see, the slot's own position included; 0 when no layer slides.
    pub(super) window: usize,
    /// Whether slots of sliding layers see only what comes before them in their block.
    pub(super) causal: bool,
}

impl Shape {
    /// The sizes of `config`.
    ///
    /// # Errors
    /// Sizes that the kernels cannot work on, with the value and the limit.
    pub(super) fn of(config: &DrafterConfig) -> Result<Self, CudaError> {
        let g = &config.geometry;
        let shape = Self {
            hidden: g.hidden_size,
            inner: g.intermediate_size,
            layers: g.num_hidden_layers,
            heads: g.num_attention_heads,
            key_heads: g.num_key_value_heads,
            head_dim: g.head_dim,
            vocab: g.vocab_size,
            slots: config.block_size,
            features: config.target_layer_ids.len() * g.hidden_size,
            eps: g.rms_norm_eps as f32,
            theta: g.rope_theta,
            window: config.sliding.as_ref().map_or(0, |sliding| sliding.window),
            causal: config
                .sliding
                .as_ref()
                .is_some_and(|sliding| sliding.causal),
        };
        let refuse = |key: &str, value: usize, limit: &str| {
            Err(CudaError::Shape(format!(
                "drafter config: {key} = {value}: CUDA kernels need {limit}; use --backend cpu"
            )))
        };
        if ![16, 32, 64, 128].contains(&shape.head_dim) {
            return refuse("head_dim", shape.head_dim, "16, 32, 64 or 128");
        }
        if !shape.hidden.is_multiple_of(8) || shape.hidden > 16_384 {
            return refuse(
                "hidden_size",
                shape.hidden,
                "a multiple of 8, at most 16384",
            );
        }
        if !shape.inner.is_multiple_of(8) {
            return refuse("intermediate_size", shape.inner, "a multiple of 8");
        }
        if !(2..=UNIT_ROWS_MAX).contains(&shape.slots) {
            return refuse("block_size", shape.slots, "2 to 64 slots");
        }
        Ok(shape)
    }

    /// Width of all query heads.
    pub(super) fn queries(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key heads.
    pub(super) fn keys(&self) -> usize {
        self.key_heads * self.head_dim
    }

    /// Width of queries, keys and values of a slot, side by side.
    pub(super) fn qkv(&self) -> usize {
        self.queries() + 2 * self.keys()
    }

    /// Query heads that share a key head and are worked on together: the most that divide the group and fill no more than a
    /// warpgroup's rows with all slots of a block.
    pub(super) fn unit_heads(&self) -> usize {
        let group = self.heads / self.key_heads;
        let fits = |&n: &usize| group.is_multiple_of(n) && n * self.slots <= UNIT_ROWS_MAX;
        (1..=group).rev().find(fits).unwrap_or(1)
    }

    /// Such groups of query heads a key head.
    pub(super) fn chunks(&self) -> usize {
        self.heads / self.key_heads / self.unit_heads()
    }

    /// Elements from one row of logits to the next: rows begin at 16 bytes.
    pub(super) fn logits_pitch(&self) -> usize {
        self.vocab.next_multiple_of(8)
    }

    /// What scores are multiplied with.
    pub(super) fn scale(&self) -> f32 {
        (self.head_dim as f32).powf(-0.5)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::cuda::drafter) fn shape() -> Shape {
        Shape {
            hidden: 64,
            inner: 40,
            layers: 2,
            heads: 6,
            key_heads: 2,
            head_dim: 16,
            vocab: 50,
            slots: 4,
            features: 192,
            eps: 1e-6,
            theta: 1e4,
            window: 0,
            causal: false,
        }
    }

    #[test]
    fn units_hold_whole_shares_of_a_group() {
        let unit = |heads, key_heads, slots| {
            let shape = Shape {
                heads,
                key_heads,
                slots,
                ..shape()
            };
            (shape.unit_heads(), shape.chunks())
        };
        assert_eq!(unit(32, 8, 16), (4, 1));
        assert_eq!(unit(64, 8, 16), (4, 2));
        assert_eq!(unit(6, 2, 4), (3, 1));
        assert_eq!(unit(10, 2, 16), (1, 5));
        assert_eq!(unit(9, 3, 64), (1, 3));
    }
}
