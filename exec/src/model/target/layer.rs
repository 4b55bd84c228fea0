//! One layer of a target.

use candle_core::{Result, Tensor};

use super::attention::Attention;
use super::cache::LayerCache;
use super::names::layer_prefix;
use super::pass::Pass;
use crate::model::Tensors;
use crate::model::config::TargetConfig;
use crate::model::ops::{linear, rms_norm};

/// A frozen decoder layer.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    input_norm: Tensor,
    attention: Attention,
    feed_forward_norm: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
}

impl Layer {
    /// Layer n of tensors that have been checked.
    pub(super) fn of(tensors: &Tensors, n: usize, config: &TargetConfig) -> Self {
        let prefix = layer_prefix(n);
        let tensor = |name: &str| tensors[&format!("{prefix}{name}.weight")].clone();
        Self {
            input_norm: tensor("input_layernorm"),
            attention: Attention::of(&tensor, config),
            feed_forward_norm: tensor("post_attention_layernorm"),
            gate: tensor("mlp.gate_proj"),
            up: tensor("mlp.up_proj"),
            down: tensor("mlp.down_proj"),
        }
    }

    /// The layer's output for rows x [B·S, H]; with a cache, after all that it holds.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        pass: &Pass<'_>,
        cache: Option<&mut LayerCache>,
    ) -> Result<Tensor> {
        let eps = pass.config.geometry.rms_norm_eps;
        let y = rms_norm(x, &self.input_norm, eps)?.y;
        let x = (x + self.attention.forward(&y, pass, cache)?)?;
        let y = rms_norm(&x, &self.feed_forward_norm, eps)?.y;
        let inner = (linear(&y, &self.gate)?.silu()? * linear(&y, &self.up)?)?;
        x + linear(&inner, &self.down)?
    }
}
