//! What one microbatch adds to an optimizer step.

use super::{BlockPlan, TrainError};
use crate::model::Tensors;

/// Unnormalised sums over the supervised slots of some microbatches.
#[derive(Debug, Clone)]
pub struct Contribution {
    /// Gradients of `loss_sum`, by weight name.
    pub gradients: Tensors,
    /// The objective's sum, Σ weight · cross entropy for the usual one.
    pub loss_sum: f64,
    /// What the step's sum is divided by, see [`super::Objective`]: Σ weight, or blocks.
    pub weight_sum: f64,
    /// Counts of right predictions.
    pub tally: Tally,
}

impl Contribution {
    /// Adds another contribution. Rounding depends on the order, so a reproducible step adds in a
    /// fixed order (plan order, not order of arrival).
    ///
    /// Errors: gradients of other weights.
    pub fn add(&mut self, other: Self) -> Result<(), TrainError> {
        let mismatch = |name: &str, problem: &str| TrainError::Mismatch {
            what: "contribution",
            name: name.to_owned(),
            problem: problem.to_owned(),
        };
        if let Some(name) = other
            .gradients
            .keys()
            .find(|n| !self.gradients.contains_key(*n))
        {
            return Err(mismatch(name, "is only in the added gradients"));
        }
        let mut sums = Tensors::new();
        for (name, gradient) in &self.gradients {
            let added = other
                .gradients
                .get(name)
                .ok_or_else(|| mismatch(name, "is missing from the added gradients"))?;
            sums.insert(name.clone(), (gradient + added)?);
        }
        self.gradients = sums;
        self.loss_sum += other.loss_sum;
        self.weight_sum += other.weight_sum;
        self.tally.add(&other.tally);
        Ok(())
    }
}

/// Counts over blocks and slots; they add up over microbatches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Supervised slots, for slots 1 … T−1.
    pub supervised: Vec<u64>,
    /// Those whose most likely token is the label.
    pub right: Vec<u64>,
    /// Sum over blocks of the run of right slots from slot 1 on; an unsupervised slot ends it.
    pub leading_run: u64,
    /// Blocks with any supervised slot.
    pub blocks: u64,
}

impl Tally {
    /// Counts the hits [B·A·T] of a plan.
    pub(super) fn of(plan: &BlockPlan, hits: &[bool]) -> Self {
        let (_, _, slots) = plan.shape();
        let behind_anchor = slots.saturating_sub(1);
        let mut tally = Self {
            supervised: vec![0; behind_anchor],
            right: vec![0; behind_anchor],
            ..Self::default()
        };
        for (weights, hits) in plan.weights().chunks(slots).zip(hits.chunks(slots)) {
            let asked = || weights[1..].iter().map(|&w| w > 0.0);
            let right: Vec<bool> = asked()
                .zip(&hits[1..])
                .map(|(asked, &hit)| asked && hit)
                .collect();
            for (slot, asked) in asked().enumerate() {
                tally.supervised[slot] += u64::from(asked);
                tally.right[slot] += u64::from(right[slot]);
            }
            tally.leading_run += right.iter().take_while(|&&right| right).count() as u64;
            tally.blocks += u64::from(asked().any(|asked| asked));
        }
        tally
    }

    /// Adds the counts of other blocks.
    pub fn add(&mut self, other: &Self) {
        let slots = self.supervised.len().max(other.supervised.len());
        for (sum, add) in [
            (&mut self.supervised, &other.supervised),
            (&mut self.right, &other.right),
        ] {
            sum.resize(slots, 0);
            sum.iter_mut().zip(add).for_each(|(sum, add)| *sum += add);
        }
        self.leading_run += other.leading_run;
        self.blocks += other.blocks;
    }

    /// Right over supervised slots; 0 when none is supervised.
    pub fn accuracy(&self) -> f64 {
        ratio(self.right.iter().sum(), self.supervised.iter().sum())
    }

    /// The same for each slot 1 … T−1.
    pub fn accuracy_per_slot(&self) -> Vec<f64> {
        self.right
            .iter()
            .zip(&self.supervised)
            .map(|(&r, &s)| ratio(r, s))
            .collect()
    }

    /// Expected accepted tokens, Σ_k Π_{i≤k} accuracy_i, without the target's bonus token.
    pub fn expected_accepted_length(&self) -> f64 {
        let prefix = self
            .accuracy_per_slot()
            .into_iter()
            .scan(1.0, |product, accuracy| {
                *product *= accuracy;
                Some(*product)
            });
        prefix.sum()
    }

    /// Mean run of right slots over blocks with any supervised slot.
    pub fn mean_leading_run(&self) -> f64 {
        ratio(self.leading_run, self.blocks)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_follow_from_the_counts() {
        let mut tally = Tally {
            supervised: vec![4, 2],
            right: vec![2, 1],
            leading_run: 3,
            blocks: 4,
        };
        assert_eq!(tally.accuracy_per_slot(), [0.5, 0.5]);
        assert_eq!(tally.expected_accepted_length(), 0.75);
        assert_eq!(tally.mean_leading_run(), 0.75);
        tally.add(&Tally {
            supervised: vec![1, 0],
            right: vec![1, 0],
            leading_run: 1,
            blocks: 1,
        });
        assert_eq!(
            (tally.supervised.as_slice(), tally.blocks),
            ([5, 2].as_slice(), 5)
        );
        assert_eq!(Tally::default().accuracy(), 0.0);
    }
}
