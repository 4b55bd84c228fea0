//! A drafter's replica of the model, and the optimizer step over all of them.

use super::{AppliedStep, Shared, fatal, lock};
use crate::backend::{ApplyJob, DrafterWorker, Job, WorkError};
use crate::checks::{BadStates, Stamped, arrived, recomputed};
use crate::model::{Drafter, DrafterConfig, ModelError, PaddedBatch, Tensors};
use crate::train::{Contribution, TrainError};
use shared::core::Group;
use shared::id::{DrafterId, MicrobatchId, StepId};
use std::sync::Arc;

/// One drafter's model and what it has accumulated for the step under way.
#[derive(Debug)]
pub(super) struct Replica {
    drafter: Drafter,
    sum: Option<Contribution>,
}

impl Replica {
    pub(super) fn new(drafter: Drafter) -> Self {
        Self { drafter, sum: None }
    }

    pub(super) fn config(&self) -> &DrafterConfig {
        self.drafter.config()
    }

    fn add(&mut self, contribution: Contribution) -> Result<(), TrainError> {
        add(&mut self.sum, contribution)
    }

    fn set_weights(&mut self, weights: &Tensors) -> Result<(), ModelError> {
        self.drafter.set_weights(weights)
    }
}

fn add(sum: &mut Option<Contribution>, more: Contribution) -> Result<(), TrainError> {
    match sum {
        Some(sum) => sum.add(more),
        None => {
            *sum = Some(more);
            Ok(())
        }
    }
}

/// The worker on a drafter's thread.
pub(super) struct CpuDrafter {
    id: DrafterId,
    shared: Arc<Shared>,
}

impl CpuDrafter {
    pub(super) fn new(id: DrafterId, shared: Arc<Shared>) -> Self {
        Self { id, shared }
    }

    /// The members' sums, added in the order of the members.
    fn total(&self, members: &[DrafterId]) -> Result<Option<Contribution>, TrainError> {
        let mut total = None;
        for member in members {
            let sum = lock(&self.shared.replicas[member.index()]).sum.take();
            if let Some(sum) = sum {
                add(&mut total, sum)?;
            }
        }
        Ok(total)
    }

    /// Refuses hidden states that are not those of the microbatch.
    fn check(
        &self,
        id: MicrobatchId,
        hidden: &Stamped,
        batch: &PaddedBatch,
        config: &DrafterConfig,
    ) -> Result<(), BadStates> {
        arrived(hidden, batch, config)?;
        let bucket = self.shared.batches.plan.microbatch(id).bucket.index();
        let rows = lock(&self.shared.turns).next(bucket, batch.rows());
        for row in rows {
            recomputed(&self.shared.target, &hidden.states, batch, row)?;
        }
        Ok(())
    }

    fn publish(
        &self,
        step: StepId,
        members: &[DrafterId],
        total: Contribution,
    ) -> Result<(), TrainError> {
        let mut optimizer = self.shared.optimizer(self.id);
        let report = optimizer.apply(total)?;
        for member in members {
            lock(&self.shared.replicas[member.index()]).set_weights(optimizer.weights())?;
        }
        drop(optimizer);
        let group = if self.shared.is_one_for_all() {
            Group::All
        } else {
            Group::One(self.id)
        };
        if let Some(steps) = &*lock(&self.shared.steps) {
            // Whoever asked to hear of steps may have stopped listening.
            let _ = steps.send(AppliedStep {
                step,
                group,
                report,
            });
        }
        Ok(())
    }
}

impl DrafterWorker<Stamped> for CpuDrafter {
    fn train(&mut self, job: Job, _: StepId, hidden: &Stamped) -> Result<(), WorkError> {
        let batches = &self.shared.batches;
        let batch = batches.batch(job.microbatch).map_err(fatal)?;
        let mut replica = lock(&self.shared.replicas[self.id.index()]);
        self.check(job.microbatch, hidden, &batch, replica.config())
            .map_err(fatal)?;
        let blocks = batches.block_plan(job.microbatch, &batch).map_err(failed)?;
        let contribution = replica
            .drafter
            .accumulate_for(&self.shared.objective, &hidden.states, &blocks)
            .map_err(failed)?;
        if !contribution.loss_sum.is_finite() {
            let (id, loss) = (job.microbatch, contribution.loss_sum);
            return Err(WorkError::NonFinite(format!(
                "the loss of microbatch {id} is {loss}"
            )));
        }
        replica.add(contribution).map_err(failed)
    }

    fn apply(&mut self, job: ApplyJob, members: &[DrafterId]) -> Result<(), WorkError> {
        let Some(total) = self.total(members).map_err(failed)? else {
            return Err(fatal("no drafter has accumulated anything for the step"));
        };
        self.publish(job.step, members, total).map_err(failed)
    }
}

fn failed(error: TrainError) -> WorkError {
    match error {
        TrainError::LossNotFinite { .. } | TrainError::GradientNotFinite { .. } => {
            WorkError::NonFinite(error.to_string())
        }
        error => fatal(error),
    }
}
