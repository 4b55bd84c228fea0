//! Prompts that the target writes itself.

use super::setup::stream_of;
use super::{Stopped, Work, asking};
use crate::failure::Failure;
use crate::terminal::note;
use exec::data::{Message, Role};
use exec::decode::{GenerateLimits, Job, Prompt, Sampling, UserTurns, generate};

/// Tokens of a user turn, at most.
const TURN_TOKENS_MAX: usize = 128;

/// Turns written for each one asked for, at most: a target that repeats itself ends there.
const TRIES: usize = 4;

/// Lets the target write `count` user turns at temperature 1, and answers them. The n-th turn is the same in every run with
/// one seed; what the file of answers holds is not done again.
pub(super) fn written(work: &mut Work<'_>, count: usize) -> Result<(), Failure> {
    let mut turns = UserTurns::new(&asking(work.setup)?).map_err(Failure::usage)?;
    if turns.opening().is_empty() {
        return Err(Failure::usage(
            "--self-prompt: the chat format of this tokenizer opens a user's turn with no token; give --prompts",
        ));
    }
    for text in &work.answers.first_turns {
        turns.remember(text);
    }
    work.counts.there = work.answers.len();
    work.progress.inc(work.counts.there as u64);
    let mut kept = work.counts.there;
    let numbers = (0..count.saturating_mul(TRIES)).filter(|&n| !work.answers.has(&id(n)));
    // Collected, since the file grows while they are used.
    let mut numbers = numbers.collect::<Vec<_>>().into_iter();
    while kept < count && !work.is_stopped() {
        let wanted = (count - kept).min(4 * work.setup.batch);
        let chunk: Vec<usize> = numbers.by_ref().take(wanted).collect();
        if chunk.is_empty() {
            note(format!(
                "only {kept} of {count} prompts after {TRIES} tries for each; most of what the target writes is no prompt"
            ));
            return Ok(());
        }
        let prompts = prompts(work, &mut turns, &chunk)?;
        kept += prompts.len();
        work.answer(&prompts.iter().collect::<Vec<_>>())?;
    }
    Ok(())
}

fn id(number: usize) -> String {
    format!("self-{number}")
}

/// Lets the target write the turns of these numbers, and keeps those that are prompts.
fn prompts(
    work: &mut Work<'_>,
    turns: &mut UserTurns,
    numbers: &[usize],
) -> Result<Vec<Prompt>, Failure> {
    let setup = work.setup;
    let jobs = numbers.iter().map(|&number| Job {
        number,
        stream: stream_of(&format!("turn {number}")),
        prompt: turns.opening().to_vec(),
    });
    let limits = GenerateLimits {
        new_tokens_max: TURN_TOKENS_MAX,
        sampling: Sampling {
            temperature: 1.0,
            ..setup.limits.sampling
        },
        ..setup.limits.clone()
    };
    let stop = &work.stop;
    let mut written = Vec::new();
    generate::<Stopped>(&mut *work.batch, setup.batch, jobs, &limits, |finished| {
        written.push(finished);
        Ok(!stop.load(std::sync::atomic::Ordering::SeqCst))
    })
    .map_err(|stopped| stopped.0)?;
    // Which of two equal turns counts must not depend on which ended first.
    written.sort_by_key(|finished| finished.number);
    let asking = asking(setup)?;
    let mut prompts = Vec::new();
    for finished in written {
        work.counts.turns += 1;
        let text = match turns.admit(&finished.tokens, finished.ended, &setup.tokenizer) {
            Ok(text) => text,
            Err(why) => {
                *work.counts.refused.entry(why).or_default() += 1;
                continue;
            }
        };
        let message = Message {
            role: Role::User,
            content: text,
        };
        let prompt = Prompt::of_messages(id(finished.number), vec![message], &asking);
        prompts.push(prompt.map_err(Failure::data)?);
    }
    Ok(prompts)
}
