//! Sizes of a target as the kernels see them, and what they take of a device's memory.

use crate::cuda::gemm::WORKSPACE_BYTES;
use crate::cuda::pool::round_up;
use crate::cuda::{CudaError, cudnn};
use crate::model::{Family, Hybrid, LayerKind, TargetConfig};
use shared::id::Bytes;

/// Widths and counts of a decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetShape {
    /// Hidden size (H), a multiple of 8.
    pub hidden: usize,
    /// Width inside the feed-forward layers, a multiple of 8.
    pub inner: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head (D).
    pub head_dim: usize,
    /// Rows of the embedding (V).
    pub vocab: usize,
    /// Added to the mean square in every norm.
    pub eps: f32,
    /// Radians a token, for each pair of a head.
    pub rates: Vec<f64>,
    /// Whether queries and keys are normalised head by head.
    pub head_norms: bool,
    /// Added to every norm's stored weight but the delta layers'.
    pub norm_offset: f32,
    /// Gated delta layers between layers of attention, whose output is gated then.
    pub delta: Option<Hybrid>,
}

impl TargetShape {
    /// The sizes of a config.
    ///
    /// # Errors
    /// Widths that the kernels do not have, with those that they have.
    pub fn of(config: &TargetConfig) -> Result<Self, CudaError> {
        let g = &config.geometry;
        let shape = Self {
            hidden: g.hidden_size,
            inner: g.intermediate_size,
            layers: g.num_hidden_layers,
            heads: g.num_attention_heads,
            kv_heads: g.num_key_value_heads,
            head_dim: g.head_dim,
            vocab: g.vocab_size,
            eps: g.rms_norm_eps as f32,
            rates: config.rotary.rates.clone(),
            head_norms: config.family != Family::Llama,
            norm_offset: match config.family {
                Family::Qwen3_5(_) => 1.0,
                Family::Qwen3 | Family::Llama => 0.0,
            },
            delta: match &config.family {
                Family::Qwen3_5(hybrid) => Some(hybrid.clone()),
                Family::Qwen3 | Family::Llama => None,
            },
        };
        shape.check()?;
        Ok(shape)
    }

    fn check(&self) -> Result<(), CudaError> {
        let refuse = |key: &str, value: usize, problem: &str| {
            Err(CudaError::Shape(format!(
                "{key} = {value}: {problem}; run this target with --backend cpu"
            )))
        };
        for (key, value) in [
            ("hidden_size", self.hidden),
            ("intermediate_size", self.inner),
        ] {
            if value % 8 != 0 {
                return refuse(key, value, "the GPU kernels need a multiple of 8");
            }
        }
        if self.hidden > HIDDEN_MAX {
            return refuse("hidden_size", self.hidden, "the GPU kernels go up to 32768");
        }
        if !HEAD_DIMS.contains(&self.head_dim) {
            let problem = "the GPU kernels have 8, 16, 32, 64, 96, 128 and 256";
            return refuse("head_dim", self.head_dim, problem);
        }
        if let Some(delta) = &self.delta {
            for (key, value) in [
                ("linear_key_head_dim", delta.key_head_dim),
                ("linear_value_head_dim", delta.value_head_dim),
            ] {
                if value % 4 != 0 || value > DELTA_DIM_MAX {
                    let problem = "the GPU kernels need a multiple of 4, at most 128";
                    return refuse(key, value, problem);
                }
            }
            if !(2..=DELTA_TAPS_MAX).contains(&delta.conv_kernel) {
                let problem = "the GPU kernels have 2 to 8";
                return refuse("linear_conv_kernel_dim", delta.conv_kernel, problem);
            }
        } else if self.rates.len() * 2 != self.head_dim {
            let problem = "the GPU kernels turn whole heads";
            return refuse("turned dimensions", 2 * self.rates.len(), problem);
        }
        Ok(())
    }

