//! The operations both models are made of, each next to its derivative.
//!
//! Derivatives are written out rather than recorded: the network is fixed, frozen tensors then cost
//! nothing, and no operation can drop out of the graph unnoticed. All sums over rows run through
//! matrix products, whose order of summation does not depend on thread timing.

use candle_core::{D, DType, Device, Result, Tensor};

/// x [N, in] · wᵀ with w [out, in], giving [N, out].
pub(super) fn linear(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let rows = x.dim(0)?;
    match x.device().is_cpu() && (1..=FEW_ROWS).contains(&rows) {
        true => linear_of_few(x, w, rows),
        false => x.matmul(&w.t()?),
    }
}

/// Rows up to which [`linear_of_few`] is faster on a CPU: tokens of a decoding step.
const FEW_ROWS: usize = 32;

/// [`linear`] as (w · xᵀ)ᵀ: the matrix library rearranges its right side before it multiplies, and
/// that must not be all of w for a handful of rows. One or two rows are repeated to four, for
/// which its kernels are faster than for a single one.
fn linear_of_few(x: &Tensor, w: &Tensor, rows: usize) -> Result<Tensor> {
    let copies = [x; 4];
    let x = match rows {
        1 => Tensor::cat(&copies, 0)?,
        2 => Tensor::cat(&copies[..2], 0)?,
        _ => x.clone(),
    };
    let y = w.matmul(&x.t()?.contiguous()?)?;
    y.narrow(1, 0, rows)?.t()?.contiguous()
}

/// Derivative of [`linear`] for its weight: gᵀ · x, [out, in].
pub(super) fn linear_weight_gradient(g: &Tensor, x: &Tensor) -> Result<Tensor> {
    g.t()?.matmul(x)
}

/// A normalised tensor and what its derivative needs.
pub(super) struct Normed {
    /// weight · x / rms(x).
    pub(super) y: Tensor,
    /// x / rms(x).
    unit: Tensor,
    /// 1 / rms(x), last dimension 1.
    scale: Tensor,
}

/// RMSNorm over the last dimension: y = w · x / sqrt(mean(x²) + eps).
pub(super) fn rms_norm(x: &Tensor, w: &Tensor, eps: f64) -> Result<Normed> {
    let mean_square = x
        .sqr()?
        .sum_keepdim(D::Minus1)?
        .affine(1.0 / x.dim(D::Minus1)? as f64, eps)?;
    let scale = mean_square.sqrt()?.recip()?;
    let unit = x.broadcast_mul(&scale)?;
    Ok(Normed {
        y: unit.broadcast_mul(w)?,
        unit,
        scale,
    })
}

impl Normed {
    /// Gradients for x and for the weight, from the gradient of y.
    pub(super) fn backward(&self, g: &Tensor, w: &Tensor) -> Result<(Tensor, Tensor)> {
        let width = g.dim(D::Minus1)?;
        let rows = (g * &self.unit)?.reshape(((), width))?;
        let ones = Tensor::ones((1, rows.dim(0)?), rows.dtype(), rows.device())?;
        let for_weight = ones.matmul(&rows)?.flatten_all()?;
        let g_unit = g.broadcast_mul(w)?;
        let along = (&g_unit * &self.unit)?
            .sum_keepdim(D::Minus1)?
            .affine(1.0 / width as f64, 0.0)?;
        let across = (g_unit - self.unit.broadcast_mul(&along)?)?;
        Ok((across.broadcast_mul(&self.scale)?, for_weight))
    }
}

/// Rotary tables for some positions, shaped to broadcast over what they turn.
pub(super) struct Rope {
    cos: Tensor,
    /// −sin for the low half, sin for the high half.
    sin: Tensor,
}

impl Rope {
    /// Tables of `shape`·D for `positions` (row-major over `shape`); angles are formed in f64 and
    /// their sines and cosines rounded to f32 once.
    pub(super) fn new(
        positions: &[u32],
        shape: &[usize],
        head_dim: usize,
        theta: f64,
        device: &Device,
    ) -> Result<Self> {
        let rates: Vec<f64> = (0..head_dim / 2)
            .map(|i| theta.powf(-2.0 * i as f64 / head_dim as f64))
            .collect();
        Self::at(positions, shape, &rates, device)
    }

    /// The same for given rates, in radians a token: [`Rope::rotate`] turns the first two
    /// dimensions a rate of each head and leaves the rest.
    pub(super) fn at(
        positions: &[u32],
        shape: &[usize],
        rates: &[f64],
        device: &Device,
    ) -> Result<Self> {
        let head_dim = 2 * rates.len();
        let mut cos = Vec::with_capacity(positions.len() * head_dim);
        let mut sin = Vec::with_capacity(positions.len() * head_dim);
        for &position in positions {
            let turns = || {
                rates
                    .iter()
                    .map(|rate| (f64::from(position) * rate).sin_cos())
            };
            cos.extend(turns().chain(turns()).map(|(_, cos)| cos as f32));
            sin.extend(turns().map(|(sin, _)| -sin as f32));
            sin.extend(turns().map(|(sin, _)| sin as f32));
        }
        let shape = [shape, &[head_dim]].concat();
        Ok(Self {
            cos: Tensor::from_vec(cos, shape.as_slice(), device)?,
            sin: Tensor::from_vec(sin, shape.as_slice(), device)?,
        })
    }

