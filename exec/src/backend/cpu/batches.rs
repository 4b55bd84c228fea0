//! Microbatches as the models take them.

use crate::data::Dataset;
use crate::model::{ModelError, PaddedBatch, Sample};
use crate::train::{BlockPlan, BlockSpec, TrainError, anchors};
use shared::id::MicrobatchId;
use shared::plan::Plan;
use std::sync::Arc;

/// The samples of a plan, and how blocks are laid out over them.
#[derive(Debug)]
pub(super) struct Batches {
    pub(super) plan: Arc<Plan>,
    pub(super) data: Arc<Dataset>,
    pub(super) blocks: BlockSpec,
    pub(super) anchors_max: usize,
    pub(super) seed: u64,
}

impl Batches {
    /// The tokens of a microbatch, padded as planned.
    pub(super) fn batch(&self, id: MicrobatchId) -> Result<PaddedBatch, ModelError> {
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
    pub(super) fn block_plan(
        &self,
        id: MicrobatchId,
        batch: &PaddedBatch,
    ) -> Result<BlockPlan, TrainError> {
        let epoch = self.plan.microbatch(id).epoch.into();
        let samples = self.plan.samples_of(id).iter();
        let anchors: Vec<Vec<u32>> = samples
            .zip(self.masks(id))
            .map(|(sample, mask)| {
                anchors::draw(self.seed, epoch, sample.0.into(), &mask, self.anchors_max)
            })
            .collect();
        BlockPlan::new(batch, &anchors, &self.blocks)
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
