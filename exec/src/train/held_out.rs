//! The loss of samples that are not trained on.

use super::loss::evaluate;
use super::{BlockPlan, BlockSpec, Objective, TrainError, anchors};
use crate::model::{Drafter, ModelError, PaddedBatch, Sample, Target};

/// Sums over the supervised slots of some samples.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HeldOutLoss {
    /// Σ weight · cross entropy. (nats)
    pub sum: f64,
    /// Σ weight.
    pub weight: f64,
}

impl HeldOutLoss {
    /// The mean cross entropy, weighted along the block as in training; NaN without a slot. (nats)
    pub fn mean(&self) -> f64 {
        self.sum / self.weight
    }

    /// Adds the sums of other samples.
    pub fn add(&mut self, other: Self) {
        self.sum += other.sum;
        self.weight += other.weight;
    }
}

/// Where the loss of a sample is measured: its blocks are the same in every call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeldOutBlocks {
    /// How blocks are cut and weighted.
    pub spec: BlockSpec,
    /// Most anchors of a sample.
    pub anchors_max: usize,
    /// Seed of the anchors.
    pub seed: u64,
}

/// The loss of each of `drafters`, which read the same layers of `target`, on one sample with
/// number `number`: the target reads it once.
///
/// Errors: tokens outside the vocabulary, drafters of other targets, tensor failures.
pub fn held_out_loss(
    target: &Target,
    drafters: &[&Drafter],
    sample: Sample<'_>,
    number: u64,
    blocks: &HeldOutBlocks,
) -> Result<Vec<HeldOutLoss>, TrainError> {
    let HeldOutBlocks {
        spec,
        anchors_max,
        seed,
    } = *blocks;
    let anchors = anchors::draw(seed, 0, number, sample.loss_mask, anchors_max);
    let batch = PaddedBatch::new(&[sample], sample.input_ids.len())?;
    let plan = BlockPlan::new(&batch, &[anchors], &spec)?;
    if plan.weight_sum() == 0.0 {
        return Ok(vec![HeldOutLoss::default(); drafters.len()]);
    }
    let states = target.forward(&batch)?;
    let one = |drafter: &&Drafter| {
        let tape = drafter.forward(&states, &plan)?;
        let objective = Objective::CrossEntropy;
        let loss = evaluate(&objective, tape.hidden(), drafter.lm_head(), &plan, &states)?;
        Ok(HeldOutLoss {
            sum: loss.sum,
            weight: loss.weight_sum,
        })
    };
    Ok(drafters
        .iter()
        .map(one)
        .collect::<Result<_, ModelError>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::{drafter_config, microbatch, models, row};

    #[test]
    fn it_is_the_loss_that_training_would_see() {
        let (target, drafter) = models();
        let blocks = HeldOutBlocks {
            spec: BlockSpec::of(&drafter_config()),
            anchors_max: 5,
            seed: 1,
        };
        let row = row(4, 30, 5);
        let (batch, plan) = microbatch(&[&row], 30);
        let sample = Sample {
            input_ids: &row.input_ids,
            loss_mask: &row.loss_mask,
        };
        let found = held_out_loss(&target, &[&drafter], sample, 4, &blocks).unwrap();
        let states = target.forward(&batch).unwrap();
        let trained = drafter.accumulate(&states, &plan).unwrap();
        assert!((found[0].sum - trained.loss_sum).abs() < 1e-9 * trained.loss_sum);
        assert_eq!(found[0].weight, trained.weight_sum);
        let silent = Sample {
            input_ids: &row.input_ids,
            loss_mask: &[false; 30],
        };
        let none = held_out_loss(&target, &[&drafter], silent, 4, &blocks).unwrap();
        assert!(none[0].mean().is_nan());
    }
}
