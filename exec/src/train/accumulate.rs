//! One microbatch, forward and backward.

use candle_core::Tensor;

use super::loss::weighted_cross_entropy;
use super::{BlockPlan, Contribution, Tally, TrainError};
use crate::model::{Drafter, HiddenStates, Tensors};

impl Drafter {
    /// The contribution of one microbatch: sums over its supervised slots, not divided by anything.
    ///
    /// A plan without supervised slots contributes zeros. Errors: hidden states that do not fit the
    /// plan or the drafter; tensor failures.
    pub fn accumulate(
        &self,
        states: &HiddenStates,
        plan: &BlockPlan,
    ) -> Result<Contribution, TrainError> {
        if plan.weight_sum() == 0.0 {
            return Ok(self.nothing(plan)?);
        }
        let tape = self.forward(states, plan)?;
        let loss = weighted_cross_entropy(tape.hidden(), self.lm_head(), plan)?;
        Ok(Contribution {
            gradients: self.backward(tape, &loss.for_hidden)?,
            loss_sum: loss.sum,
            weight_sum: plan.weight_sum(),
            tally: Tally::of(plan, &loss.hits),
        })
    }

    fn nothing(&self, plan: &BlockPlan) -> candle_core::Result<Contribution> {
        let zeros = |(name, w): (&String, &Tensor)| Ok((name.clone(), w.zeros_like()?));
        Ok(Contribution {
            gradients: self
                .weights()
                .iter()
                .map(zeros)
                .collect::<candle_core::Result<Tensors>>()?,
            loss_sum: 0.0,
            weight_sum: 0.0,
            tally: Tally::of(plan, &vec![false; plan.weights().len()]),
        })
    }
}
