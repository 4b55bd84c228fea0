//! Weighted cross entropy through the frozen head.

use candle_core::{D, DType, Result, Tensor};

use super::BlockPlan;

/// Logits of one chunk, in numbers (64 MiB of f32): bounds memory, not the result.
const LOGITS_MAX: usize = 1 << 24;

/// The loss of a microbatch and its gradient at the drafter's output.
pub(super) struct Loss {
    /// Σ weight · cross entropy.
    pub(super) sum: f64,
    /// Its gradient for the hidden states of all slots [B·A·T, H].
    pub(super) for_hidden: Tensor,
    /// Whether the most likely token is the label [B·A·T]; false in unsupervised slots.
    pub(super) hits: Vec<bool>,
}

/// Applies the head [V, H] to the supervised slots of hidden [B·A·T, H], a chunk at a time. The
/// head is frozen, so each chunk's gradient is formed at once and its logits are gone before the
/// next.
pub(super) fn weighted_cross_entropy(
    hidden: &Tensor,
    lm_head: &Tensor,
    plan: &BlockPlan,
) -> Result<Loss> {
    let device = hidden.device();
    let supervised: Vec<u32> = (0u32..)
        .zip(plan.weights())
        .filter_map(|(slot, &weight)| (weight > 0.0).then_some(slot))
        .collect();
    let chunk = (LOGITS_MAX / lm_head.dim(0)?).max(1);
    let (mut sum, mut hits) = (0.0, vec![false; plan.weights().len()]);
    let mut for_hidden = hidden.zeros_like()?;
    for slots in supervised.chunks(chunk) {
        let labels: Vec<u32> = slots
            .iter()
            .map(|&slot| plan.labels()[slot as usize])
            .collect();
        let weights: Vec<f64> = slots
            .iter()
            .map(|&slot| plan.weights()[slot as usize])
            .collect();
        let index = Tensor::new(slots, device)?;
        let logits = hidden.index_select(&index, 0)?.matmul(&lm_head.t()?)?;
        let best: Vec<u32> = logits.argmax(D::Minus1)?.to_vec1()?;
        let (entropies, gradient) = entropy(&logits, &labels, &weights)?;
        for_hidden = for_hidden.index_add(&index, &gradient.matmul(lm_head)?, 0)?;
        sum += weights
            .iter()
            .zip(&entropies)
            .map(|(w, &e)| w * f64::from(e))
            .sum::<f64>();
        for ((&slot, best), label) in slots.iter().zip(best).zip(labels) {
            hits[slot as usize] = best == label;
        }
    }
    Ok(Loss {
        sum,
        for_hidden,
        hits,
    })
}

/// Cross entropies of logits [n, V] and the gradient of their weighted sum.
fn entropy(logits: &Tensor, labels: &[u32], weights: &[f64]) -> Result<(Vec<f32>, Tensor)> {
    let (n, device) = (labels.len(), logits.device());
    let labels = Tensor::from_slice(labels, (n, 1), device)?;
    let weights = Tensor::from_slice(weights, (n, 1), device)?.to_dtype(DType::F32)?;
    let shifted = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?)?;
    let exp = shifted.exp()?;
    let total = exp.sum_keepdim(D::Minus1)?;
    let entropies = (total.log()? - shifted.gather(&labels, D::Minus1)?)?;
    let p = exp.broadcast_mul(&(&weights / total)?)?;
    let gradient = p.scatter_add(&labels, &weights.neg()?, D::Minus1)?;
    Ok((entropies.flatten_all()?.to_vec1()?, gradient))
}
