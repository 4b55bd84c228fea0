//! `dflash ablate`: train the same policy with one key varied, over several seeds, and compare what the drafters are worth.
//!
//! Each run is a `dflash exec` and a `dflash eval` of its own process, so it is the run that a user would make by hand, and one that
//! dies takes no other with it. Runs with equal seeds share their microbatches and their initial weights: differences are paired.

mod compare;
mod outcome;
mod runs;
mod show;

use crate::cli::AblateArgs;
use crate::failure::{Failure, code};
use crate::output::OutputDir;
use crate::terminal::{note, say};
use crate::verbs::sim::stop_on_signal;
use compare::Comparison;
use outcome::Outcome;
use runs::{Run, Vary};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(crate) fn run(args: &AblateArgs) -> Result<(), Failure> {
    let vary = Vary::parse(&args.vary).map_err(Failure::usage)?;
    if args.seeds.len() < 2 {
        return Err(Failure::usage(format!(
            "--seeds: {} seed gives no spread to judge a difference by; give at least 2, such as 1,2,3",
            args.seeds.len()
        )));
    }
    if !args.prompts.is_file() {
        return Err(Failure::usage(format!(
            "--prompts: {}: no such file; give prompts that training did not see, one JSON object a line",
            args.prompts.display()
        )));
    }
    let dir = OutputDir::create(&args.out)?;
    let runs = vary.runs(args);
    let stop = stop_on_signal();
    let outcomes = made(&runs, args.jobs.max(1), &stop)?;
    let comparison = Comparison::of(&vary, &args.seeds, outcomes);
    show::write(&dir, args, &comparison)?;
    comparison.lines().into_iter().for_each(say);
    say(format!(
        "report {}",
        dir.path().join("report.html").display()
    ));
    Ok(())
}

/// What all runs gave, in their order, `jobs` of them at a time.
fn made(runs: &[Run], jobs: usize, stop: &AtomicBool) -> Result<Vec<Outcome>, Failure> {
    let (next, lost) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut mine = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::SeqCst);
            let Some(run) = runs.get(number) else {
                return Ok(mine);
            };
            if stop.load(Ordering::SeqCst) {
                let message = "stopped as asked; finished runs are kept and not made again";
                return Err(Failure::new(code::INTERRUPTED, message));
            }
            if lost.load(Ordering::SeqCst) {
                return Ok(mine);
            }
            note(format!(
                "run {} of {}: {}",
                number + 1,
                runs.len(),
                run.title()
            ));
            let outcome = finished(run, jobs > 1);
            lost.fetch_or(outcome.is_err(), Ordering::SeqCst);
            mine.push((number, outcome?));
        }
    };
    let done: Vec<Result<Vec<(usize, Outcome)>, Failure>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker only waits for processes"))
            .collect()
    });
    let mut outcomes = Vec::with_capacity(runs.len());
    for mine in done {
        outcomes.extend(mine?);
    }
    outcomes.sort_by_key(|(number, _)| *number);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// What a run gave: read where it was made before under the same arguments, made now otherwise.
fn finished(run: &Run, is_beside_others: bool) -> Result<Outcome, Failure> {
    if let Some(outcome) = run.made_before()? {
        note(format!(
            "    {} was made before and is not made again",
            run.title()
        ));
        return Ok(outcome);
    }
    run.make(is_beside_others)?;
    run.read()
}
