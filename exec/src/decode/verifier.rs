//! What decoding needs of a target: read tokens, say what comes next, forget the last ones.

use candle_core::Tensor;

use super::choice::{Choice, choices};
use super::generate::Batch;
use crate::model::{ModelError, PaddedBatch, Sample, Target};

/// What a target gives for the tokens it has just read.
#[derive(Debug, Clone)]
pub struct Extension {
    /// Outputs of the captured layers at these tokens [n, K·H].
    pub features: Tensor,
    /// What it would say behind each of the last tokens, as many as were asked for.
    pub choices: Vec<Choice>,
}

/// A target with a text that grows at its end.
pub trait Verifier {
    /// Reads `tokens` behind the text so far. Choices are given behind the last `wanted` of them:
    /// the head over the vocabulary is most of the work for short texts.
    ///
    /// Errors: tokens outside the vocabulary, the tensor library's.
    fn extend(&mut self, tokens: &[u32], wanted: usize) -> Result<Extension, ModelError>;

    /// Forgets all but the first `len` tokens.
    ///
    /// Errors: a target that keeps what cannot be taken back.
    fn truncate(&mut self, len: usize) -> Result<(), ModelError>;

    /// Tokens read and kept.
    fn len(&self) -> usize;

    /// Whether nothing is kept.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A verifier that reads the whole text again at every step: slow, and right by construction.
#[derive(Debug)]
pub struct Recompute {
    target: Target,
    tokens: Vec<u32>,
}

impl Recompute {
    /// An empty text before `target`.
    pub fn new(target: &Target) -> Self {
        Self {
            target: target.clone().with_last_hidden(true),
            tokens: Vec::new(),
        }
    }
}

impl Verifier for Recompute {
    fn extend(&mut self, tokens: &[u32], wanted: usize) -> Result<Extension, ModelError> {
        let before = self.tokens.len();
        self.tokens.extend_from_slice(tokens);
        let (features, hidden) = forward(&self.target, &self.tokens)?;
        let all = self.tokens.len();
        let last = hidden.narrow(0, all - wanted, wanted)?;
        Ok(Extension {
            features: features.narrow(0, before, tokens.len())?,
            choices: choices(&self.target.head(&last.contiguous()?)?)?,
        })
    }

    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        self.tokens.truncate(len);
        Ok(())
    }

    fn len(&self) -> usize {
        self.tokens.len()
    }
}

/// Many texts, each read again as a whole at every step.
#[derive(Debug)]
pub struct RecomputeBatch {
    target: Target,
    rows: Vec<Vec<u32>>,
}

impl RecomputeBatch {
    /// No texts yet, before `target`.
    pub fn new(target: &Target) -> Self {
        Self {
            target: target.clone().with_last_hidden(true),
            rows: Vec::new(),
        }
    }

    fn logits(&self) -> Result<Tensor, ModelError> {
        let last = |row: &Vec<u32>| {
            let (_, hidden) = forward(&self.target, row)?;
            Ok(hidden.narrow(0, row.len() - 1, 1)?)
        };
        let last: Vec<Tensor> = self
            .rows
            .iter()
            .map(last)
            .collect::<Result<_, ModelError>>()?;
        self.target.head(&Tensor::cat(&last, 0)?)
    }
}

impl Batch for RecomputeBatch {
    fn start(&mut self, prompts: &[&[u32]]) -> Result<Tensor, ModelError> {
        self.rows = prompts.iter().map(|prompt| prompt.to_vec()).collect();
        self.logits()
    }

    fn step(&mut self, tokens: &[u32]) -> Result<Tensor, ModelError> {
        for (row, &token) in self.rows.iter_mut().zip(tokens) {
            row.push(token);
        }
        self.logits()
    }

    fn keep(&mut self, rows: &[usize]) -> Result<(), ModelError> {
        self.rows = rows.iter().map(|&row| self.rows[row].clone()).collect();
        Ok(())
    }
}

/// Features [S, K·H] and last hidden states [S, H] of one text.
fn forward(target: &Target, tokens: &[u32]) -> Result<(Tensor, Tensor), ModelError> {
    let mask = vec![false; tokens.len()];
    let sample = Sample {
        input_ids: tokens,
        loss_mask: &mask,
    };
    let batch = PaddedBatch::new(&[sample], tokens.len())?;
    let states = target.forward(&batch)?;
    let hidden = states
        .last_hidden
        .expect("the target was told to give its last hidden state");
    Ok((states.features.get(0)?, hidden.get(0)?))
}
