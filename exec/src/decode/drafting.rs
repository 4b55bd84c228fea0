//! Who drafts.

use candle_core::Tensor;

use super::choice::choices;
use crate::model::{Drafter, DrafterSession, ModelError};

/// Drafts the tokens behind a text.
pub trait Proposer {
    /// Drafts what follows `known`, whose last token is the anchor: as many tokens as it dares, or
    /// none.
    ///
    /// Errors: the tensor library's.
    fn propose(&mut self, known: &[u32]) -> Result<Vec<u32>, ModelError>;

    /// Takes in the target's features [n, K·H] at the next n tokens that are certain. Called
    /// before [`Self::propose`] for all tokens before the anchor, never for the anchor itself.
    ///
    /// Errors: the tensor library's.
    fn accept(&mut self, features: &Tensor) -> Result<(), ModelError>;
}

/// Drafts nothing: the target alone, one token a forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nothing;

impl Proposer for Nothing {
    fn propose(&mut self, _: &[u32]) -> Result<Vec<u32>, ModelError> {
        Ok(Vec::new())
    }

    fn accept(&mut self, _: &Tensor) -> Result<(), ModelError> {
        Ok(())
    }
}

/// A DFlash drafter: slots 1 … T−1 of one block, each its most likely token.
pub struct BlockDrafter {
    drafter: Drafter,
    session: DrafterSession,
}

impl BlockDrafter {
    /// `drafter` before an empty text.
    ///
    /// Errors: the tensor library's.
    pub fn new(drafter: &Drafter) -> Result<Self, ModelError> {
        Ok(Self {
            drafter: drafter.clone(),
            session: drafter.session()?,
        })
    }
}

impl Proposer for BlockDrafter {
    fn propose(&mut self, known: &[u32]) -> Result<Vec<u32>, ModelError> {
        let context = self.session.len();
        assert_eq!(
            context + 1,
            known.len(),
            "the drafter's context ends right before the anchor"
        );
        let hidden = self.session.draft(known[context])?;
        let drafts = hidden.narrow(0, 1, hidden.dim(0)? - 1)?;
        let chosen = choices(&self.drafter.logits(&drafts.contiguous()?)?)?;
        Ok(chosen.iter().map(|choice| choice.token).collect())
    }

    fn accept(&mut self, features: &Tensor) -> Result<(), ModelError> {
        self.session.append(features)
    }
}
