//! Incremental decoding: tokens are read piece by piece, and what was read is remembered.

mod batch;
mod history;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::Target;
use crate::model::ModelError;
pub use batch::{BatchExtension, BatchSession};

/// What a target computes for the n new tokens of one row.
#[derive(Debug, Clone)]
pub struct Extension {
    /// Outputs of the captured layers, concatenated in the order of `target_layer_ids` [n, K·H].
    pub features: Tensor,
    /// The last hidden state after the final norm [n, H]; [`Target::head`] gives its logits.
    pub last_hidden: Tensor,
}

/// One sequence that grows; what it computes equals [`Target::forward`] over the whole of it.
#[derive(Debug)]
pub struct TargetSession {
    batch: BatchSession,
}

impl TargetSession {
    pub(super) fn new(target: &Target) -> Result<Self, ModelError> {
        Ok(Self {
            batch: BatchSession::new(target, 1)?,
        })
    }

    /// Reads `tokens` behind all that were read before.
    ///
    /// Errors: no tokens, a token outside the vocabulary.
    pub fn extend(&mut self, tokens: &[u32]) -> Result<Extension, ModelError> {
        self.batch.extend(&[tokens])?.row(0)
    }

    /// Tokens read and not dropped.
    pub fn len(&self) -> usize {
        self.batch.len(0)
    }

    /// Whether nothing has been read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all tokens behind the first `len`, such as drafted ones that were rejected; nothing
    /// happens if there are no more than that.
    pub fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        self.batch.truncate(0, len)
    }
}
