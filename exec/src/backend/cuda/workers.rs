//! The workers that compute: forwards, and forward and backward of the drafter.

use super::hidden::{CudaHidden, Described, Slot};
use super::{Shared, fatal, lock, make_drafter};
use crate::backend::cpu::AppliedStep;
use crate::backend::{ApplyJob, DrafterWorker, Job, TargetWorker, WorkError};
use crate::checks::Stamp;
use crate::cuda::drafter::{CudaDrafter, DrafterError, Given};
use crate::cuda::target::{CudaTarget, HiddenPlace, TokenRows};
use crate::cuda::{HiddenCheck, Ptr, Stream};
use crate::error::WorkerId;
use crate::train::TrainError;
use half::bf16;
use shared::core::Group;
use shared::id::{DrafterId, MicrobatchId, StepId, TargetId};
use shared::plan::Plan;
use shared::policy::Barrier;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Runs the target on one GPU.
pub(super) struct CudaTargetWorker {
    shared: Arc<Shared>,
    device: usize,
    target: CudaTarget,
}

impl CudaTargetWorker {
    pub(super) fn new(id: TargetId, shared: Arc<Shared>) -> Result<Self, WorkError> {
        let device = shared.device_of(WorkerId::Target(id));
        let weights = &shared.devices[device].weights;
        let target = CudaTarget::new(weights, shared.target_options()).map_err(fatal)?;
        let mut worker = Self {
            shared,
            device,
            target,
        };
        // Kernels are chosen, and some of them timed, when a size is first met. For sizes that come often that is done before the run begins.
        for id in frequent_sizes(&worker.shared.batches.plan) {
            drop(worker.run(id)?);
        }
        Ok(worker)
    }

    fn run(&mut self, id: MicrobatchId) -> Result<CudaHidden, WorkError> {
        let batch = self.shared.batches.batch(id).map_err(fatal)?;
        let rows = TokenRows::from(&batch);
        let at = self.shared.devices[self.device].slots.take()?;
        let elements = rows.ids.len() * self.shared.per_token();
        let [features, last] = self.shared.widths().map(|width| width * rows.ids.len());
        let slot = on_device(&at)?;
        let place = HiddenPlace {
            features: slot.at(0..features),
            last_hidden: (last > 0).then(|| slot.at(features..elements)),
        };
        self.target.forward(&rows, place).map_err(fatal)?;
        let ready = self.target.stream().record().map_err(fatal)?;
        // The core is told of a forward's end when it has ended.
        ready.synchronize().map_err(fatal)?;
        let said = Described {
            rows: rows.lengths.len(),
            tokens: rows.width,
            widths: self.shared.widths(),
            stamp: Stamp::of_layers(&self.shared.captures.layers, &batch),
        };
        Ok(CudaHidden {
            at,
            elements,
            ready,
            said: Arc::new(said),
        })
    }
}

impl TargetWorker<CudaHidden> for CudaTargetWorker {
    fn forward(&mut self, job: Job) -> Result<CudaHidden, WorkError> {
        self.run(job.microbatch)
    }
}

/// Sizes that are met before the run begins, at most.
const SIZES_MAX: usize = 16;

/// One microbatch of each size of a plan that is met before the run begins.
fn frequent_sizes(plan: &Plan) -> Vec<MicrobatchId> {
    let sizes = plan.microbatches.iter();
    let rows = frequent(sizes.map(|m| (m.padded.0, m.sample_count())));
    rows.into_iter().map(MicrobatchId::from_index).collect()
}

/// Where each size comes first, the most frequent sizes first. Where sizes are many, those that come once are left out: what is met once
/// costs as much before the run as in it.
fn frequent(sizes: impl Iterator<Item = (u64, u32)>) -> Vec<usize> {
    let mut rows: BTreeMap<(u64, u32), (usize, usize)> = BTreeMap::new();
    for (row, size) in sizes.enumerate() {
        rows.entry(size).or_insert((0, row)).0 += 1;
    }
    let are_few = rows.len() <= SIZES_MAX;
    let mut frequent: Vec<(usize, usize)> = rows
        .into_values()
        .filter(|(count, _)| are_few || *count > 1)
        .collect();
    frequent.sort_unstable_by_key(|&(count, row)| (std::cmp::Reverse(count), row));
    frequent.truncate(SIZES_MAX);
    frequent.into_iter().map(|(_, row)| row).collect()
}

/// Where the hidden states are, on the worker's own GPU.
pub(super) fn on_device(slot: &Slot) -> Result<Ptr<bf16>, WorkError> {
    match slot {
        Slot::Device(buffer) => Ok(buffer.ptr()),
        Slot::Pinned(_) | Slot::Pageable(_) => Err(WorkError::Fatal(
            "hidden states in host memory were not fetched before their use".to_owned(),
        )),
    }
}

