//! Which blocks a microbatch asks the drafter for.

use super::TrainError;
use crate::model::{DrafterConfig, PaddedBatch};

/// How blocks are cut and weighted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockSpec {
    /// Slots a block, anchor included (T).
    pub block_size: usize,
    /// The token in slots 1 … T−1.
    pub mask_token_id: u32,
    /// Decay of the loss along the block, in slots: slot k weighs exp(−(k−1)/gamma).
    pub gamma: f64,
}

impl BlockSpec {
    /// The blocks of a drafter, with the published decay for their size.
    pub fn of(config: &DrafterConfig) -> Self {
        let DrafterConfig {
            block_size,
            mask_token_id,
            ..
        } = *config;
        Self {
            block_size,
            mask_token_id,
            gamma: default_gamma(block_size),
        }
    }

    /// The same blocks with another decay, in slots.
    #[must_use]
    pub fn with_gamma(self, gamma: f64) -> Self {
        Self { gamma, ..self }
    }
}

/// The published decay for blocks of 16, 10 and 8 slots (7, 5, 4), half the block for others.
pub fn default_gamma(block_size: usize) -> f64 {
    match block_size {
        16 => 7.0,
        10 => 5.0,
        8 => 4.0,
        other => other as f64 / 2.0,
    }
}

/// All blocks of a microbatch: B rows of A blocks of T slots, row-major.
///
/// Slot 0 holds the anchor's real token, the others the mask token; slot k stands at position
/// anchor + k and is asked for the data's token there. Slots k ≥ 1 are supervised where their
/// position lies in the row and bears loss. A block may run past the end of its row: those slots
/// are computed and never supervised. Rows with fewer anchors than A get dropped blocks, which see
/// only themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockPlan {
    rows: usize,
    blocks: usize,
    slots: usize,
    starts: Vec<u32>,
    tokens: Vec<u32>,
    positions: Vec<u32>,
    labels: Vec<u32>,
    weights: Vec<f64>,
}

impl BlockPlan {
    /// Lays out the blocks of `batch` at `anchors`, one sorted list a row.
    ///
    /// Errors: another number of lists than rows, or an anchor outside its row.
    pub fn new(
        batch: &PaddedBatch,
        anchors: &[Vec<u32>],
        spec: &BlockSpec,
    ) -> Result<Self, TrainError> {
        if anchors.len() != batch.rows() {
            let problem = format!(
                "{} lists of anchors for {} rows",
                anchors.len(),
                batch.rows()
            );
            return Err(TrainError::Plan { row: 0, problem });
        }
        let blocks = anchors.iter().map(Vec::len).max().unwrap_or(0);
        let mut plan = Self {
            rows: batch.rows(),
            blocks,
            slots: spec.block_size,
            starts: Vec::with_capacity(batch.rows() * blocks),
            tokens: Vec::new(),
            positions: Vec::new(),
            labels: Vec::new(),
            weights: Vec::new(),
        };
        for (row, list) in anchors.iter().enumerate() {
            let length = batch.lengths[row];
            if let Some(anchor) = list.iter().find(|&&anchor| anchor as usize >= length) {
                let problem = format!("anchor {anchor} in a sample of {length} tokens");
                return Err(TrainError::Plan { row, problem });
            }
            let (ids, mask) = (&batch.input_ids[row], &batch.loss_mask[row]);
            for block in 0..blocks {
                plan.push_block(list.get(block).copied(), ids, mask, spec);
            }
        }
        Ok(plan)
    }

    /// Adds one block; `None` is a dropped one, laid out at position 0.
    fn push_block(&mut self, anchor: Option<u32>, ids: &[u32], mask: &[bool], spec: &BlockSpec) {
        let start = anchor.unwrap_or(0);
        self.starts.push(start);
        for slot in 0..spec.block_size {
            let position = start as usize + slot;
            let label = ids.get(position).copied().unwrap_or(0);
            let bears_loss = mask.get(position).copied().unwrap_or(false);
            let supervised = anchor.is_some() && slot > 0 && bears_loss;
            let decay = || (-(slot as f64 - 1.0) / spec.gamma).exp();
            self.tokens
                .push(if slot == 0 { label } else { spec.mask_token_id });
            self.positions.push(start + slot as u32);
            self.labels.push(label);
            self.weights.push(if supervised { decay() } else { 0.0 });
        }
    }

