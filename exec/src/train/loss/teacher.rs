//! The target as the teacher of a distillation.

use candle_core::{Result, Tensor};

use crate::model::{HiddenStates, ModelError};
use crate::train::BlockPlan;

/// The target's last hidden states and its head: logits are formed for the slots asked for alone,
/// never for whole rows.
pub(super) struct Teacher<'a> {
    /// [B·S, H].
    last_hidden: Tensor,
    lm_head: &'a Tensor,
    plan: &'a BlockPlan,
    /// Tokens a row (S).
    tokens: usize,
}

impl<'a> Teacher<'a> {
    /// Errors: no last hidden state, or not one for every supervised slot of the plan.
    pub(super) fn new(
        states: &HiddenStates,
        plan: &'a BlockPlan,
        lm_head: &'a Tensor,
    ) -> std::result::Result<Self, ModelError> {
        let (rows, blocks, slots) = plan.shape();
        let refuse = |row: usize, problem: String| Err(ModelError::Batch { row, problem });
        let Some(last_hidden) = &states.last_hidden else {
            let problem = "distillation reads the target's last hidden state, which was not handed \
                           over; have the target capture it";
            return refuse(0, problem.to_owned());
        };
        let (have_rows, tokens, width) = last_hidden.dims3()?;
        if (have_rows, width) != (rows, lm_head.dim(1)?) {
            let problem = format!("last hidden states of {have_rows} rows, {width} wide");
            return refuse(
                0,
                problem + &format!("; expected {rows} rows, {}", lm_head.dim(1)?),
            );
        }
        let asked = plan.weights().iter().zip(plan.positions()).enumerate();
        for (slot, (_, &position)) in asked.filter(|(_, (weight, _))| **weight > 0.0) {
            if position as usize > tokens {
                let problem = format!(
                    "last hidden states of {tokens} tokens, a slot at {position} needs {position}"
                );
                return refuse(slot / (blocks * slots), problem);
            }
        }
        let last_hidden = last_hidden.to_dtype(lm_head.dtype())?.contiguous()?;
        Ok(Self {
            last_hidden: last_hidden.reshape(((), width))?,
            lm_head,
            plan,
            tokens,
        })
    }

    /// The target's logits [n, V] of the tokens at supervised slots: those of the state one
    /// position before.
    pub(super) fn logits(&self, slots: &[u32]) -> Result<Tensor> {
        let (_, blocks, block_size) = self.plan.shape();
        let at = |&slot: &u32| {
            let row = slot as usize / (blocks * block_size);
            let position = self.plan.positions()[slot as usize] as usize;
            (row * self.tokens + position - 1) as u32
        };
        let index: Vec<u32> = slots.iter().map(at).collect();
        let index = Tensor::new(index, self.last_hidden.device())?;
        self.last_hidden
            .index_select(&index, 0)?
            .matmul(&self.lm_head.t()?)
    }
}
