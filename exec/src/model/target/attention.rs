//! The target's causal attention.

use candle_core::{D, Device, Result, Tensor};

use super::cache::KeyCache;
use super::layer::stored_norm;
use super::pass::Pass;
use crate::model::config::{Family, TargetConfig};
use crate::model::ops::{linear, rms_norm, sigmoid};

/// Causal self-attention with grouped queries.
#[derive(Debug, Clone)]
pub(super) struct Attention {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    /// Per-head norms of queries and keys, where the family has them.
    norms: Option<(Tensor, Tensor)>,
    /// Projection to the gate of the output, where the family has one.
    gate: Option<Tensor>,
}

impl Attention {
    /// The weights among a layer's, by their names in it.
    pub(super) fn of(tensor: &impl Fn(&str) -> Tensor, config: &TargetConfig) -> Result<Self> {
        let part = |name: &str| tensor(&format!("self_attn.{name}.weight"));
        let norm = |name: &str| stored_norm(&part(name), &config.family);
        let (q, gate) = match config.family {
            Family::Qwen3_5(_) => {
                let (q, gate) = query_and_gate(&part("q_proj"), config)?;
                (q, Some(gate))
            }
            Family::Qwen3 | Family::Llama => (part("q_proj"), None),
        };
        Ok(Self {
            q,
            k: part("k_proj"),
            v: part("v_proj"),
            o: part("o_proj"),
            norms: match config.family {
                Family::Llama => None,
                Family::Qwen3 | Family::Qwen3_5(_) => Some((norm("q_norm")?, norm("k_norm")?)),
            },
            gate,
        })
    }

    /// Attention over normalised rows x [B·S, H], giving [B·S, H].
    pub(super) fn forward(
        &self,
        x: &Tensor,
        pass: &Pass<'_>,
        cache: Option<&mut KeyCache>,
    ) -> Result<Tensor> {
        let scale = (pass.config.geometry.head_dim as f64).powf(-0.5);
        let norms = self.norms.as_ref();
        let q = turned(&linear(x, &self.q)?, norms.map(|norms| &norms.0), pass)?;
        let q = q.affine(scale, 0.0)?;
        let k = turned(&linear(x, &self.k)?, norms.map(|norms| &norms.1), pass)?;
        let v = by_head(&linear(x, &self.v)?, pass)?;
        let (k, v) = match cache {
            Some(cache) => cache.append(&k, &v, pass)?,
            None => (k, v),
        };
        let mixed = match &pass.seen {
            Some(seen) => one_token_a_row(&q, &k, &v, seen)?,
            None => row_by_row(&q, &k, &v, pass)?,
        };
        let gated = match &self.gate {
            Some(gate) => (mixed * sigmoid(&linear(x, gate)?)?)?,
            None => mixed,
        };
        linear(&gated, &self.o)
    }
}

/// The two halves of a projection that gives each head its query and then its gate.
fn query_and_gate(both: &Tensor, config: &TargetConfig) -> Result<(Tensor, Tensor)> {
    let (rows, width) = both.dims2()?;
    let d = config.geometry.head_dim;
    let split = both.reshape((rows / (2 * d), 2, d, width))?;
    let half = |n: usize| {
        let part = split.narrow(1, n, 1)?.contiguous()?;
        part.reshape((rows / 2, width))
    };
    Ok((half(0)?, half(1)?))
}

/// Rows [B·S, heads·D] as [B, heads, S, D].
fn by_head(x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
    x.reshape((pass.rows(), pass.tokens, (), pass.config.geometry.head_dim))?
        .transpose(1, 2)?
        .contiguous()
}

fn turned(x: &Tensor, norm: Option<&Tensor>, pass: &Pass<'_>) -> Result<Tensor> {
    let g = &pass.config.geometry;
    let x = match norm {
        Some(norm) => rms_norm(&x.reshape(((), g.head_dim))?, norm, g.rms_norm_eps)?.y,
        None => x.clone(),
    };
    pass.rope.rotate(&by_head(&x, pass)?)
}

/// Attention of every row over what it may see: q [B, heads, S, D], k and v [B, kv, ≥ row, D], giving
/// [B·S, heads·D] with zeros at pads.
fn row_by_row(q: &Tensor, k: &Tensor, v: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
    let mut mixed = Vec::new();
    for (row, span) in pass.spans.iter().enumerate() {
        let (q, k, v) = (q.get(row)?, k.get(row)?, v.get(row)?);
        for first in (0..span.new).step_by(QUERIES_MAX) {
            let count = QUERIES_MAX.min(span.new - first);
            let until = |x: &Tensor| x.narrow(1, 0, span.past + first + count);
            mixed.push(mix(&q.narrow(1, first, count)?, &until(&k)?, &until(&v)?)?);
        }
        let pads = pass.tokens - span.new;
        if pads > 0 {
            let width = q.dim(0)? * q.dim(2)?;
            mixed.push(Tensor::zeros((pads, width), q.dtype(), q.device())?);
        }
    }
    Tensor::cat(&mixed, 0)
}

/// Attention of the last n of m tokens of a row: q [heads, n, D], k and v [kv, m, D], giving
/// [n, heads·D].
fn mix(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    let (heads, n, width) = q.dims3()?;
    let (kv, m, _) = k.dims3()?;
    // The query heads of a group follow one another: their queries become rows of one product.
    let q = q.contiguous()?.reshape((kv, heads / kv * n, width))?;
    let scores = q.matmul(&k.transpose(1, 2)?)?.reshape((heads, n, m))?;
    // A single token is the last one and sees all.
    let scores = match n {
        1 => scores,
        _ => scores.broadcast_add(&causal_bias(n, m, scores.device())?)?,
    };
    let (p, total) = weights(&scores)?;
    let out = p.reshape((kv, heads / kv * n, m))?.matmul(v)?;
    let out = out.reshape((heads, n, ()))?.broadcast_div(&total)?;
    out.transpose(0, 1)?.contiguous()?.reshape((n, ()))
}

/// Attention of one new token a row over rows of different lengths: q [B, heads, 1, D], k and v
/// [B, kv, ≥ longest, D], `seen` [B, 1, 1, longest], giving [B, heads·D].
fn one_token_a_row(q: &Tensor, k: &Tensor, v: &Tensor, seen: &Tensor) -> Result<Tensor> {
    let (rows, heads, _, width) = q.dims4()?;
    let (kv, longest) = (k.dim(1)?, seen.dim(D::Minus1)?);
    let q = q.reshape((rows, kv, heads / kv, width))?;
    let keys = k.narrow(2, 0, longest)?.transpose(2, 3)?;
    let (p, total) = weights(&q.matmul(&keys)?.broadcast_add(seen)?)?;
    p.matmul(&v.narrow(2, 0, longest)?)?
        .broadcast_div(&total)?
        .reshape((rows, ()))
}

/// exp(scores − max) over the last dimension, and its sum.
fn weights(scores: &Tensor) -> Result<(Tensor, Tensor)> {
    let p = scores
        .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
        .exp()?;
    let total = p.sum_keepdim(D::Minus1)?;
    Ok((p, total))
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
