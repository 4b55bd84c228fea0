//! A target that follows a script, and drafters that know it.

use candle_core::{Device, Tensor};

use super::choice::Choice;
use super::drafting::Proposer;
use super::verifier::{Extension, Verifier};
use crate::model::ModelError;

/// A target that says token `script[i + 1]` behind a text of i + 1 tokens, whatever they are. Its
/// features are the positions, which tell whether a drafter gets the right ones.
pub(super) struct Scripted {
    pub(super) script: Vec<u32>,
    pub(super) read: Vec<u32>,
    pub(super) forwards: usize,
}

impl Scripted {
    pub(super) fn new(script: impl IntoIterator<Item = u32>) -> Self {
        Self {
            script: script.into_iter().collect(),
            read: Vec::new(),
            forwards: 0,
        }
    }
}

impl Verifier for Scripted {
    fn extend(&mut self, tokens: &[u32], wanted: usize) -> Result<Extension, ModelError> {
        let first = self.read.len();
        self.read.extend_from_slice(tokens);
        self.forwards += 1;
        let positions = (first..self.read.len()).map(|p| p as f32);
        let positions: Vec<f32> = positions.collect();
        let said = (self.read.len() - wanted..self.read.len()).map(|at| Choice {
            token: self.script.get(at + 1).copied().unwrap_or(0),
            gap: 1.0,
        });
        Ok(Extension {
            features: Tensor::from_vec(positions, (tokens.len(), 1), &Device::Cpu)?,
            choices: said.collect(),
        })
    }

    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        self.read.truncate(len);
        Ok(())
    }

    fn len(&self) -> usize {
        self.read.len()
    }
}

/// Drafts the script, each draft right as long as `right` says so for its position.
pub(super) struct Oracle<F> {
    pub(super) script: Vec<u32>,
    pub(super) drafts: usize,
    pub(super) right: F,
    /// Positions whose features it was given, in order.
    pub(super) context: Vec<f32>,
}

impl<F: Fn(usize) -> bool> Oracle<F> {
    pub(super) fn new(script: &[u32], drafts: usize, right: F) -> Self {
        Self {
            script: script.to_vec(),
            drafts,
            right,
            context: Vec::new(),
        }
    }
}

impl<F: Fn(usize) -> bool> Proposer for Oracle<F> {
    fn propose(&mut self, known: &[u32]) -> Result<Vec<u32>, ModelError> {
        let expected: Vec<f32> = (0..known.len() - 1).map(|p| p as f32).collect();
        assert_eq!(self.context, expected, "all positions before the anchor");
        let drafts = (known.len()..known.len() + self.drafts).map(|at| {
            let token = self.script.get(at).copied().unwrap_or(0);
            if (self.right)(at) { token } else { token + 1 }
        });
        Ok(drafts.collect())
    }

    fn accept(&mut self, features: &Tensor) -> Result<(), ModelError> {
        self.context
            .extend(features.flatten_all()?.to_vec1::<f32>()?);
        Ok(())
    }
}
