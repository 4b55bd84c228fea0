//! Decodes every prompt: the target alone, then with each drafter.

use super::loss::Groups;
use super::setup::{Kind, Named, Setup};
use crate::failure::{Failure, code};
use crate::terminal::bar;
use exec::decode::{
    BlockDrafter, Decoded, Limits, Ngram, Proposer, Record, Recorded, SessionVerifier, Verifier,
    answer_alone, speculate,
};
use exec::model::{ModelError, Target};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What was decoded.
pub(super) struct Measured {
    /// Whole prompts, in their order.
    pub(super) prompts: Vec<Answered>,
    /// Names of the drafters, in the order of [`Answered::drafted`].
    pub(super) names: Vec<String>,
    /// Loss on held-out samples, one a drafter, where it was asked for.
    pub(super) losses: Vec<Option<Groups>>,
}

/// One prompt, answered by the target alone and with every drafter.
pub(super) struct Answered {
    pub(super) id: String,
    /// Tokens of the prompt.
    pub(super) prompt: usize,
    /// Tokens of the target's own answer.
    pub(super) answer: usize,
    /// Whether it ended by itself.
    pub(super) ended: bool,
    /// Seconds a token that the target alone took.
    pub(super) alone_s: f64,
    pub(super) drafted: Vec<Drafted>,
}

/// One prompt with one drafter.
pub(super) struct Drafted {
    pub(super) decoded: Decoded,
    /// Seconds a token, where the target itself verified.
    pub(super) token_s: Option<f64>,
    /// Where the answer leaves the target's own, if it does.
    pub(super) difference: Option<Difference>,
}

/// The first token that is not the target's own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Difference {
    /// Its place in the answer, from 0.
    pub(super) at: usize,
    /// How clear the choice was there: the lesser of the two gaps between the best logits.
    pub(super) gap: f32,
}

/// Rounding differs between a forward of one token and one of a block; closer decisions than this may fall either way.
pub(super) const TIE_GAP_MAX: f32 = 1e-3;

impl Measured {
    /// The drafter and the place where an answer differs most clearly from the target's own.
    pub(super) fn worst_difference(&self) -> Option<(&str, Difference)> {
        let all = self.prompts.iter().flat_map(|prompt| {
            let drafted = self.names.iter().zip(&prompt.drafted);
            drafted.filter_map(|(name, drafted)| Some((name.as_str(), drafted.difference?)))
        });
        all.max_by(|a, b| a.1.gap.total_cmp(&b.1.gap))
    }
}

/// Decodes until all prompts are done, or `stop` is set: then after the prompt under way.
pub(super) fn measure(setup: &Setup, stop: &AtomicBool) -> Result<Measured, Failure> {
    let progress = bar(setup.prompts.len() as u64, "decoding");
    let mut prompts = Vec::new();
    for prompt in &setup.prompts {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let answered = answered(setup, &prompt.ids).map_err(|e| failed(&prompt.id, &e))?;
        prompts.push(Answered {
            id: prompt.id.clone(),
            ..answered
        });
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(Measured {
        prompts,
        names: setup.drafters.iter().map(|d| d.name.clone()).collect(),
        losses: Vec::new(),
    })
}

fn failed(id: &str, error: &ModelError) -> Failure {
    match error {
        ModelError::Batch { .. } => Failure::data(format!("prompt {id}: {error}")),
        _ => Failure::new(code::WORKER, format!("prompt {id}: {error}")),
    }
}

fn answered(setup: &Setup, prompt: &[u32]) -> Result<Answered, ModelError> {
    let begun = Instant::now();
    let mut verifier = verifier(&setup.target)?;
    let record = answer_alone(&mut *verifier, prompt, &setup.limits, setup.slots)?;
    let alone_s = begun.elapsed().as_secs_f64() / record.choices.len() as f64;
    let drafted = setup
        .drafters
        .iter()
        .map(|named| drafted(setup, named, &mut *verifier, &record))
        .collect::<Result<_, _>>()?;
    let last = record.answer().last();
    Ok(Answered {
        id: String::new(),
        prompt: prompt.len(),
        answer: record.answer,
        ended: last.is_some_and(|last| setup.limits.ends.contains(last)),
        alone_s,
        drafted,
    })
}

fn drafted(
    setup: &Setup,
    named: &Named,
    verifier: &mut dyn Verifier,
    record: &Record,
) -> Result<Drafted, ModelError> {
    let mut proposer: Box<dyn Proposer> = match &named.kind {
        Kind::Trained { drafter, .. } | Kind::Untrained(drafter) => {
            Box::new(BlockDrafter::new(drafter)?)
        }
        Kind::Ngram => Box::new(Ngram {
            drafts: setup.slots,
        }),
    };
    let prompt = &record.tokens[..record.prompt];
    let mut decode = |verifier: &mut dyn Verifier, limits: &Limits| {
        speculate(verifier, &mut *proposer, prompt, limits)
    };
    if !named.is_real {
        let decoded = decode(&mut Recorded::new(record), &setup.limits)?;
        assert_eq!(
            decoded.tokens,
            record.answer(),
            "a record verifies its own answer"
        );
        return Ok(Drafted {
            decoded,
            token_s: None,
            difference: None,
        });
    }
    let begun = Instant::now();
    let decoded = decode(verifier, &setup.limits)?;
    let gained = 1 + decoded
        .rounds
        .iter()
        .map(|round| round.gained)
        .sum::<usize>();
    Ok(Drafted {
        token_s: Some(begun.elapsed().as_secs_f64() / gained as f64),
        difference: difference(record, &decoded),
        decoded,
    })
}

/// Compares an answer with the target's own, token by token.
fn difference(record: &Record, decoded: &Decoded) -> Option<Difference> {
    let own = record.answer();
    let same = own.iter().zip(&decoded.tokens).take_while(|(a, b)| a == b);
    let at = same.count();
    (at < own.len() || at < decoded.tokens.len()).then(|| {
        let gap = |choice: Option<&exec::decode::Choice>| choice.map_or(0.0, |choice| choice.gap);
        let (own, other) = (gap(record.choices.get(at)), gap(decoded.choices.get(at)));
        Difference {
            at,
            gap: own.min(other),
        }
    })
}

/// The target with an empty text.
fn verifier(target: &Target) -> Result<Box<dyn Verifier>, ModelError> {
    Ok(Box::new(SessionVerifier::new(target)?))
}
