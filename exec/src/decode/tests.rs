//! Decoding against scripts, and with tiny random models.

use super::testing::{Oracle, Scripted};
use super::*;
use crate::model::fixture::{models, row};
use crate::model::{Drafter, ModelError, Target};

/// Ends answers.
const END: u32 = 7;

fn limits(new_tokens_max: usize) -> Limits {
    Limits {
        new_tokens_max,
        ends: vec![END],
    }
}

fn script(tokens: usize) -> Vec<u32> {
    (0..tokens as u32).map(|i| 100 + i).collect()
}

#[test]
fn an_oracle_is_accepted_whole() {
    let script = script(60);
    let mut verifier = Scripted::new(script.clone());
    let mut oracle = Oracle::new(&script, 3, |_| true);
    let decoded = speculate(&mut verifier, &mut oracle, &script[..5], &limits(21)).unwrap();
    assert_eq!(decoded.tokens, script[5..26]);
    assert_eq!(decoded.rounds.len(), 5);
    let tally = Tally::of(&decoded.rounds, 3);
    assert_eq!(tally.acceptance_length(), 4.0);
    assert!(tally.slots.iter().all(|slot| slot.conditional() == 1.0));
    // One forward for the prompt, then one a round.
    assert_eq!(verifier.forwards, 6);
    assert!(!decoded.ended);
}

#[test]
fn drafts_that_are_always_wrong_cost_nothing_but_their_forward() {
    let script = script(60);
    let mut verifier = Scripted::new(script.clone());
    let mut wrong = Oracle::new(&script, 3, |_| false);
    let decoded = speculate(&mut verifier, &mut wrong, &script[..5], &limits(21)).unwrap();
    assert_eq!(decoded.tokens, script[5..26]);
    let tally = Tally::of(&decoded.rounds, 3);
    assert_eq!((tally.acceptance_length(), tally.accepted), (1.0, 0));
    assert_eq!(tally.slots[1].reached, 0);
}

#[test]
fn the_longest_right_prefix_is_accepted_and_the_rest_forgotten() {
    let script = script(60);
    let mut verifier = Scripted::new(script.clone());
    // Wrong at every fourth position: the drafts behind it are right and must not count.
    let mut oracle = Oracle::new(&script, 3, |at| at % 4 != 0);
    let decoded = speculate(&mut verifier, &mut oracle, &script[..5], &limits(13)).unwrap();
    assert_eq!(decoded.tokens, script[5..18]);
    let rounds: Vec<_> = decoded
        .rounds
        .iter()
        .map(|r| (r.anchor, r.accepted))
        .collect();
    // Drafts at 6, 7, 8 from the anchor at 5: the third is wrong, the bonus stands at 8.
    assert_eq!(rounds, [(5, 2), (8, 3), (12, 3), (16, 3)]);
    // Rejected drafts are no longer in the target's text.
    assert_eq!(verifier.read, script[..20]);
}

#[test]
fn an_answer_stops_at_its_end_wherever_that_comes_from() {
    for (end, rounds) in [(5, 0), (6, 1), (8, 1), (9, 1), (10, 2)] {
        let mut script = script(60);
        script[end] = END;
        let mut verifier = Scripted::new(script.clone());
        let mut oracle = Oracle::new(&script, 3, |_| true);
        let decoded = speculate(&mut verifier, &mut oracle, &script[..5], &limits(21)).unwrap();
        assert_eq!(decoded.tokens, script[5..=end], "end at {end}");
        assert!(decoded.ended);
        assert_eq!(decoded.rounds.len(), rounds, "end at {end}");
        let gained: usize = decoded.rounds.iter().map(|r| r.gained).sum();
        assert_eq!(gained + 1, decoded.tokens.len());
    }
}

#[test]
fn a_record_accepts_what_the_target_accepts() {
    for end in [None, Some(14), Some(15), Some(16)] {
        let mut script = script(60);
        if let Some(end) = end {
            script[end] = END;
        }
        let prompt = &script[..5];
        let record = answer_alone(&mut Scripted::new(script.clone()), prompt, &limits(21), 3);
        let record = record.unwrap();
        for wrong in [2, 3, 5, 7] {
            let right = |at: usize| !at.is_multiple_of(wrong);
            let real = speculate(
                &mut Scripted::new(script.clone()),
                &mut Oracle::new(&script, 3, right),
                prompt,
                &limits(21),
            );
            let recorded = speculate(
                &mut Recorded::new(&record),
                &mut Oracle::new(&script, 3, right),
                prompt,
                &limits(21),
            );
            let real = real.unwrap();
            assert_eq!(real, recorded.unwrap());
            assert_eq!(record.answer(), real.tokens);
        }
    }
}

#[test]
fn periodic_text_is_drafted_by_looking_back() {
    let script: Vec<u32> = [11, 12, 13, 14, 15].repeat(12);
    let mut verifier = Scripted::new(script.clone());
    let mut ngram = Ngram { drafts: 7 };
    let decoded = speculate(&mut verifier, &mut ngram, &script[..10], &limits(24)).unwrap();
    assert_eq!(decoded.tokens, script[10..34]);
    assert_eq!(Tally::of(&decoded.rounds, 7).acceptance_length(), 8.0);
}

