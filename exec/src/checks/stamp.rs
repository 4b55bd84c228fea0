//! What a target says it computed.

use shared::record::Digest;

use crate::model::{HiddenStates, PaddedBatch, Target};

/// Hidden states with the stamp of the target that computed them.
#[derive(Debug, Clone)]
pub struct Stamped {
    /// The hidden states.
    pub states: HiddenStates,
    /// What they were computed from.
    pub stamp: Stamp,
}

/// What some hidden states were computed from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stamp {
    /// The captured layers, in the order in which their outputs are concatenated.
    pub layer_ids: Vec<usize>,
    /// One entry a row.
    pub rows: Vec<RowStamp>,
}

/// What one row was computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowStamp {
    /// Real tokens.
    pub tokens: usize,
    /// Fingerprint of their ids.
    pub digest: u64,
}

impl Stamp {
    /// The stamp of what `target` computes from `batch`.
    pub fn of(target: &Target, batch: &PaddedBatch) -> Self {
        Self::of_layers(target.captured(), batch)
    }

    /// The same for a target that captures `layers`.
    pub fn of_layers(layers: &[usize], batch: &PaddedBatch) -> Self {
        Self {
            layer_ids: layers.to_vec(),
            rows: RowStamp::all(batch),
        }
    }
}

impl RowStamp {
    /// The stamp of a row of real tokens.
    pub fn of(ids: &[u32]) -> Self {
        let mut digest = Digest::default();
        ids.iter().for_each(|&id| digest.word(id.into()));
        Self {
            tokens: ids.len(),
            digest: digest.finish(),
        }
    }

    /// The stamps of all rows of a batch.
    pub(super) fn all(batch: &PaddedBatch) -> Vec<Self> {
        let rows = batch.input_ids.iter().zip(&batch.lengths);
        rows.map(|(ids, &length)| Self::of(&ids[..length]))
            .collect()
    }
}
