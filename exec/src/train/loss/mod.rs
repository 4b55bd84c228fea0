//! Losses through the frozen head, with their derivatives.
//!
//! The head is applied to supervised slots only, a chunk of whole blocks at a time. It is frozen, so
//! each chunk's gradient is formed at once and its logits are gone before the next.

mod d_pace;
mod softmax;
mod teacher;
#[cfg(test)]
mod tests;

use candle_core::{D, Result, Tensor};

use super::{BlockPlan, Objective};
use crate::model::{HiddenStates, ModelError};
use softmax::Softmax;
use teacher::Teacher;

/// Logits alive at once, in numbers (64 MiB of f32): bounds memory, not the result. A block of more
/// than that is still taken whole.
const LOGITS_MAX: usize = 1 << 24;

/// The loss of a microbatch and its gradient at the drafter's output.
pub(super) struct Loss {
    /// The objective's sum.
    pub(super) sum: f64,
    /// What the objective divides the step's sum by, of this microbatch.
    pub(super) weight_sum: f64,
    /// The sum's gradient for the hidden states of all slots [B·A·T, H].
    pub(super) for_hidden: Tensor,
    /// Whether the most likely token is the label [B·A·T]; false in unsupervised slots.
    pub(super) hits: Vec<bool>,
}

/// Evaluates the objective on the drafter's output, hidden [B·A·T, H], under the head [V, H].
///
/// Errors: a last hidden state that is needed and not there, or too short; tensor failures.
pub(super) fn evaluate(
    objective: &Objective,
    hidden: &Tensor,
    lm_head: &Tensor,
    plan: &BlockPlan,
    states: &HiddenStates,
) -> std::result::Result<Loss, ModelError> {
    let teacher = match objective.needs_last_hidden() {
        true => Some(Teacher::new(states, plan, lm_head)?),
        false => None,
    };
    // The teacher's logits stand beside the drafter's.
    let vocabularies = lm_head.dim(0)? * if teacher.is_some() { 2 } else { 1 };
    let (mut sum, mut hits) = (0.0, vec![false; plan.weights().len()]);
    let mut for_hidden = hidden.zeros_like()?;
    for slots in chunks(plan, (LOGITS_MAX / vocabularies).max(1)) {
        let chunk = Chunk::new(slots, plan, hidden, lm_head)?;
        let (part, gradient) = match (objective, &teacher) {
            (Objective::DPace { alpha }, _) => chunk.d_pace(*alpha)?,
            (
                Objective::Distillation {
                    temperature,
                    hard_share,
                },
                Some(teacher),
            ) => chunk.distillation(teacher, *temperature, *hard_share)?,
            _ => chunk.cross_entropy()?,
        };
        for_hidden = for_hidden.index_add(&chunk.index, &gradient.matmul(lm_head)?, 0)?;
        sum += part;
        let best: Vec<u32> = chunk.logits.argmax(D::Minus1)?.to_vec1()?;
        for ((&slot, best), &label) in chunk.slots.iter().zip(best).zip(&chunk.labels) {
            hits[slot as usize] = best == label;
        }
    }
    Ok(Loss {
        sum,
        weight_sum: match objective {
            Objective::DPace { .. } => plan.supervised_blocks() as f64,
            Objective::CrossEntropy | Objective::Distillation { .. } => plan.weight_sum(),
        },
        for_hidden,
        hits,
    })
}

/// The supervised slots of a plan in chunks of whole blocks, each of at least `slots_min` slots
/// where there are so many: about that many at once.
fn chunks(plan: &BlockPlan, slots_min: usize) -> Vec<Vec<u32>> {
    let (_, _, slots) = plan.shape();
    let mut chunks = vec![Vec::new()];
    for (block, weights) in plan.weights().chunks(slots).enumerate() {
        let supervised = weights
            .iter()
            .enumerate()
            .filter(|(_, weight)| **weight > 0.0);
        let supervised = supervised.map(|(slot, _)| (block * slots + slot) as u32);
        let last = chunks.last_mut().expect("there is one from the start");
        last.extend(supervised);
        if last.len() + slots > slots_min {
            chunks.push(Vec::new());
        }
    }
    chunks.retain(|chunk| !chunk.is_empty());
    chunks
}

/// Some supervised slots with what the drafter says there.
struct Chunk<'a> {
    plan: &'a BlockPlan,
    /// Indices of the slots, n of them, ascending.
    slots: Vec<u32>,
    index: Tensor,
    /// The data's tokens `[n]`.
    labels: Vec<u32>,
    /// The plan's weights `[n]`.
    weights: Vec<f64>,
    /// [n, V].
    logits: Tensor,
}

/// A sum over the slots of a chunk and its gradient for their logits [n, V].
type Term = (f64, Tensor);

impl<'a> Chunk<'a> {
    fn new(
        slots: Vec<u32>,
        plan: &'a BlockPlan,
        hidden: &Tensor,
        lm_head: &Tensor,
    ) -> Result<Self> {
        let index = Tensor::new(slots.as_slice(), hidden.device())?;
        Ok(Self {
            labels: slots.iter().map(|&s| plan.labels()[s as usize]).collect(),
            weights: slots.iter().map(|&s| plan.weights()[s as usize]).collect(),
            logits: hidden.index_select(&index, 0)?.matmul(&lm_head.t()?)?,
            index,
            slots,
            plan,
        })
    }

    fn cross_entropy(&self) -> Result<Term> {
        let softmax = Softmax::of(&self.logits)?;
        let entropies = softmax.entropies(&self.labels)?;
        let gradient = softmax.entropy_gradient(&self.labels, &self.weights)?;
        Ok((dot(&self.weights, &entropies), gradient))
    }

    fn d_pace(&self, alpha: f64) -> Result<Term> {
        let softmax = Softmax::of(&self.logits)?;
        let entropies = softmax.entropies(&self.labels)?;
        let (_, _, slots) = self.plan.shape();
        let values = d_pace::values(&self.slots, &entropies, slots, alpha);
        let gradient = softmax.entropy_gradient(&self.labels, &values)?;
        Ok((dot(&values, &entropies), gradient))
    }

    fn distillation(
        &self,
        teacher: &Teacher<'_>,
        temperature: f64,
        hard_share: f64,
    ) -> Result<Term> {
        let soft = scaled(&self.weights, 1.0 - hard_share);
        let wanted = Softmax::of(
            &teacher
                .logits(&self.slots)?
                .affine(1.0 / temperature, 0.0)?,
        )?;
        let given = Softmax::of(&self.logits.affine(1.0 / temperature, 0.0)?)?;
        let divergences = wanted.divergences(&given)?;
        let sum = temperature * temperature * dot(&soft, &divergences);
        let apart = (given.probabilities()? - wanted.probabilities()?)?;
        let gradient = apart.broadcast_mul(&column(&scaled(&soft, temperature), &apart)?)?;
        if hard_share == 0.0 {
            return Ok((sum, gradient));
        }
        let softmax = Softmax::of(&self.logits)?;
        let hard = scaled(&self.weights, hard_share);
        let entropies = softmax.entropies(&self.labels)?;
        let for_hard = softmax.entropy_gradient(&self.labels, &hard)?;
        Ok((sum + dot(&hard, &entropies), (gradient + for_hard)?))
    }
}

/// Numbers as a column [n, 1] in the dtype and on the device of `like`.
fn column(values: &[f64], like: &Tensor) -> Result<Tensor> {
    Tensor::from_slice(values, (values.len(), 1), like.device())?.to_dtype(like.dtype())
}

fn scaled(values: &[f64], factor: f64) -> Vec<f64> {
    values.iter().map(|value| value * factor).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
