//! The drafter once more, the plain way: every slot against every key of the microbatch, with the
//! mask spelled out pair by pair, in f64. For tests, which also hand it masks that are wrong.

use candle_core::{D, DType, Device, Result, Tensor};

use super::Drafter;
use crate::model::HiddenStates;
use crate::train::BlockPlan;

/// A slot that looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Looking {
    pub(crate) layer: usize,
    pub(crate) row: usize,
    pub(crate) block: usize,
    pub(crate) slot: usize,
    /// Where its block starts.
    pub(crate) anchor: usize,
}

/// What it looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Key {
    Context {
        row: usize,
        position: usize,
    },
    Slot {
        row: usize,
        block: usize,
        slot: usize,
    },
}

/// The mask as it should be.
pub(crate) fn sees(drafter: &Drafter, q: Looking, key: Key) -> bool {
    let sliding = drafter.config.sliding.as_ref();
    let sliding = sliding.filter(|sliding| sliding.layers[q.layer]);
    match key {
        Key::Context { row, position } => {
            let lowest = sliding.map_or(0, |s| (q.anchor + q.slot + 1).saturating_sub(s.window));
            row == q.row && position < q.anchor && position >= lowest
        }
        Key::Slot { row, block, slot } => {
            let causal = sliding.is_some_and(|s| s.causal);
            (row, block) == (q.row, q.block) && (!causal || slot <= q.slot)
        }
    }
}

impl Drafter {
    /// [`Drafter::hidden`] under the mask `sees`, in f64 [B, A, T, H].
    pub(crate) fn dense_hidden(
        &self,
        states: &HiddenStates,
        plan: &BlockPlan,
        sees: &dyn Fn(Looking, Key) -> bool,
    ) -> Result<Tensor> {
        let g = &self.config.geometry;
        let (rows, blocks, slots) = plan.shape();
        let tokens = states.features.dim(1)?;
        let weight = |name: &str| self.weights[name].to_dtype(DType::F64);
        let norm = |x: &Tensor, name: &str| -> Result<Tensor> {
            let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
            let rms = (mean + g.rms_norm_eps)?.sqrt()?;
            x.broadcast_div(&rms)?.broadcast_mul(&weight(name)?)
        };
        let project = |x: &Tensor, name: &str| x.matmul(&weight(name)?.t()?);

        let contexts = (0..rows).flat_map(|row| {
            (0..tokens).map(move |position| (Key::Context { row, position }, position))
        });
        let own = plan.positions().iter().enumerate().map(|(n, &position)| {
            let (row, block, slot) = (n / slots / blocks, n / slots % blocks, n % slots);
            (Key::Slot { row, block, slot }, position as usize)
        });
        let (keys, positions): (Vec<Key>, Vec<usize>) = contexts.chain(own).unzip();
        let first = rows * tokens;

        let features = states.features.to_dtype(DType::F64)?;
        let context = features.contiguous()?.reshape((first, ()))?;
        let context = norm(&project(&context, "fc.weight")?, "hidden_norm.weight")?;
        let embed = self.embed.to_dtype(DType::F64)?;
        let mut x = embed.index_select(&Tensor::new(plan.tokens(), &Device::Cpu)?, 0)?;
        for layer in 0..g.num_hidden_layers {
            let name = |part: &str| format!("layers.{layer}.{part}.weight");
            let y = norm(&x, &name("input_layernorm"))?;
            let both = Tensor::cat(&[&context, &y], 0)?;
            let heads = |x: Tensor, part: Option<&str>, positions: &[usize]| -> Result<Tensor> {
                let x = x.reshape((positions.len(), (), g.head_dim))?;
                match part {
                    Some(part) => turn(&norm(&x, &name(part))?, positions, g.rope_theta),
                    None => Ok(x),
                }
            };
            let q = project(&y, &name("self_attn.q_proj"))?;
            let q = heads(q, Some("self_attn.q_norm"), &positions[first..])?;
            let k = project(&both, &name("self_attn.k_proj"))?;
            let k = heads(k, Some("self_attn.k_norm"), &positions)?;
            let v = heads(project(&both, &name("self_attn.v_proj"))?, None, &positions)?;
            let mask: Vec<f64> = (0..keys.len() - first)
                .flat_map(|n| {
                    let looking = Looking {
                        layer,
                        row: n / slots / blocks,
                        block: n / slots % blocks,
                        slot: n % slots,
                        anchor: plan.starts()[n / slots] as usize,
                    };
                    keys.iter().map(move |&key| (looking, key))
                })
                .map(|(q, key)| if sees(q, key) { 0.0 } else { f64::NEG_INFINITY })
                .collect();
            let mask = Tensor::from_vec(mask, (keys.len() - first, keys.len()), &Device::Cpu)?;
            let group = g.num_attention_heads / g.num_key_value_heads;
            let mut mixed = Vec::new();
            for head in 0..g.num_attention_heads {
                let of = |x: &Tensor, head: usize| x.narrow(1, head, 1)?.squeeze(1)?.contiguous();
                let (k, v) = (of(&k, head / group)?, of(&v, head / group)?);
                let scores = (of(&q, head)?.matmul(&k.t()?)? / (g.head_dim as f64).sqrt())?;
                let scores = (scores + &mask)?;
                let exp = scores
                    .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
                    .exp()?;
                let p = exp.broadcast_div(&exp.sum_keepdim(D::Minus1)?)?;
                mixed.push(p.matmul(&v)?);
            }
            let mixed = Tensor::cat(&mixed, 1)?;
            x = (x + project(&mixed, &name("self_attn.o_proj"))?)?;
            let y = norm(&x, &name("post_attention_layernorm"))?;
            let gate = project(&y, &name("mlp.gate_proj"))?.silu()?;
            let y = (gate * project(&y, &name("mlp.up_proj"))?)?;
            x = (x + project(&y, &name("mlp.down_proj"))?)?;
        }
        norm(&x, "norm.weight")?.reshape((rows, blocks, slots, g.hidden_size))
    }
}

/// Rotates halves of every head of x [n, heads, D] by its position.
fn turn(x: &Tensor, positions: &[usize], theta: f64) -> Result<Tensor> {
    let half = x.dim(D::Minus1)? / 2;
    let angle = |position: usize, i: usize| position as f64 * theta.powf(-(i as f64) / half as f64);
    let table = |f: fn(f64) -> f64| {
        let values: Vec<f64> = positions
            .iter()
            .flat_map(|&p| (0..half).map(move |i| f(angle(p, i))))
            .collect();
        Tensor::from_vec(values, (positions.len(), 1, half), x.device())
    };
    let (cos, sin) = (table(f64::cos)?, table(f64::sin)?);
    let (low, high) = (
        x.narrow(D::Minus1, 0, half)?,
        x.narrow(D::Minus1, half, half)?,
    );
    let turned_low = (low.broadcast_mul(&cos)? - high.broadcast_mul(&sin)?)?;
    let turned_high = (high.broadcast_mul(&cos)? + low.broadcast_mul(&sin)?)?;
    Tensor::cat(&[turned_low, turned_high], D::Minus1)
}
