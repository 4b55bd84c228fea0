//! One layer of a target.

use candle_core::{Result, Tensor};

use super::attention::Attention;
use super::cache::LayerCache;
use super::delta::DeltaNet;
use super::names::layer_prefix;
use super::pass::Pass;
use crate::model::Tensors;
use crate::model::config::{Family, LayerKind, TargetConfig};
use crate::model::ops::{linear, rms_norm};

/// A frozen decoder layer.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    input_norm: Tensor,
    mixer: Mixer,
    feed_forward_norm: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
}

/// What mixes the tokens.
#[derive(Debug, Clone)]
enum Mixer {
    Attention(Attention),
    Delta(Box<DeltaNet>),
}

impl Layer {
    /// Layer n of tensors that have been checked.
    pub(super) fn of(tensors: &Tensors, n: usize, config: &TargetConfig) -> Result<Self> {
        let prefix = layer_prefix(n);
        let tensor = |name: &str| tensors[&format!("{prefix}{name}")].clone();
        let norm = |name: &str| stored_norm(&tensor(name), &config.family);
        let mixer = match (&config.family, config.layer_kind(n)) {
            (Family::Qwen3_5(hybrid), LayerKind::GatedDelta) => {
                Mixer::Delta(Box::new(DeltaNet::of(&tensor, hybrid)?))
            }
            _ => Mixer::Attention(Attention::of(&tensor, config)?),
        };
        Ok(Self {
            input_norm: norm("input_layernorm.weight")?,
            mixer,
            feed_forward_norm: norm("post_attention_layernorm.weight")?,
            gate: tensor("mlp.gate_proj.weight"),
            up: tensor("mlp.up_proj.weight"),
            down: tensor("mlp.down_proj.weight"),
        })
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
        let mixed = match &self.mixer {
            Mixer::Attention(attention) => {
                attention.forward(&y, pass, cache.map(LayerCache::keys))?
            }
            Mixer::Delta(delta) => delta.forward(&y, pass, cache.map(LayerCache::recurrent))?,
        };
        let x = (x + mixed)?;
        let y = rms_norm(&x, &self.feed_forward_norm, eps)?.y;
        let inner = (linear(&y, &self.gate)?.silu()? * linear(&y, &self.up)?)?;
        x + linear(&inner, &self.down)?
    }
}

/// A norm's weight as it is applied: Qwen3.5 stores it minus 1.
pub(super) fn stored_norm(weight: &Tensor, family: &Family) -> Result<Tensor> {
    match family {
        Family::Qwen3_5(_) => weight.affine(1.0, 1.0),
        Family::Qwen3 | Family::Llama => Ok(weight.clone()),
    }
}
