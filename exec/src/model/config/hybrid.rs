//! Sizes that decoders with a recurrent state have beside the usual ones.

use super::fields::Fields;
use super::target::LayerKind;
use crate::model::ModelError;

/// Gated delta layers between layers of full attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hybrid {
    /// What each layer is.
    pub layers: Vec<LayerKind>,
    /// Heads of queries and keys of a delta layer.
    pub key_heads: usize,
    /// Heads of values of a delta layer, a multiple of `key_heads`.
    pub value_heads: usize,
    /// Width of a query or key head.
    pub key_head_dim: usize,
    /// Width of a value head.
    pub value_head_dim: usize,
    /// Tokens that the causal convolution sees, the current one included.
    pub conv_kernel: usize,
}

impl Hybrid {
    /// Features that pass the convolution: queries, keys and values.
    pub(crate) fn conv_width(&self) -> usize {
        2 * self.key_heads * self.key_head_dim + self.value_width()
    }

    /// Features of all value heads.
    pub(crate) fn value_width(&self) -> usize {
        self.value_heads * self.value_head_dim
    }

    /// Tokens that the convolution sees before the current one.
    pub(crate) fn conv_past(&self) -> usize {
        self.conv_kernel - 1
    }

    pub(super) fn from_fields(f: &Fields, layers: usize) -> Result<Self, ModelError> {
        let hybrid = Self {
            layers: kinds(f, layers)?,
            key_heads: f.size("linear_num_key_heads")?,
            value_heads: f.size("linear_num_value_heads")?,
            key_head_dim: f.size("linear_key_head_dim")?,
            value_head_dim: f.size("linear_value_head_dim")?,
            conv_kernel: f.size_or("linear_conv_kernel_dim", 4)?,
        };
        if hybrid.value_heads.is_multiple_of(hybrid.key_heads) {
            return Ok(hybrid);
        }
        let problem = format!(
            "must divide linear_num_value_heads = {}",
            hybrid.value_heads
        );
        Err(f.wrong("linear_num_key_heads", problem))
    }
}

/// `layer_types`, or full attention in every n-th layer.
fn kinds(f: &Fields, layers: usize) -> Result<Vec<LayerKind>, ModelError> {
    let key = "layer_types";
    if !f.has(key) {
        let interval = f.size_or("full_attention_interval", 4)?;
        let kind = |n: usize| match (n + 1).is_multiple_of(interval) {
            true => LayerKind::FullAttention,
            false => LayerKind::GatedDelta,
        };
        return Ok((0..layers).map(kind).collect());
    }
    let names = f.texts(key)?;
    if names.len() != layers {
        return Err(f.wrong(key, format!("expected {layers} entries, one a layer")));
    }
    let kind = |name: &String| match name.as_str() {
        "full_attention" => Ok(LayerKind::FullAttention),
        "linear_attention" => Ok(LayerKind::GatedDelta),
        _ => Err(f.wrong(
            key,
            "only full_attention and linear_attention are supported",
        )),
    };
    names.iter().map(kind).collect()
}
