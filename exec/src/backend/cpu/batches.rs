//! Microbatches as the models take them.

use super::CpuSetup;
use crate::data::Dataset;
use crate::model::{ModelError, PaddedBatch, Sample};
use crate::train::{BlockPlan, BlockSpec, TrainError, anchors};
use shared::id::MicrobatchId;
use shared::plan::Plan;
use std::sync::Arc;

/// Some rows of a microbatch, trained on together.
#[derive(Debug)]
pub(in crate::backend) struct Pass {
    /// The first of them.
    pub(in crate::backend) first_row: usize,
    /// Their blocks.
    pub(in crate::backend) plan: BlockPlan,
}

/// The samples of a plan, and how blocks are laid out over them.
#[derive(Debug)]
pub(in crate::backend) struct Batches {
    pub(in crate::backend) plan: Arc<Plan>,
    pub(in crate::backend) data: Arc<Dataset>,
    pub(in crate::backend) blocks: BlockSpec,
    pub(in crate::backend) anchors_max: usize,
    pub(in crate::backend) seed: u64,
}

impl Batches {
    /// Those of a run.
    pub(in crate::backend) fn of(setup: CpuSetup) -> Self {
        Self {
            plan: setup.plan,
            data: setup.data,
            blocks: setup.blocks,
            anchors_max: setup.anchors_max,
            seed: setup.seed,
        }
    }

    /// The tokens of a microbatch, padded as planned.
    pub(in crate::backend) fn batch(&self, id: MicrobatchId) -> Result<PaddedBatch, ModelError> {
        let microbatch = self.plan.microbatch(id);
        let masks = self.masks(id);
        let ids = self
            .plan
            .samples_of(id)
            .iter()
            .map(|id| self.data.ids(id.index()));
        let samples: Vec<Sample<'_>> = ids
            .zip(&masks)
            .map(|(input_ids, loss_mask)| Sample {
                input_ids,
                loss_mask,
            })
            .collect();
        let row = microbatch.padded.0 / u64::from(microbatch.sample_count());
        PaddedBatch::new(&samples, row as usize)
    }

    /// The blocks to train on in a microbatch's `batch`: anchors depend on seed, epoch and sample alone.
    pub(in crate::backend) fn block_plan(
        &self,
        id: MicrobatchId,
        batch: &PaddedBatch,
    ) -> Result<BlockPlan, TrainError> {
        BlockPlan::new(batch, &self.anchors(id), &self.blocks)
    }

    /// The same, cut by rows so that each part has at most `slots_max` slots, or one row.
    pub(in crate::backend) fn passes(
        &self,
        id: MicrobatchId,
        slots_max: usize,
    ) -> Result<Vec<Pass>, TrainError> {
        let (batch, anchors) = (self.batch(id)?, self.anchors(id));
        let row = anchors.iter().map(Vec::len).max().unwrap_or(0) * self.blocks.block_size;
        let rows = (slots_max / row.max(1)).max(1);
        let starts = (0..batch.rows()).step_by(rows);
        let pass = |first_row: usize| {
            let range = first_row..batch.rows().min(first_row + rows);
            let part = PaddedBatch {
                input_ids: batch.input_ids[range.clone()].to_vec(),
                lengths: batch.lengths[range.clone()].to_vec(),
                loss_mask: batch.loss_mask[range.clone()].to_vec(),
            };
            Ok(Pass {
                first_row,
                plan: BlockPlan::new(&part, &anchors[range], &self.blocks)?,
            })
        };
        starts.map(pass).collect()
    }

    fn anchors(&self, id: MicrobatchId) -> Vec<Vec<u32>> {
        let epoch = self.plan.microbatch(id).epoch.into();
        let samples = self.plan.samples_of(id).iter();
        samples
            .zip(self.masks(id))
            .map(|(sample, mask)| {
                anchors::draw(self.seed, epoch, sample.0.into(), &mask, self.anchors_max)
            })
            .collect()
    }

    fn masks(&self, id: MicrobatchId) -> Vec<Vec<bool>> {
        let mask = |i: usize| self.data.mask(i).iter().map(|flag| *flag != 0).collect();
        self.plan
            .samples_of(id)
            .iter()
            .map(|sample| mask(sample.index()))
            .collect()
    }
}