    /// Elements of a token's queries.
    pub(super) fn queries(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Elements of a token's keys, or of its values.
    pub(super) fn keys(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Elements of a token's queries, keys and values.
    pub(super) fn qkv(&self) -> usize {
        self.queries() + 2 * self.keys()
    }

    /// Elements of a token's row of queries, keys, values and, where the output is gated, its gates.
    pub(super) fn attention_row(&self) -> usize {
        match self.delta {
            Some(_) => self.qkv() + self.queries(),
            None => self.qkv(),
        }
    }

    /// Whether heads can be normalised and turned by the product that makes them: two of one kind and 128 numbers a tile.
    pub(super) fn turns_in_pairs(&self) -> bool {
        self.head_norms
            && self.head_dim == 128
            && self.delta.is_none()
            && self.norm_offset == 0.0
            && self.heads.is_multiple_of(2)
            && self.kv_heads.is_multiple_of(2)
    }

    /// What mixes the tokens in layer `n`.
    pub(super) fn delta_of(&self, n: usize) -> Option<&Hybrid> {
        let is_delta = |delta: &&Hybrid| delta.layers[n] == LayerKind::GatedDelta;
        self.delta.as_ref().filter(is_delta)
    }

    /// Bytes of the buffers of layer `n`'s weights.
    fn layer_bytes(&self, n: usize) -> u64 {
        let h = self.hidden;
        let piece = |elements: usize| round_up(2 * elements) as u64;
        let wide = |elements: usize| round_up(4 * elements) as u64;
        let mixer = match self.delta_of(n) {
            Some(d) => {
                piece(projected(d) * h)
                    + wide(d.conv_kernel * d.conv_width())
                    + 2 * wide(d.value_heads)
                    + piece(d.value_head_dim)
                    + piece(h * d.value_width())
            }
            None => {
                let norms = if self.head_norms { 2 } else { 0 };
                piece(self.attention_row() * h)
                    + norms * piece(self.head_dim)
                    + piece(h * self.queries())
            }
        };
        mixer + 2 * piece(h) + piece(2 * self.inner * h) + piece(h * self.inner)
    }

    /// What the weights take, in bf16, for the first `layers` layers (those above the last captured one may be left out).
    pub fn weight_bytes(&self, layers: usize, tied: bool, head: bool) -> Bytes {
        let piece = |elements: usize| round_up(2 * elements) as u64;
        let all: u64 = (0..layers).map(|n| self.layer_bytes(n)).sum();
        let tables = 1 + u64::from(head && !tied);
        Bytes(all + tables * piece(self.vocab * self.hidden) + piece(self.hidden))
    }

    /// What one worker's forward needs beside weights and hidden states, for microbatches of up to `tokens` padded tokens in rows of up
    /// to `width`.
    pub fn scratch_bytes(&self, tokens: usize, width: usize) -> Bytes {
        let piece = |elements: usize| round_up(2 * elements);
        let attention = piece(tokens * self.attention_row())
            + piece(tokens * self.queries())
            + round_up(4 * tokens * self.heads);
        let feed_forward = piece(tokens * 2 * self.inner) + piece(tokens * self.inner);
        let rows = 2 * piece(tokens * self.hidden);
        let table = round_up(8 * width * self.head_dim / 2) + round_up(8 * self.rates.len());
        // Tokens, lengths and scales of rows.
        let words = 3 * round_up(4 * tokens);
        let mixer = match &self.delta {
            Some(d) => attention.max(delta_bytes(d, tokens, width)),
            None => attention,
        };
        let all = rows
            + mixer.max(feed_forward)
            + table
            + words
            + WORKSPACE_BYTES
            + cudnn::WORKSPACE_BYTES;
        Bytes(all as u64)
    }
}

/// Elements of a token's projections in a delta layer: queries, keys, values, gates, strengths and decays.
pub(super) fn projected(d: &Hybrid) -> usize {
    d.conv_width() + d.value_width() + 2 * d.value_heads
}

/// The same from row to row: rows begin at 16 bytes.
pub(super) fn projected_pitch(d: &Hybrid) -> usize {
    projected(d).next_multiple_of(8)
}

/// Tokens of a chunk of the delta rule.
pub(super) const CHUNK: usize = 64;

/// Places for tokens that go through the delta rule together, whole chunks a row; longer microbatches go by rows.
pub(super) fn delta_places(tokens: usize, width: usize) -> usize {
    tokens
        .next_multiple_of(CHUNK)
        .max(width.next_multiple_of(CHUNK))
}

/// Widths of heads as the tensor cores take them.
pub(super) fn padded(width: usize) -> usize {
    width.next_multiple_of(16)
}

/// What a delta layer needs at a time.
fn delta_bytes(d: &Hybrid, tokens: usize, width: usize) -> usize {
    let piece = |elements: usize| round_up(2 * elements);
    let places = delta_places(tokens, width) * d.value_heads;
    piece(tokens * projected_pitch(d))
        + piece(tokens * d.conv_width())
        + piece(tokens * d.value_width())
        + piece(places * padded(d.key_head_dim))
        + piece(places * padded(d.value_head_dim))
        + piece(places * CHUNK)
        + round_up(4 * places)
}

/// Widest head of a delta layer: its tiles fill shared memory.
const DELTA_DIM_MAX: usize = 128;

/// Most tokens that a delta layer's convolution sees.
const DELTA_TAPS_MAX: usize = 8;

/// Widest row that a norm's block holds.
const HIDDEN_MAX: usize = 32_768;

/// Head widths that kernels are compiled for.
pub(super) const HEAD_DIMS: [usize; 7] = [8, 16, 32, 64, 96, 128, 256];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(head_dim: usize) -> TargetConfig {
        let json = json!({
            "architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096, "intermediate_size": 12288,
            "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
            "head_dim": head_dim, "vocab_size": 151_936, "rope_theta": 1e6,
        });
        TargetConfig::from_json(json, "test").unwrap()
    }

    #[test]
    fn an_8b_target_takes_its_known_memory() {
        let shape = TargetShape::of(&config(128)).unwrap();
        let weights = shape.weight_bytes(36, false, true).0;
        // 8.19 billion weights of 2 bytes, rounding aside.
        assert!(
            (weights as f64 - 2.0 * 8.190_735e9).abs() < 1e6,
            "{weights}"
        );
        let scratch = shape.scratch_bytes(49_152, 8192).0;
        // Two streams of rows, and gate, up and their product.
        let most = 49_152 * 2 * (2 * 4096 + 3 * 12_288) as u64;
        assert!(scratch > most && scratch < most + (100 << 20), "{scratch}");
    }

    #[test]
    fn a_width_without_a_kernel_is_refused() {
        let error = TargetShape::of(&config(80)).unwrap_err();
        assert!(error.to_string().starts_with("head_dim = 80: "), "{error}");
    }
}
