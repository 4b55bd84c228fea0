//! The `dflash` binary: arguments in, library calls, and all rendering. The only place that prints.

mod cli;
mod config;
mod failure;
mod figure;
mod output;
mod report;
mod results;
mod scenario;
mod terminal;
mod trace_events;
mod verbs;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match cli::Cli::parse().verb {
        cli::Verb::Sim(args) => verbs::sim::run(&args),
        cli::Verb::Exec(args) => verbs::exec::run(&args),
        cli::Verb::Eval(args) => verbs::eval::run(&args),
        cli::Verb::Regenerate(args) => verbs::regenerate::run(&args),
        cli::Verb::Calibrate(args) => verbs::calibrate::run(&args),
        cli::Verb::Quickstart(args) => verbs::quickstart::run(&args),
        cli::Verb::Prepare(args) => verbs::prepare::run(&args),
        cli::Verb::Check(args) => verbs::check::run(&args),
        cli::Verb::Replay(args) => verbs::replay::run(&args),
        cli::Verb::Trace(args) => verbs::trace::run(&args),
        cli::Verb::Explain(args) => verbs::explain::run(&args),
        cli::Verb::Compare(args) => verbs::compare::run(&args),
        cli::Verb::Box(args) => verbs::box_links::run(&args),
        cli::Verb::Twin(args) => verbs::twin::run(&args),
        cli::Verb::Ablate(args) => verbs::ablate::run(&args),
        cli::Verb::Inspect(args) => verbs::inspect::run(&args),
        cli::Verb::Validate(args) => verbs::validate::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            terminal::complain(&failure);
            ExitCode::from(failure.code)
        }
    }
}
