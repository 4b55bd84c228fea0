//! Speculative decoding of one prompt.

use super::choice::Choice;
use super::drafting::Proposer;
use super::verifier::Verifier;
use crate::model::ModelError;

/// When an answer ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Tokens of an answer, at most.
    pub new_tokens_max: usize,
    /// Tokens that end an answer; they are part of it.
    pub ends: Vec<u32>,
}

/// One forward of the target behind the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Position of the anchor: tokens before it.
    pub anchor: usize,
    /// Drafts that were offered, up to an end token that was accepted.
    pub offered: usize,
    /// Drafts that the target accepted.
    pub accepted: usize,
    /// Tokens the answer grew by: drafts accepted and the bonus, which does not follow an end.
    pub gained: usize,
}

/// An answer and how it came about.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The answer, at most `new_tokens_max` tokens.
    pub tokens: Vec<u32>,
    /// The target's choices, one a token of the answer.
    pub choices: Vec<Choice>,
    /// All rounds. The first token of an answer comes from reading the prompt and is of no round;
    /// the last round may have gained more than the answer had room for.
    pub rounds: Vec<Round>,
    /// Whether it ended by itself.
    pub ended: bool,
}

/// Decodes greedily behind `prompt`: `proposer` drafts, `verifier` decides.
///
/// Errors: an empty prompt, tokens outside the vocabulary, the tensor library's.
pub fn speculate(
    verifier: &mut dyn Verifier,
    proposer: &mut dyn Proposer,
    prompt: &[u32],
    limits: &Limits,
) -> Result<Decoded, ModelError> {
    let first = read_prompt(verifier, proposer, prompt)?;
    let mut known = prompt.to_vec();
    known.push(first.token);
    let mut choices = vec![first];
    let mut rounds = Vec::new();
    let mut ended = limits.ends.contains(&first.token);
    while !ended && choices.len() < limits.new_tokens_max {
        let anchor = known.len() - 1;
        assert_eq!(
            verifier.len(),
            anchor,
            "the target has read all but the anchor"
        );
        let drafts = proposer.propose(&known)?;
        let block = [&known[anchor..], &drafts].concat();
        let extension = verifier.extend(&block, block.len())?;
        let (round, gained) = judge(anchor, &drafts, &extension.choices, &limits.ends);
        rounds.push(round);
        known.extend(gained.iter().map(|choice| choice.token));
        choices.extend_from_slice(gained);
        ended = gained
            .last()
            .is_some_and(|last| limits.ends.contains(&last.token));
        if !ended {
            verifier.truncate(anchor + 1 + round.accepted)?;
            proposer.accept(&extension.features.narrow(0, 0, round.accepted + 1)?)?;
        }
    }
    choices.truncate(limits.new_tokens_max);
    let tokens: Vec<u32> = choices.iter().map(|choice| choice.token).collect();
    Ok(Decoded {
        ended: tokens.last().is_some_and(|last| limits.ends.contains(last)),
        tokens,
        choices,
        rounds,
    })
}

/// Reads the prompt; what the target says behind it is the first anchor.
pub(super) fn read_prompt(
    verifier: &mut dyn Verifier,
    proposer: &mut dyn Proposer,
    prompt: &[u32],
) -> Result<Choice, ModelError> {
    if prompt.is_empty() {
        let problem = "the prompt has no tokens; leave it out".to_owned();
        return Err(ModelError::Batch { row: 0, problem });
    }
    verifier.truncate(0)?;
    let extension = verifier.extend(prompt, 1)?;
    proposer.accept(&extension.features)?;
    Ok(extension.choices[0])
}

/// Compares drafts with the target's `choices` behind the anchor and behind each draft.
fn judge<'a>(
    anchor: usize,
    drafts: &[u32],
    choices: &'a [Choice],
    ends: &[u32],
) -> (Round, &'a [Choice]) {
    let accepted = drafts
        .iter()
        .zip(choices)
        .take_while(|(draft, choice)| **draft == choice.token)
        .count();
    let gained = &choices[..accepted + 1];
    // What the target would say behind the end of its answer is no part of it.
    let end = gained
        .iter()
        .position(|choice| ends.contains(&choice.token));
    let gained = end.map_or(gained, |end| &gained[..end + 1]);
    let accepted = accepted.min(gained.len());
    let round = Round {
        anchor,
        offered: end.map_or(drafts.len(), |end| drafts.len().min(end + 1)),
        accepted,
        gained: gained.len(),
    };
    (round, gained)
}
