//! Gated DeltaNet: token mixing through a state of constant size (Yang et al. 2024,
//! "Gated Delta Networks"), as Qwen3.5 has it.

mod rule;

use candle_core::{D, DType, Device, Result, Tensor};

use super::pass::Pass;
use crate::model::config::Hybrid;
use crate::model::ops::{linear, rms_norm, sigmoid};
use rule::gated_delta_rule;

/// The weights of one layer's mixer.
#[derive(Debug, Clone)]
pub(super) struct DeltaNet {
    hybrid: Hybrid,
    qkv: Tensor,
    /// To the gate of the output.
    z: Tensor,
    /// To the strength of a write.
    beta: Tensor,
    /// To the decay.
    decay: Tensor,
    /// One weight `[C]` a place of the convolution, the oldest token's first.
    taps: Vec<Tensor>,
    decay_bias: Tensor,
    /// −exp(A_log): what a unit of decay counts in each head.
    decay_rate: Tensor,
    norm: Tensor,
    out: Tensor,
}

/// What a layer remembers of B rows: the whole past in a matrix a head, and the last inputs of the
/// convolution. Tensors are never changed in place, so a clone is a snapshot.
#[derive(Debug, Clone)]
pub(super) struct DeltaState {
    /// Inputs of the convolution at the last tokens [B, kernel − 1, C].
    tail: Tensor,
    /// [B, value heads, key width, value width].
    memory: Tensor,
}

impl DeltaState {
    /// The state before any token.
    pub(super) fn new(rows: usize, hybrid: &Hybrid, device: &Device) -> Result<Self> {
        let tail = (rows, hybrid.conv_past(), hybrid.conv_width());
        let memory = (
            rows,
            hybrid.value_heads,
            hybrid.key_head_dim,
            hybrid.value_head_dim,
        );
        Ok(Self {
            tail: Tensor::zeros(tail, DType::F32, device)?,
            memory: Tensor::zeros(memory, DType::F32, device)?,
        })
    }

    /// These rows, in this order.
    pub(super) fn keep(&self, rows: &Tensor) -> Result<Self> {
        Ok(Self {
            tail: self.tail.index_select(rows, 0)?,
            memory: self.memory.index_select(rows, 0)?,
        })
    }

    /// The same with one row as it is in `from`, or as it is before any token.
    pub(super) fn with_row(&self, row: usize, from: Option<&Self>) -> Result<Self> {
        let of = |own: &Tensor, from: Option<&Tensor>| {
            let (rows, behind) = (own.dim(0)?, row + 1);
            let new = match from {
                Some(from) => from.narrow(0, row, 1)?,
                None => own.narrow(0, row, 1)?.zeros_like()?,
            };
            let parts = [
                own.narrow(0, 0, row)?,
                new,
                own.narrow(0, behind, rows - behind)?,
            ];
            let parts: Vec<&Tensor> = parts.iter().filter(|part| part.elem_count() > 0).collect();
            Tensor::cat(&parts, 0)
        };
        Ok(Self {
            tail: of(&self.tail, from.map(|from| &from.tail))?,
            memory: of(&self.memory, from.map(|from| &from.memory))?,
        })
    }
}

impl DeltaNet {
    /// The weights among a layer's, by their names in it.
    pub(super) fn of(tensor: &impl Fn(&str) -> Tensor, hybrid: &Hybrid) -> Result<Self> {
        let part = |name: &str| tensor(&format!("linear_attn.{name}"));
        let conv = part("conv1d.weight").squeeze(1)?;
        let tap = |n: usize| conv.narrow(1, n, 1)?.flatten_all()?.contiguous();
        Ok(Self {
            hybrid: hybrid.clone(),
            qkv: part("in_proj_qkv.weight"),
            z: part("in_proj_z.weight"),
            beta: part("in_proj_b.weight"),
            decay: part("in_proj_a.weight"),
            taps: (0..hybrid.conv_kernel).map(tap).collect::<Result<_>>()?,
            decay_bias: part("dt_bias"),
            decay_rate: part("A_log").exp()?.neg()?,
            norm: part("norm.weight"),
            out: part("out_proj.weight"),
        })
    }

