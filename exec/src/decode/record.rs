//! The target's own answer, and verifying drafts against it.

use candle_core::Tensor;

use super::choice::Choice;
use super::drafting::Nothing;
use super::speculate::{Limits, read_prompt};
use super::verifier::{Extension, Verifier};
use crate::model::ModelError;

/// What the target alone says behind a prompt, with what a drafter needs of it.
#[derive(Debug, Clone)]
pub struct Record {
    /// The prompt and the answer, and behind an answer cut by its limit as many tokens more as
    /// were asked for.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the answer.
    pub answer: usize,
    /// The target's choices, one a token behind the prompt.
    pub choices: Vec<Choice>,
    /// Features [tokens − 1, K·H]; the last token was never read.
    features: Tensor,
}

impl Record {
    /// The answer.
    pub fn answer(&self) -> &[u32] {
        &self.tokens[self.prompt..self.prompt + self.answer]
    }
}

/// Decodes greedily behind `prompt`, one token a forward, without any drafting. `more` tokens are
/// added where the limit cuts the answer, so that a last block can be judged whole.
///
/// Errors: as [`super::speculate()`].
pub fn answer_alone(
    verifier: &mut dyn Verifier,
    prompt: &[u32],
    limits: &Limits,
    more: usize,
) -> Result<Record, ModelError> {
    let mut features = Vec::new();
    let mut keep = Keep(&mut features);
    let mut choices = vec![read_prompt(verifier, &mut keep, prompt)?];
    let most = limits.new_tokens_max + more;
    let is_end = |choice: &Choice| limits.ends.contains(&choice.token);
    while choices.len() < most && !choices.last().is_some_and(is_end) {
        let newest = choices[choices.len() - 1].token;
        let extension = verifier.extend(&[newest], 1)?;
        features.push(extension.features);
        choices.extend(extension.choices);
    }
    let said = choices.iter().map(|choice| choice.token);
    Ok(Record {
        tokens: prompt.iter().copied().chain(said).collect(),
        prompt: prompt.len(),
        answer: choices.len().min(limits.new_tokens_max),
        choices,
        features: Tensor::cat(&features, 0)?,
    })
}

/// Keeps the features of the prompt.
struct Keep<'a>(&'a mut Vec<Tensor>);

impl super::Proposer for Keep<'_> {
    fn propose(&mut self, known: &[u32]) -> Result<Vec<u32>, ModelError> {
        Nothing.propose(known)
    }

    fn accept(&mut self, features: &Tensor) -> Result<(), ModelError> {
        self.0.push(features.clone());
        Ok(())
    }
}

/// Verifies drafts against a record instead of with the target.
///
/// Exact for greedy decoding: as long as a text is the record's, the target's choices and features
/// are the record's, and behind a draft that it refuses nothing is looked at.
#[derive(Debug)]
pub struct Recorded<'a> {
    record: &'a Record,
    len: usize,
}

impl<'a> Recorded<'a> {
    /// A verifier that has read nothing yet.
    pub fn new(record: &'a Record) -> Self {
        Self { record, len: 0 }
    }
}

impl Verifier for Recorded<'_> {
    fn extend(&mut self, tokens: &[u32], wanted: usize) -> Result<Extension, ModelError> {
        let (record, first) = (self.record, self.len);
        let known = record.tokens.len();
        let mut is_same = true;
        let mut choices = Vec::with_capacity(tokens.len());
        for (at, &token) in (first..).zip(tokens) {
            is_same &= at < known && record.tokens[at] == token;
            let choice = (at + 1).checked_sub(record.prompt);
            let said = choice.and_then(|at| record.choices.get(at)).copied();
            choices.push(said.filter(|_| is_same).unwrap_or(NEVER));
        }
        self.len += tokens.len();
        choices.drain(..tokens.len() - wanted);
        let rows = record.features.dim(0)?;
        let count = tokens.len().min(rows.saturating_sub(first));
        Ok(Extension {
            features: record.features.narrow(0, first.min(rows), count)?,
            choices,
        })
    }

    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        self.len = self.len.min(len);
        Ok(())
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// What stands behind a draft that was refused: no token.
const NEVER: Choice = Choice {
    token: u32::MAX,
    gap: 0.0,
};
