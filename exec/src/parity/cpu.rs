//! The models on the CPU, to be compared.

use candle_core::{Device, Tensor};

use super::{Case, ParityError, Subject};
use crate::model::{Drafter, HiddenStates, PaddedBatch, Target, Tensors};
use crate::train::{
    AdamW, BlockPlan, Contribution, Objective, Optimizer, Schedule, StepReport, TrainError,
};

/// Target, drafter and optimizer, as the CPU backend has them.
#[derive(Debug)]
pub struct CpuSubject {
    /// The target.
    pub target: Target,
    /// The drafter.
    pub drafter: Drafter,
    /// Its masters.
    pub optimizer: Optimizer,
}

impl CpuSubject {
    /// The case's models.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn load(case: &Case) -> Result<Self, ParityError> {
        Self::with(case, &case.json.target_layer_ids, AdamW::default())
    }

    /// The case's models, capturing `layers` and trained with `settings`.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn with(case: &Case, layers: &[usize], settings: AdamW) -> Result<Self, ParityError> {
        let target = Target::load(&case.target_dir(), layers, &Device::Cpu)?;
        let target = target.with_last_hidden(true);
        let drafter = Drafter::load(&case.drafter_dir(), &target)?;
        let schedule = Schedule::constant(case.json.optimizer.lr);
        Ok(Self {
            optimizer: Optimizer::new(drafter.weights().clone(), settings, schedule)?,
            target,
            drafter,
        })
    }
}

impl Subject for CpuSubject {
    fn states(&mut self, batch: &PaddedBatch) -> Result<HiddenStates, ParityError> {
        Ok(self.target.forward(batch)?)
    }

    fn outputs(
        &mut self,
        batch: &PaddedBatch,
        plan: &BlockPlan,
    ) -> Result<[Tensor; 2], ParityError> {
        let states = self.states(batch)?;
        let hidden = self.drafter.hidden(&states, plan)?;
        let logits = self.drafter.logits(&hidden)?;
        Ok([hidden, logits])
    }

    fn contribution(
        &mut self,
        batch: &PaddedBatch,
        plan: &BlockPlan,
    ) -> Result<Contribution, ParityError> {
        let states = self.states(batch)?;
        let part = self
            .drafter
            .accumulate_for(&Objective::CrossEntropy, &states, plan)?;
        Ok(part)
    }

    fn step(&mut self, work: &[(PaddedBatch, BlockPlan)]) -> Result<StepReport, ParityError> {
        let mut total: Option<Contribution> = None;
        for (batch, plan) in work {
            let part = self.contribution(batch, plan)?;
            match &mut total {
                Some(total) => total.add(part)?,
                None => total = Some(part),
            }
        }
        let nothing = TrainError::NothingSupervised {
            step: self.optimizer.step() + 1,
        };
        let report = self.optimizer.apply(total.ok_or(nothing)?)?;
        self.drafter.set_weights(self.optimizer.weights())?;
        Ok(report)
    }

    fn weights(&mut self) -> Result<Tensors, ParityError> {
        Ok(self.optimizer.weights().clone())
    }
}