    /// Rows, blocks a row, slots a block: (B, A, T).
    pub fn shape(&self) -> (usize, usize, usize) {
        (self.rows, self.blocks, self.slots)
    }

    /// Context tokens that some block sees: the last anchor's position.
    pub fn reach(&self) -> usize {
        self.starts.iter().max().map_or(0, |&start| start as usize)
    }

    /// Anchor positions [B·A], 0 for dropped blocks.
    pub fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// Input tokens of all slots [B·A·T].
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Positions of all slots [B·A·T].
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// The token that each slot is asked for [B·A·T]; 0 past the end of the row.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// Loss weights of all slots [B·A·T]; 0 where unsupervised.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Sum of all loss weights.
    pub fn weight_sum(&self) -> f64 {
        self.weights.iter().sum()
    }

    /// Blocks with any supervised slot.
    pub fn supervised_blocks(&self) -> usize {
        let blocks = self.weights.chunks(self.slots);
        blocks
            .filter(|weights| weights.iter().any(|&weight| weight > 0.0))
            .count()
    }

    /// The plan's parts, to be damaged on purpose.
    #[cfg(test)]
    pub(crate) fn parts_mut(&mut self) -> Parts<'_> {
        Parts {
            starts: &mut self.starts,
            positions: &mut self.positions,
            labels: &mut self.labels,
            weights: &mut self.weights,
        }
    }
}

/// A plan's tensors, see its methods of the same names.
#[cfg(test)]
pub(crate) struct Parts<'a> {
    pub(crate) starts: &'a mut [u32],
    pub(crate) positions: &'a mut [u32],
    pub(crate) labels: &'a mut [u32],
    pub(crate) weights: &'a mut [f64],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Sample;

    const SPEC: BlockSpec = BlockSpec {
        block_size: 4,
        mask_token_id: 99,
        gamma: 2.0,
    };

    fn batch() -> PaddedBatch {
        let long = Sample {
            input_ids: &[10, 11, 12, 13, 14, 15],
            loss_mask: &[false, true, true, false, true, true],
        };
        let short = Sample {
            input_ids: &[20, 21, 22],
            loss_mask: &[true; 3],
        };
        PaddedBatch::new(&[long, short], 6).unwrap()
    }

    #[test]
    fn slots_hold_anchor_then_masks_and_ask_for_the_tokens_behind() {
        let plan = BlockPlan::new(&batch(), &[vec![1, 4], vec![1]], &SPEC).unwrap();
        assert_eq!(plan.shape(), (2, 2, 4));
        assert_eq!(plan.tokens()[..8], [11, 99, 99, 99, 14, 99, 99, 99]);
        assert_eq!(plan.positions()[..8], [1, 2, 3, 4, 4, 5, 6, 7]);
        assert_eq!(plan.labels()[..6], [11, 12, 13, 14, 14, 15]);
        assert_eq!(plan.reach(), 4);
    }

    #[test]
    fn supervision_skips_holes_and_ends_with_the_sample() {
        let plan = BlockPlan::new(&batch(), &[vec![1, 4], vec![1]], &SPEC).unwrap();
        let (first, third) = (1.0, (-1.0f64).exp());
        assert_eq!(plan.weights()[..4], [0.0, first, 0.0, third]);
        assert_eq!(plan.weights()[4..8], [0.0, first, 0.0, 0.0]);
        assert_eq!(plan.weights()[8..12], [0.0, first, 0.0, 0.0]);
        assert_eq!(plan.weights()[12..], [0.0; 4]);
    }

    #[test]
    fn anchors_behind_the_sample_are_refused() {
        let error = BlockPlan::new(&batch(), &[vec![], vec![3]], &SPEC).unwrap_err();
        assert_eq!(
            error.to_string(),
            "block plan: row 1: anchor 3 in a sample of 3 tokens"
        );
    }

    #[test]
    fn decay_follows_the_block_size() {
        assert_eq!([16, 10, 8, 6].map(default_gamma), [7.0, 5.0, 4.0, 3.0]);
    }
}