/// Trains a drafter on one GPU.
pub(super) struct CudaTrainer {
    id: DrafterId,
    shared: Arc<Shared>,
    check: HiddenCheck,
}

impl CudaTrainer {
    pub(super) fn new(id: DrafterId, shared: Arc<Shared>) -> Result<Self, WorkError> {
        let drafter = make_drafter(&shared, id)?;
        let check = HiddenCheck::new(drafter.stream(), shared.largest.rows, 1).map_err(fatal)?;
        *lock(&shared.drafters[id.index()]) = Some(drafter);
        Ok(Self { id, shared, check })
    }

    /// The members' drafters, taken out for the time of a step, in their order.
    fn taken(&self, members: &[DrafterId]) -> Vec<CudaDrafter> {
        let each = members.iter();
        each.filter_map(|id| lock(&self.shared.drafters[id.index()]).take())
            .collect()
    }
}

impl DrafterWorker<CudaHidden> for CudaTrainer {
    fn train(&mut self, job: Job, _: StepId, hidden: &CudaHidden) -> Result<(), WorkError> {
        let limit = self.shared.options.limits.slots_max;
        let passes = self.shared.batches.passes(job.microbatch, limit);
        let passes = passes.map_err(|error| failed(error.into()))?;
        let mut drafter = lock(&self.shared.drafters[self.id.index()]);
        let drafter = drafter
            .as_mut()
            .ok_or_else(|| fatal("the drafter's model is lost"))?;
        let stream: Stream = drafter.stream().clone();
        let device = self.shared.device_of(WorkerId::Drafter(self.id));
        self.shared
            .look_at(hidden, job.microbatch, &self.check, &stream, device)?;
        let slot = on_device(&hidden.at)?.at(0..hidden.elements);
        let widths = self.shared.widths();
        let tokens = hidden.said.tokens;
        let behind = hidden.said.rows * tokens * widths[0];
        for pass in passes {
            let (rows, _, _) = pass.plan.shape();
            let part = |begin: usize, width: usize| {
                let first = begin + pass.first_row * tokens * width;
                slot.at(first..first + rows * tokens * width)
            };
            let given = Given {
                features: part(0, widths[0]),
                last_hidden: (widths[1] > 0).then(|| part(behind, widths[1])),
                tokens,
            };
            drafter.learn(given, &pass.plan).map_err(failed)?;
        }
        // The core is told of the end when it has ended, and the slot is free then.
        stream.synchronize().map_err(fatal)
    }

    fn apply(&mut self, job: ApplyJob, members: &[DrafterId]) -> Result<(), WorkError> {
        let is_one_for_all = self.shared.barrier == Barrier::All;
        if is_one_for_all && members.first() != Some(&DrafterId(0)) {
            return Err(fatal(
                "drafter 0, which holds the optimizer's state, is lost; resume from the last checkpoint",
            ));
        }
        let mut drafters = self.taken(members);
        if drafters.len() < members.len() {
            return Err(fatal("the model of a drafter is lost"));
        }
        let numbers: Vec<usize> = members.iter().map(|id| id.index()).collect();
        let outcome = self.shared.sums.step(&numbers, &mut drafters);
        for (id, drafter) in members.iter().zip(drafters) {
            *lock(&self.shared.drafters[id.index()]) = Some(drafter);
        }
        let report = outcome.map_err(failed)?;
        if let Some(steps) = &*lock(&self.shared.steps) {
            let group = match is_one_for_all {
                true => Group::All,
                false => Group::One(self.id),
            };
            // Whoever asked to hear of steps may have stopped listening.
            let _ = steps.send(AppliedStep {
                step: job.step,
                group,
                report,
            });
        }
        Ok(())
    }
}

fn failed(error: DrafterError) -> WorkError {
    match error {
        DrafterError::Train(
            TrainError::LossNotFinite { .. } | TrainError::GradientNotFinite { .. },
        ) => WorkError::NonFinite(error.to_string()),
        error => fatal(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_few_sizes_are_met_before_a_run_and_of_many_those_that_come_often() {
        let few = [(512, 1), (1024, 2), (1024, 2), (1024, 3)];
        assert_eq!(frequent(few.into_iter()), [1, 0, 3]);
        let once = (0..30).map(|n| (n, 1));
        let twice = (0..20).flat_map(|n| [(100 + n, 1); 2]);
        let chosen = frequent(once.chain(twice));
        let firsts: Vec<usize> = (0..SIZES_MAX).map(|n| 30 + 2 * n).collect();
        assert_eq!(chosen, firsts);
    }
}
