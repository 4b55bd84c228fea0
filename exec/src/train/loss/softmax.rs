//! A softmax over the vocabulary, in the parts that losses and their derivatives need.

use candle_core::{D, DType, Result, Tensor};

use super::column;

/// softmax of logits [n, V], unnormalised.
pub(super) struct Softmax {
    /// Logits less their largest [n, V].
    shifted: Tensor,
    /// exp of that [n, V].
    exp: Tensor,
    /// Its sum [n, 1].
    total: Tensor,
}

impl Softmax {
    pub(super) fn of(logits: &Tensor) -> Result<Self> {
        let shifted = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?)?;
        let exp = shifted.exp()?;
        let total = exp.sum_keepdim(D::Minus1)?;
        Ok(Self {
            shifted,
            exp,
            total,
        })
    }

    /// −ln p(label) of each row.
    pub(super) fn entropies(&self, labels: &[u32]) -> Result<Vec<f64>> {
        let labels = Tensor::from_slice(labels, (labels.len(), 1), self.exp.device())?;
        numbers(&(self.total.log()? - self.shifted.gather(&labels, D::Minus1)?)?)
    }

    /// The gradient of Σ weight · (−ln p(label)) for the logits [n, V].
    pub(super) fn entropy_gradient(&self, labels: &[u32], weights: &[f64]) -> Result<Tensor> {
        let labels = Tensor::from_slice(labels, (labels.len(), 1), self.exp.device())?;
        let weights = column(weights, &self.exp)?;
        let p = self.exp.broadcast_mul(&(&weights / &self.total)?)?;
        p.scatter_add(&labels, &weights.neg()?, D::Minus1)
    }

    /// p [n, V].
    pub(super) fn probabilities(&self) -> Result<Tensor> {
        self.exp.broadcast_div(&self.total)
    }

    /// KL(self ‖ other) of each row, in nats.
    pub(super) fn divergences(&self, other: &Self) -> Result<Vec<f64>> {
        let apart = (self.logs()? - other.logs()?)?;
        numbers(&(self.probabilities()? * apart)?.sum_keepdim(D::Minus1)?)
    }

    /// ln p [n, V].
    fn logs(&self) -> Result<Tensor> {
        self.shifted.broadcast_sub(&self.total.log()?)
    }
}

fn numbers(tensor: &Tensor) -> Result<Vec<f64>> {
    tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1()
}
