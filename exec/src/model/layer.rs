//! What a decoder layer of either model does outside attention.

use candle_core::{Result, Tensor};

use super::Tensors;
use super::config::Geometry;
use super::names::layer_shapes;
use super::ops::{Normed, linear, linear_weight_gradient, rms_norm, sigmoid};

/// The eleven weights of one layer.
#[derive(Debug, Clone)]
pub(super) struct LayerWeights {
    pub(super) input_layernorm: Tensor,
    pub(super) q_proj: Tensor,
    pub(super) k_proj: Tensor,
    pub(super) v_proj: Tensor,
    pub(super) o_proj: Tensor,
    pub(super) q_norm: Tensor,
    pub(super) k_norm: Tensor,
    pub(super) post_attention_layernorm: Tensor,
    pub(super) gate_proj: Tensor,
    pub(super) up_proj: Tensor,
    pub(super) down_proj: Tensor,
}

impl LayerWeights {
    /// The weights under `prefix`, which must be there: tensors are checked when they are loaded.
    pub(super) fn of(tensors: &Tensors, prefix: &str, g: &Geometry) -> Self {
        let [
            input_layernorm,
            q_proj,
            k_proj,
            v_proj,
            o_proj,
            q_norm,
            k_norm,
            post_attention_layernorm,
            gate_proj,
            up_proj,
            down_proj,
        ] = layer_shapes(g).map(|(name, _)| tensors[&format!("{prefix}{name}")].clone());
        Self {
            input_layernorm,
            q_proj,
            k_proj,
            v_proj,
            o_proj,
            q_norm,
            k_norm,
            post_attention_layernorm,
            gate_proj,
            up_proj,
            down_proj,
        }
    }

    /// Files the fields under `prefix` and their released names; the inverse of [`Self::of`].
    pub(super) fn name_into(self, tensors: &mut Tensors, prefix: &str, g: &Geometry) {
        let fields = [
            self.input_layernorm,
            self.q_proj,
            self.k_proj,
            self.v_proj,
            self.o_proj,
            self.q_norm,
            self.k_norm,
            self.post_attention_layernorm,
            self.gate_proj,
            self.up_proj,
            self.down_proj,
        ];
        for ((name, _), tensor) in layer_shapes(g).into_iter().zip(fields) {
            tensors.insert(format!("{prefix}{name}"), tensor);
        }
    }
}

/// What the derivative of the feed-forward half needs.
pub(super) struct FeedForwardTape {
    norm: Normed,
    gate: Tensor,
    silu: Tensor,
    up: Tensor,
}

/// Gradients of the feed-forward half.
pub(super) struct FeedForwardGradients {
    pub(super) x: Tensor,
    pub(super) norm: Tensor,
    pub(super) gate: Tensor,
    pub(super) up: Tensor,
    pub(super) down: Tensor,
}

/// x + down(silu(gate(n)) · up(n)) with n = norm(x), on rows [N, H].
pub(super) fn feed_forward(
    x: &Tensor,
    w: &LayerWeights,
    eps: f64,
) -> Result<(Tensor, FeedForwardTape)> {
    let norm = rms_norm(x, &w.post_attention_layernorm, eps)?;
    let gate = linear(&norm.y, &w.gate_proj)?;
    let up = linear(&norm.y, &w.up_proj)?;
    let silu = gate.silu()?;
    let y = (x + linear(&(&silu * &up)?, &w.down_proj)?)?;
    Ok((
        y,
        FeedForwardTape {
            norm,
            gate,
            silu,
            up,
        },
    ))
}

impl FeedForwardTape {
    /// Gradients from the gradient g [N, H] of the output.
    pub(super) fn backward(&self, g: &Tensor, w: &LayerWeights) -> Result<FeedForwardGradients> {
        let inner = (&self.silu * &self.up)?;
        let down = linear_weight_gradient(g, &inner)?;
        let g_inner = g.matmul(&w.down_proj)?;
        let g_up = (&g_inner * &self.silu)?;
        // silu'(x) = σ(x)·(1 − silu(x)) + silu(x)
        let slope = ((sigmoid(&self.gate)? * self.silu.affine(-1.0, 1.0)?)? + &self.silu)?;
        let g_gate = ((g_inner * &self.up)? * slope)?;
        let g_norm = (g_gate.matmul(&w.gate_proj)? + g_up.matmul(&w.up_proj)?)?;
        let (g_x, norm) = self.norm.backward(&g_norm, &w.post_attention_layernorm)?;
        Ok(FeedForwardGradients {
            x: (g + g_x)?,
            norm,
            gate: linear_weight_gradient(&g_gate, &self.norm.y)?,
            up: linear_weight_gradient(&g_up, &self.norm.y)?,
            down,
        })
    }
}
