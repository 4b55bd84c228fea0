//! One microbatch, forward and backward.

use candle_core::Tensor;

use super::loss::evaluate;
use super::{BlockPlan, Contribution, Objective, Tally, TrainError};
use crate::model::{Drafter, HiddenStates, Tensors};

impl Drafter {
    /// [`Drafter::accumulate_for`] the usual objective, cross entropy with position decay.
    pub fn accumulate(
        &self,
        states: &HiddenStates,
        plan: &BlockPlan,
    ) -> Result<Contribution, TrainError> {
        self.accumulate_for(&Objective::CrossEntropy, states, plan)
    }

    /// The contribution of one microbatch: sums over its supervised slots, not divided by anything.
    ///
    /// A plan without supervised slots contributes zeros. Errors: hidden states that do not fit the
    /// plan, the drafter or the objective; tensor failures.
    pub fn accumulate_for(
        &self,
        objective: &Objective,
        states: &HiddenStates,
        plan: &BlockPlan,
    ) -> Result<Contribution, TrainError> {
        if plan.weight_sum() == 0.0 {
            return Ok(self.nothing(plan)?);
        }
        let tape = self.forward(states, plan)?;
        let loss = evaluate(objective, tape.hidden(), self.lm_head(), plan, states)?;
        Ok(Contribution {
            gradients: self.backward(tape, &loss.for_hidden)?,
            loss_sum: loss.sum,
            weight_sum: loss.weight_sum,
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
