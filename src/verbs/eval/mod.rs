//! `dflash eval`: speculative decoding of held-out prompts, and how much of the drafts the target accepts.

mod checkpoints;
mod files;
mod held_out;
mod loss;
mod measure;
mod page;
mod setup;
mod sums;
mod words;

use crate::cli::EvalArgs;
use crate::failure::{Failure, code};
use crate::output::{OutputDir, OutputError};
use crate::terminal::{note, say};
use crate::verbs::sim::{plain, stop_on_signal};
use measure::{Measured, TIE_GAP_MAX};
use setup::Setup;
pub(crate) use setup::{ends, of_prompts};
use std::path::PathBuf;

pub(crate) fn run(args: &EvalArgs) -> Result<(), Failure> {
    let setup = Setup::of(args)?;
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from("reports").join(plain(&setup.file.name) + "-eval"));
    if out.exists() && !out.is_dir() {
        return Err(OutputError::NotADirectory { path: out }.into());
    }
    let stop = stop_on_signal();
    note(words::opening(&setup));
    let mut measured = measure::measure(&setup, &stop)?;
    if measured.prompts.is_empty() {
        let message = "interrupted before the first prompt was done; nothing is written";
        return Err(Failure::new(code::INTERRUPTED, message));
    }
    measured.losses = loss::measure(&setup, &stop)?;
    let dir = OutputDir::create(&out)?;
    let answer = words::answer(&setup, &measured);
    files::write(&dir, &setup, &measured)?;
    page::write(&dir, &setup, &measured, &answer)?;
    answer.into_iter().for_each(say);
    say(format!("results in {}", out.display()));
    verdict(&setup, &measured)
}

/// An answer that differs by more than rounding explains is a defect; an interrupted run says so.
fn verdict(setup: &Setup, measured: &Measured) -> Result<(), Failure> {
    if let Some((name, difference)) = measured.worst_difference()
        && difference.gap > TIE_GAP_MAX
    {
        return Err(Failure::no(format!(
            "with {name} an answer leaves the target's own where its choice is clear by {:.2e} in the logits, more than the {TIE_GAP_MAX:.0e} that rounding explains; the target's cached and plain forwards disagree, see prompts.csv",
            difference.gap
        )));
    }
    if measured.prompts.len() < setup.prompts.len() {
        return Err(Failure::new(
            code::INTERRUPTED,
            format!(
                "interrupted after {} of {} prompts; what was decoded is written",
                measured.prompts.len(),
                setup.prompts.len()
            ),
        ));
    }
    Ok(())
}
