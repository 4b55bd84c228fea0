//! `dflash ablate`: train the same policy with one key varied, over several seeds, and compare what the drafters are worth.
//!
//! Each run is a `dflash exec` of its own process, so it is the run that a user would make by hand, and one that dies takes no other
//! with it; one `dflash eval` then judges all drafters by the same answers of the target. Runs with equal seeds share their
//! microbatches and their initial weights: differences are paired.

mod compare;
mod outcome;
mod runs;
mod show;

use crate::cli::AblateArgs;
use crate::failure::{Failure, code};
use crate::output::OutputDir;
use crate::scenario::sections;
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
    let file = sections(&args.policy, &args.sets)?;
    // All drafters are judged by one target, whatever their seed.
    let is_drawn = file.exec.target.path.is_none() && file.exec.target.seed.is_none();
    let target_seed = is_drawn.then_some(file.seed);
    let dir = OutputDir::create(&args.out)?;
    let runs = vary.runs(args, target_seed);
    let stop = stop_on_signal();
    train(&runs, args, &stop)?;
    note(format!("evaluating {} drafters", runs.len()));
    let outcomes = runs::evaluate(&runs, args)?;
    let comparison = Comparison::of(&vary, &args.seeds, outcomes);
    show::write(&dir, args, &comparison)?;
    comparison.lines().into_iter().for_each(say);
    say(format!(
        "report {}",
        dir.path().join("report.html").display()
    ));
    Ok(())
}

/// Makes all runs that were not made before under the same arguments, `--jobs` of them at a time.
fn train(runs: &[Run], args: &AblateArgs, stop: &AtomicBool) -> Result<(), Failure> {
    let jobs = args.jobs.max(1);
    let (next, is_lost) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || -> Result<(), Failure> {
        while !is_lost.load(Ordering::SeqCst) {
            let number = next.fetch_add(1, Ordering::SeqCst);
            let Some(run) = runs.get(number) else {
                return Ok(());
            };
            if stop.load(Ordering::SeqCst) {
                let message = "stopped as asked; finished runs are kept and not made again";
                return Err(Failure::new(code::INTERRUPTED, message));
            }
            let title = format!("run {} of {}: {}", number + 1, runs.len(), run.title());
            if run.is_made() {
                note(format!("{title}, made before"));
                continue;
            }
            note(title);
            runs::forget_evaluation(&args.out)?;
            let made = run.make(jobs > 1);
            is_lost.fetch_or(made.is_err(), Ordering::SeqCst);
            made?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let ended = workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker only waits for processes"));
        // Every worker has ended before the first failure is told.
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}
