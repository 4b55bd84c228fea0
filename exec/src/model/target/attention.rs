//! The target's causal attention.

use candle_core::{D, Device, Result, Tensor};

use crate::model::config::Geometry;
use crate::model::layer::LayerWeights;
use crate::model::ops::{Rope, linear, rms_norm};

/// Causal self-attention with grouped queries over B rows of S tokens.
pub(super) struct CausalAttention<'a> {
    rows: usize,
    tokens: usize,
    g: &'a Geometry,
    rope: Rope,
}

impl<'a> CausalAttention<'a> {
    pub(super) fn new(
        rows: usize,
        tokens: usize,
        g: &'a Geometry,
        device: &Device,
    ) -> Result<Self> {
        let positions: Vec<u32> = (0..tokens as u32).collect();
        let rope = Rope::new(&positions, &[tokens], g.head_dim, g.rope_theta, device)?;
        Ok(Self {
            rows,
            tokens,
            g,
            rope,
        })
    }

    /// o_proj(attention(input_layernorm(x))) for x [B·S, H].
    pub(super) fn forward(&self, x: &Tensor, w: &LayerWeights) -> Result<Tensor> {
        let g = self.g;
        let y = rms_norm(x, &w.input_layernorm, g.rms_norm_eps)?.y;
        let scale = (g.head_dim as f64).powf(-0.5);
        let q = self
            .turned(&linear(&y, &w.q_proj)?, &w.q_norm)?
            .affine(scale, 0.0)?;
        let k = self.turned(&linear(&y, &w.k_proj)?, &w.k_norm)?;
        let v = self.by_head(&linear(&y, &w.v_proj)?)?;
        let mut mixed = Vec::new();
        for row in 0..self.rows {
            let (q, k, v) = (q.get(row)?, k.get(row)?, v.get(row)?);
            for first in (0..self.tokens).step_by(QUERIES_MAX) {
                let count = QUERIES_MAX.min(self.tokens - first);
                let until = |x: &Tensor| x.narrow(1, 0, first + count);
                mixed.push(self.mix(&q.narrow(1, first, count)?, &until(&k)?, &until(&v)?)?);
            }
        }
        linear(&Tensor::cat(&mixed, 0)?, &w.o_proj)
    }

    /// Rows [B·S, heads·D] as [B, heads, S, D].
    fn by_head(&self, x: &Tensor) -> Result<Tensor> {
        x.reshape((self.rows, self.tokens, (), self.g.head_dim))?
            .transpose(1, 2)?
            .contiguous()
    }

    fn turned(&self, x: &Tensor, norm: &Tensor) -> Result<Tensor> {
        let heads = x.reshape(((), self.g.head_dim))?;
        self.rope
            .rotate(&self.by_head(&rms_norm(&heads, norm, self.g.rms_norm_eps)?.y)?)
    }

    /// Attention of the last n of m tokens of a row: q [heads, n, D], k and v [kv heads, m, D],
    /// giving [n, heads·D].
    fn mix(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (heads, kv) = (self.g.num_attention_heads, self.g.num_key_value_heads);
        let (n, m) = (q.dim(1)?, k.dim(1)?);
        // The query heads of a group follow one another: their queries become rows of one product.
        let q = q
            .contiguous()?
            .reshape((kv, heads / kv * n, self.g.head_dim))?;
        let scores = q.matmul(&k.transpose(1, 2)?)?.reshape((heads, n, m))?;
        let scores = scores.broadcast_add(&causal_bias(n, m, q.device())?)?;
        let p = scores
            .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
            .exp()?;
        let total = p.sum_keepdim(D::Minus1)?;
        let out = p
            .reshape((kv, heads / kv * n, m))?
            .matmul(v)?
            .reshape((heads, n, ()))?;
        out.broadcast_div(&total)?
            .transpose(0, 1)?
            .contiguous()?
            .reshape((n, ()))
    }
}

/// Additive mask of the last n of m tokens [n, m]: 0 where a key may be seen, −∞ behind the query.
fn causal_bias(n: usize, m: usize, device: &Device) -> Result<Tensor> {
    let seen = |query: usize| m - n + query;
    let bias: Vec<f32> = (0..n)
        .flat_map(|query| (0..m).map(move |key| (key, seen(query))))
        .map(|(key, last)| if key <= last { 0.0 } else { f32::NEG_INFINITY })
        .collect();
    Tensor::from_vec(bias, (n, m), device)
}

/// Queries scored at a time: what must fit in memory is [heads, this, S], and keys behind the last
/// of them are left out, which saves nearly half of a long row's work.
const QUERIES_MAX: usize = 64;