/// A prompt, and tiny models: those of the fixture, whose drafter guesses, and of the same shape.
fn real(seed: u64) -> (Vec<u32>, Target, Drafter) {
    let (target, drafter) = models();
    (row(seed, 9, 0).input_ids, target, drafter)
}

#[test]
fn with_any_drafter_the_answer_is_the_targets_own() -> Result<(), ModelError> {
    for seed in 0..3 {
        let (prompt, target, drafter) = real(seed);
        let limits = Limits {
            new_tokens_max: 24,
            ends: vec![],
        };
        let alone = answer_alone(&mut Recompute::new(&target), &prompt, &limits, 3)?;
        assert_eq!(alone.answer().len(), 24);
        let answer = alone.answer().to_vec();
        let mut oracle = Known(alone.tokens.clone());
        let mut drafters: Vec<Box<dyn Proposer>> = vec![
            Box::new(BlockDrafter::new(&drafter)?),
            Box::new(Ngram { drafts: 3 }),
            Box::new(Nothing),
        ];
        for proposer in &mut drafters {
            let real = speculate(
                &mut SessionVerifier::new(&target)?,
                &mut **proposer,
                &prompt,
                &limits,
            )?;
            assert_eq!(real.tokens, answer);
            assert!(real.choices.iter().all(|choice| choice.gap > 1e-4));
        }
        let right = speculate(
            &mut SessionVerifier::new(&target)?,
            &mut oracle,
            &prompt,
            &limits,
        )?;
        assert_eq!(right.tokens, answer);
        assert_eq!(Tally::of(&right.rounds, 3).acceptance_length(), 4.0);
        // The record judges the drafter as the target did.
        let mut again = BlockDrafter::new(&drafter)?;
        let recorded = speculate(&mut Recorded::new(&alone), &mut again, &prompt, &limits)?;
        let mut again = BlockDrafter::new(&drafter)?;
        let real = speculate(&mut Recompute::new(&target), &mut again, &prompt, &limits)?;
        assert_eq!(recorded.rounds, real.rounds);
    }
    Ok(())
}

/// Drafts three tokens of a text it knows.
struct Known(Vec<u32>);

impl Proposer for Known {
    fn propose(&mut self, known: &[u32]) -> Result<Vec<u32>, ModelError> {
        Ok(self.0[known.len()..][..3].to_vec())
    }

    fn accept(&mut self, _: &candle_core::Tensor) -> Result<(), ModelError> {
        Ok(())
    }
}

#[test]
fn forgetting_tokens_leaves_no_trace_of_them() -> Result<(), ModelError> {
    let (text, target, _) = real(1);
    let mut straight = Recompute::new(&target);
    let expected = straight.extend(&text, 3)?;
    let mut detour = Recompute::new(&target);
    detour.extend(&text[..5], 1)?;
    detour.extend(&[1, 2, 3], 3)?;
    detour.truncate(5)?;
    assert_eq!(detour.len(), 5);
    let found = detour.extend(&text[5..], 3)?;
    assert_eq!(found.choices, expected.choices);
    let rows = |x: &candle_core::Tensor| x.to_vec2::<f32>();
    assert_eq!(rows(&found.features)?, rows(&expected.features)?[5..]);
    Ok(())
}

#[test]
fn an_empty_prompt_is_refused() {
    let error = speculate(&mut Scripted::new([]), &mut Nothing, &[], &limits(3)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "batch row 0: the prompt has no tokens; leave it out"
    );
}

fn answers(rows: usize, temperature: f64, seed: u64) -> Vec<Finished> {
    let (_, target, _) = real(0);
    let jobs = (0..5).map(|number| Job {
        number,
        stream: number as u64,
        prompt: row(number as u64, 3 + number, 0).input_ids,
    });
    let limits = GenerateLimits {
        new_tokens_max: 10,
        ends: vec![END],
        never: vec![],
        loop_period_max: 0,
        sampling: Sampling { temperature, seed },
    };
    let mut found = Vec::new();
    let mut batch = SessionBatch::new(&target);
    generate::<ModelError>(&mut batch, rows, jobs, &limits, |finished| {
        found.push(finished);
        Ok(true)
    })
    .unwrap();
    found.sort_by_key(|finished| finished.number);
    found
}

#[test]
fn answers_depend_neither_on_the_batch_nor_on_its_order() {
    for temperature in [0.0, 1.0] {
        let one = answers(1, temperature, 3);
        assert_eq!(one.len(), 5);
        assert_eq!(one, answers(2, temperature, 3));
        assert_eq!(one, answers(9, temperature, 3));
    }
    assert_ne!(answers(2, 1.0, 3), answers(2, 1.0, 4));
    assert_eq!(answers(2, 0.0, 3), answers(2, 0.0, 4));
}

#[test]
fn greedy_answers_of_a_batch_are_those_of_the_target_alone() {
    let (_, target, _) = real(0);
    for finished in answers(3, 0.0, 0) {
        let prompt = row(finished.number as u64, 3 + finished.number, 0).input_ids;
        let mut verifier = Recompute::new(&target);
        let alone = answer_alone(&mut verifier, &prompt, &limits(10), 0).unwrap();
        let said = alone.answer();
        let end = said.iter().position(|&token| token == END);
        assert_eq!(finished.tokens, said[..end.unwrap_or(said.len())]);
        assert_eq!(finished.ended == Ended::Itself, end.is_some());
    }
}