    /// The same tables in another dtype.
    pub(super) fn to_dtype(&self, dtype: DType) -> Result<Self> {
        Ok(Self {
            cos: self.cos.to_dtype(dtype)?,
            sin: self.sin.to_dtype(dtype)?,
        })
    }

    /// Turns every head of x [.., D] by its position; dimensions beyond the tables' stay.
    pub(super) fn rotate(&self, x: &Tensor) -> Result<Tensor> {
        let (width, turned) = (x.dim(D::Minus1)?, self.cos.dim(D::Minus1)?);
        if width > turned {
            let low = self.rotate(&x.narrow(D::Minus1, 0, turned)?)?;
            let rest = x.narrow(D::Minus1, turned, width - turned)?.contiguous()?;
            return Tensor::cat(&[low, rest], D::Minus1);
        }
        x.broadcast_mul(&self.cos)? + swap_halves(x)?.broadcast_mul(&self.sin)?
    }

    /// The derivative of [`Rope::rotate`] is the turn back.
    pub(super) fn rotate_back(&self, g: &Tensor) -> Result<Tensor> {
        g.broadcast_mul(&self.cos)? - swap_halves(g)?.broadcast_mul(&self.sin)?
    }
}

fn swap_halves(x: &Tensor) -> Result<Tensor> {
    let half = x.dim(D::Minus1)? / 2;
    Tensor::cat(
        &[
            x.narrow(D::Minus1, half, half)?,
            x.narrow(D::Minus1, 0, half)?,
        ],
        D::Minus1,
    )
}

/// 1 / (1 + exp(−x)).
pub(super) fn sigmoid(x: &Tensor) -> Result<Tensor> {
    x.neg()?.exp()?.affine(1.0, 1.0)?.recip()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::normal::normals;

    fn draw(name: &str, shape: &[usize]) -> Tensor {
        let count = shape.iter().product();
        Tensor::from_vec(normals(3, name, count, 1.0), shape, &Device::Cpu).unwrap()
    }

    fn dot(a: &Tensor, b: &Tensor) -> f64 {
        f64::from(
            (a * b)
                .unwrap()
                .sum_all()
                .unwrap()
                .to_scalar::<f32>()
                .unwrap(),
        )
    }

    #[test]
    fn turning_back_undoes_a_turn_and_is_its_transpose() {
        let rope = Rope::new(&[0, 5, 900], &[1, 3], 8, 1e4, &Device::Cpu).unwrap();
        let (x, g) = (draw("x", &[2, 3, 8]), draw("g", &[2, 3, 8]));
        let turned = rope.rotate(&x).unwrap();
        let error = (rope.rotate_back(&turned).unwrap() - &x)
            .unwrap()
            .abs()
            .unwrap();
        assert!(error.max_all().unwrap().to_scalar::<f32>().unwrap() < 1e-5);
        let (left, right) = (dot(&g, &turned), dot(&rope.rotate_back(&g).unwrap(), &x));
        assert!(
            (left - right).abs() < 1e-4 * left.abs().max(1.0),
            "{left} {right}"
        );
    }

    #[test]
    fn norm_derivative_matches_a_difference() {
        let (x, w, g) = (draw("x", &[4, 6]), draw("w", &[6]), draw("g", &[4, 6]));
        let (step_x, step_w) = (draw("dx", &[4, 6]), draw("dw", &[6]));
        let value = |h: f64| {
            let x = (&x + step_x.affine(h, 0.0).unwrap()).unwrap();
            let w = (&w + step_w.affine(h, 0.0).unwrap()).unwrap();
            dot(&g, &rms_norm(&x, &w, 1e-6).unwrap().y)
        };
        let (gx, gw) = rms_norm(&x, &w, 1e-6).unwrap().backward(&g, &w).unwrap();
        let exact = dot(&gx, &step_x) + dot(&gw, &step_w);
        let difference = (value(1e-2) - value(-1e-2)) / 2e-2;
        assert!(
            (exact - difference).abs() < 2e-3 * exact.abs(),
            "{exact} {difference}"
        );
    }

    #[test]
    fn few_rows_give_what_many_do() {
        let w = draw("w", &[12, 6]);
        let many = draw("x", &[40, 6]);
        let expected = linear(&many, &w).unwrap();
        for rows in [1, 2, 3, 5, 32] {
            let few = linear(&many.narrow(0, 0, rows).unwrap(), &w).unwrap();
            assert_eq!(few.dims(), [rows, 12]);
            let error = (few - expected.narrow(0, 0, rows).unwrap()).unwrap();
            let error = error.abs().unwrap().max_all().unwrap();
            assert!(error.to_scalar::<f32>().unwrap() < 1e-5, "{rows} rows");
        }
    }
}