    /// Mixes normalised rows x [B·S, H], giving [B·S, H]; what a state holds comes before them.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        pass: &Pass<'_>,
        state: Option<&mut DeltaState>,
    ) -> Result<Tensor> {
        let (rows, tokens, h) = (pass.rows(), pass.tokens, &self.hybrid);
        let empty = DeltaState::new(rows, h, x.device())?;
        let past = state.as_deref().unwrap_or(&empty);
        let new = linear(x, &self.qkv)?.reshape((rows, tokens, ()))?;
        let inputs = Tensor::cat(&[&past.tail, &new], 1)?;
        let mixed = self.convolved(&inputs, tokens)?;
        let keys = h.key_heads * h.key_head_dim;
        let part = |first: usize, width: usize, heads: usize| {
            let part = mixed.narrow(D::Minus1, first, width)?.contiguous()?;
            part.reshape((rows, tokens, heads, ()))
        };
        let q = self.key_heads(&part(0, keys, h.key_heads)?)?;
        let q = q.affine((h.key_head_dim as f64).powf(-0.5), 0.0)?;
        let k = self.key_heads(&part(keys, keys, h.key_heads)?)?;
        let v = part(2 * keys, h.value_width(), h.value_heads)?;
        let v = v.transpose(1, 2)?.contiguous()?;
        let (beta, decay) = self.strengths(x, pass)?;
        let (read, memory) = gated_delta_rule(&q, &k, &v, &decay, &beta, &past.memory)?;
        if let Some(state) = state {
            let tail = tail(&inputs, pass, h.conv_past())?;
            *state = DeltaState { tail, memory };
        }
        let read = read.transpose(1, 2)?.contiguous()?;
        let read = read.reshape(((), h.value_head_dim))?;
        let eps = pass.config.geometry.rms_norm_eps;
        let gate = linear(x, &self.z)?.reshape(((), h.value_head_dim))?;
        let gated = (rms_norm(&read, &self.norm, eps)?.y * gate.silu()?)?;
        linear(&gated.reshape((rows * tokens, ()))?, &self.out)
    }

    /// silu of the causal convolution, feature by feature, of inputs [B, kernel − 1 + S, C].
    fn convolved(&self, inputs: &Tensor, tokens: usize) -> Result<Tensor> {
        let mut sum = inputs.narrow(1, 0, tokens)?.broadcast_mul(&self.taps[0])?;
        for (n, tap) in self.taps.iter().enumerate().skip(1) {
            sum = (sum + inputs.narrow(1, n, tokens)?.broadcast_mul(tap)?)?;
        }
        sum.silu()
    }

    /// Unit vectors of [B, S, key heads, D], repeated for the value heads of a group
    /// [B, value heads, S, D].
    fn key_heads(&self, x: &Tensor) -> Result<Tensor> {
        let square = x.sqr()?.sum_keepdim(D::Minus1)?.affine(1.0, UNIT_EPS)?;
        let unit = x.broadcast_mul(&square.sqrt()?.recip()?)?;
        let (rows, tokens, heads, width) = unit.dims4()?;
        let group = self.hybrid.value_heads / heads;
        unit.transpose(1, 2)?
            .contiguous()?
            .unsqueeze(2)?
            .broadcast_as((rows, heads, group, tokens, width))?
            .contiguous()?
            .reshape((rows, heads * group, tokens, width))
    }

    /// How strongly each token is written, in (0, 1), and the logarithm of how much of the state it
    /// leaves, both [B, value heads, S]. A pad writes nothing and leaves all.
    fn strengths(&self, x: &Tensor, pass: &Pass<'_>) -> Result<(Tensor, Tensor)> {
        let by_head = |x: Tensor| {
            let x = x.reshape((pass.rows(), pass.tokens, ()))?;
            let x = match &pass.real {
                Some(real) => x.broadcast_mul(real)?,
                None => x,
            };
            x.transpose(1, 2)?.contiguous()
        };
        let beta = sigmoid(&linear(x, &self.beta)?)?;
        let decay = softplus(&linear(x, &self.decay)?.broadcast_add(&self.decay_bias)?)?;
        let decay = decay.broadcast_mul(&self.decay_rate)?;
        Ok((by_head(beta)?, by_head(decay)?))
    }
}

/// The last inputs of the convolution before each row's end.
fn tail(inputs: &Tensor, pass: &Pass<'_>, past: usize) -> Result<Tensor> {
    if pass.real.is_none() {
        return inputs.narrow(1, pass.tokens, past)?.contiguous();
    }
    let rows = pass.spans.iter().enumerate();
    let ends: Vec<Tensor> = rows
        .map(|(row, span)| inputs.narrow(0, row, 1)?.narrow(1, span.new, past))
        .collect::<Result<_>>()?;
    Tensor::cat(&ends, 0)
}

/// ln(1 + exp(x)), exact to rounding for very negative x too.
fn softplus(x: &Tensor) -> Result<Tensor> {
    // ln(1 + y) = y · ln(u) / (u − 1) with u = 1 + y rounded, and y where u is 1 (Kahan).
    let y = x.abs()?.neg()?.exp()?;
    let u = y.affine(1.0, 1.0)?;
    let above = u.affine(1.0, -1.0)?;
    let lost = above.eq(&above.zeros_like()?)?;
    let ratio = (u.log()? / lost.where_cond(&above.ones_like()?, &above)?)?;
    let log = lost.where_cond(&y, &(&y * ratio)?)?;
    x.relu()? + log
}

/// Added to the squared length of queries and keys.
const UNIT_EPS: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softplus_keeps_its_digits() {
        let x = [-40f32, -20.0, -17.5, -9.0, -1.0, 0.0, 0.5, 30.0, 90.0];
        let got = softplus(&Tensor::new(&x, &Device::Cpu).unwrap()).unwrap();
        for (x, got) in x.iter().zip(got.to_vec1::<f32>().unwrap()) {
            let want = f64::from(*x).exp().ln_1p();
            let want = if want.is_finite() {
                want
            } else {
                f64::from(*x)
            };
            assert!(
                (f64::from(got) / want - 1.0).abs() < 3e-7,
                "{x}: {got} {want}"
            );
        }
    }
}
