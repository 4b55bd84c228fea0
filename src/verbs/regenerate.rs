//! `dflash regenerate`: prompts answered by the target, as data for its drafter.

mod answers;
mod counts;
mod setup;
mod turns;

use crate::cli::RegenerateArgs;
use crate::failure::{Failure, code};
use crate::terminal::{bar, note, say};
use crate::verbs::data::of_data;
use crate::verbs::sim::stop_on_signal;
use answers::{Answers, Row};
use counts::Counts;
use exec::data::{Message, Role};
use exec::decode::{Asking, Batch, Finished, Job, Prompt, SessionBatch, generate};
use exec::model::ModelError;
use indicatif::ProgressBar;
use setup::{Setup, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) fn run(args: &RegenerateArgs) -> Result<(), Failure> {
    let setup = Setup::of(args)?;
    let answers = Answers::open(&args.out, &setup.made)?;
    if let Some(repaired) = answers.repaired {
        note(format!(
            "{}: its last line was cut after {repaired} bytes and is done again",
            args.out.display()
        ));
    }
    let mut work = Work {
        batch: Box::new(SessionBatch::new(&setup.target)),
        counts: Counts::default(),
        stop: stop_on_signal(),
        progress: bar(setup.total() as u64, "answering"),
        setup: &setup,
        answers,
    };
    let outcome = match &setup.source {
        Source::File(prompts) => work.file(prompts),
        Source::Target(count) => turns::written(&mut work, *count),
    };
    work.progress.finish_and_clear();
    let kept = work.answers.finish();
    outcome?;
    kept?;
    work.counts.lines(&setup).into_iter().for_each(say);
    say(format!(
        "{} holds {} conversations; exec.data.paths = [{:?}] trains on them",
        args.out.display(),
        work.answers.len(),
        args.out.display().to_string()
    ));
    if work.is_stopped() {
        let message =
            "interrupted; what is answered is written, and the same command goes on from there";
        return Err(Failure::new(code::INTERRUPTED, message));
    }
    Ok(())
}

/// What is at work.
struct Work<'a> {
    setup: &'a Setup,
    batch: Box<dyn Batch>,
    answers: Answers,
    counts: Counts,
    progress: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Work<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Answers the prompts of a file, but those that are done.
    fn file(&mut self, prompts: &[Prompt]) -> Result<(), Failure> {
        let todo: Vec<&Prompt> = prompts
            .iter()
            .filter(|p| !self.answers.has(&p.id))
            .collect();
        self.counts.there = prompts.len() - todo.len();
        self.progress.inc(self.counts.there as u64);
        self.answer(&todo)
    }

    /// Answers prompts and writes each answer as it ends.
    fn answer(&mut self, prompts: &[&Prompt]) -> Result<(), Failure> {
        let jobs = prompts.iter().enumerate().map(|(number, prompt)| Job {
            number,
            stream: setup::stream_of(&prompt.id),
            prompt: prompt.ids.clone(),
        });
        let Self {
            setup,
            batch,
            answers,
            counts,
            progress,
            stop,
        } = self;
        let done = |finished: Finished| {
            let prompt = prompts[finished.number];
            if let Some(row) = row(setup, prompt, &finished, counts)? {
                answers.append(&row)?;
            }
            progress.inc(1);
            Ok(!stop.load(Ordering::SeqCst))
        };
        generate::<Stopped>(&mut **batch, setup.batch, jobs, &setup.limits, done)
            .map_err(|stopped| stopped.0)
    }
}

/// A failure of the target or of the disk.
struct Stopped(Failure);

impl From<ModelError> for Stopped {
    fn from(error: ModelError) -> Self {
        let code = match error {
            ModelError::Batch { .. } => code::DATA,
            _ => code::WORKER,
        };
        Self(Failure::new(code, error))
    }
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

/// The answer as a row of the file; none for an answer that says nothing.
fn row(
    setup: &Setup,
    prompt: &Prompt,
    finished: &Finished,
    counts: &mut Counts,
) -> Result<Option<Row>, Failure> {
    let text = setup
        .tokenizer
        .decode(&finished.tokens)
        .map_err(|e| Failure::data(format!("prompt {}: {e}", prompt.id)))?;
    let again = setup.tokenizer.encode(&text).unwrap_or_default();
    counts.add(finished, text.trim().is_empty(), again == finished.tokens);
    if text.trim().is_empty() {
        return Ok(None);
    }
    let mut messages = prompt.messages.clone();
    messages.push(Message {
        role: Role::Assistant,
        content: text,
    });
    Ok(Some(Row::new(setup, prompt, &messages, finished)))
}

/// The chat format of the setup's tokenizer.
fn asking(setup: &Setup) -> Result<Asking<'_>, Failure> {
    Asking::new(&setup.tokenizer, &setup.rules).map_err(of_data)
}
