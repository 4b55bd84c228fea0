//! `dflash twin`: calibrate, predict every policy of a scenario, run every one, and say how far the predictions were off.

mod report;
mod run;
mod score;

use super::calibrate::calibrated;
use super::compare::compare_traces;
use super::exec::backend::choose_for;
use super::exec::for_libraries;
use super::sim::{plain, stop_on_signal};
use crate::cli::{BackendArg, TwinArgs};
use crate::failure::{Failure, code};
use crate::figure;
use crate::output::OutputDir;
use crate::scenario::{Case, cases, open};
use crate::terminal::{note, say};
use report::Compared;
use score::{Entry, Score};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

pub(crate) fn run(args: &TwinArgs) -> Result<(), Failure> {
    if !args.tolerance.is_finite() || args.tolerance < 0.0 {
        return Err(Failure::usage(format!(
            "--tolerance {}: must be finite and at least 0; write percent, such as 3",
            args.tolerance
        )));
    }
    if args.files.is_empty() {
        let out = args.out.clone().ok_or_else(|| {
            Failure::usage(
                "--out: name the folder of an earlier twin, or give scenario files to run one",
            )
        })?;
        return conclude(&out, args.tolerance);
    }
    if args.backend != BackendArg::Emulated {
        for_libraries()?;
    }
    let input = open(&args.files, &args.sets, args.max_points)?;
    let mut cases = cases(&input)?;
    let choice = choose_for(args.backend, &cases[0])?;
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from("reports").join(plain(&cases[0].file.name) + "-twin"));
    let dir = OutputDir::create(&out)?;
    let stop = stop_on_signal();
    let (mut models, mut unsteady) = (None, None);
    if !args.no_calibration {
        let effort = args.effort.into();
        let found = calibrated(&cases, choice, &effort, &stop, &mut models)?;
        let names: Vec<String> = args.files.iter().map(|f| f.display().to_string()).collect();
        found.write(
            &OutputDir::create(&out.join("calibration"))?,
            &names.join(" "),
        )?;
        for line in found.lines() {
            say(line);
        }
        unsteady = found.unsteady();
        for case in &mut cases {
            found.put_into_case(case);
        }
    }
    let names = names(&cases);
    for (case, name) in cases.iter_mut().zip(names) {
        case.file.name = name;
    }
    run::predict(&cases, &out)?;
    note(format!(
        "{} predictions are written; running each policy {} times",
        cases.len(),
        args.runs
    ));
    let mut runner = run::Runner::new(choice, models);
    for number in 1..=args.runs {
        for case in &cases {
            if stop.load(Ordering::SeqCst) {
                break;
            }
            runner.run(case, number, &out)?;
            // What has been run is kept, whatever comes.
            dir.write("runs.csv", &runner.csv())?;
        }
    }
    // Said once more, beside what it may explain.
    if let Some(warning) = unsteady {
        say(warning);
    }
    let outcome = conclude(&out, args.tolerance);
    if stop.load(Ordering::SeqCst) {
        return Err(Failure::new(
            code::INTERRUPTED,
            "stopped as asked; the policies that ran are compared",
        ));
    }
    outcome
}

/// A name for each case, fit for a folder: its policy's, with what is swept where several have it, and a number where that is not enough.
fn names(cases: &[Case]) -> Vec<String> {
    let name = |case: &Case| {
        let swept = case.swept.iter().map(|(key, value)| {
            let key = key.rsplit('.').next().unwrap_or(key);
            format!("-{key}-{value}")
        });
        plain(&format!(
            "{}{}",
            case.file.policy.name,
            swept.collect::<String>()
        ))
    };
    let mut names = Vec::new();
    for case in cases {
        let name = name(case);
        let taken = |candidate: &String| names.contains(candidate);
        let numbered = (2..).map(|n| format!("{name}-{n}"));
        let free = std::iter::once(name.clone())
            .chain(numbered)
            .find(|c| !taken(c));
        names.push(free.unwrap_or(name));
    }
    names
}

/// Compares all policies under `out` that were predicted and run.
fn conclude(out: &Path, tolerance: f64) -> Result<(), Failure> {
    let all = gathered(out)?;
    let entries: Vec<Entry> = all.iter().map(|one| one.entry.clone()).collect();
    let score = Score::of(&entries).ok_or_else(|| {
        Failure::data(format!(
            "{}: holds no policy that was predicted and run; it takes NAME/sim/trace.txt and NAME/exec-N/trace.txt",
            out.display()
        ))
    })?;
    for line in report::lines(&all, &score) {
        say(line);
    }
    let dir = OutputDir::create(out)?;
    dir.write("twin.csv", &report::csv(&all))?;
    dir.write("stages.csv", &report::stages_csv(&all))?;
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    figure::save(dir.path(), "twin", &report::figure(&name, &all, &score))?;
    say(format!("results in {}", out.display()));
    verdict(&score, tolerance)
}

fn verdict(score: &Score, tolerance: f64) -> Result<(), Failure> {
    let worst = 100.0 * score.error_max;
    if worst > tolerance {
        return Err(Failure::no(format!(
            "out of tolerance: a throughput was predicted {worst:.2} % off, {tolerance} % are allowed"
        )));
    }
    if let Some((a, b)) = score.swapped.first() {
        return Err(Failure::no(format!(
            "the order is not right: {a} and {b} were predicted the other way round"
        )));
    }
    say(format!(
        "within tolerance: all throughputs within {worst:.2} %, {tolerance} % are allowed, and the order is right"
    ));
    Ok(())
}

/// What was predicted and run under a folder, by name.
fn gathered(out: &Path) -> Result<Vec<Compared>, Failure> {
    let mut all = Vec::new();
    for name in folders(out)? {
        let folder = out.join(&name);
        let sim = folder.join("sim").join("trace.txt");
        let runs = folders(&folder)?.into_iter();
        let traces: Vec<PathBuf> = runs
            .filter(|run| run.starts_with("exec-"))
            .map(|run| folder.join(run).join("trace.txt"))
            .filter(|trace| trace.is_file())
            .collect();
        if !sim.is_file() || traces.is_empty() {
            continue;
        }
        let mut compared = Compared {
            entry: Entry {
                name: name.clone(),
                predicted: 0.0,
                measured: Vec::new(),
                own_errors: Vec::new(),
            },
            comparisons: Vec::new(),
            bound: 0.0,
            whole: Vec::new(),
        };
        for trace in &traces {
            let (comparison, bound) = compare_traces(&sim, trace)?;
            if comparison.left_undone > 0 {
                note(format!(
                    "{}: was stopped before all was trained, and is not compared",
                    trace.display()
                ));
                continue;
            }
            compared.entry.predicted = comparison.throughput().simulated;
            compared
                .entry
                .measured
                .push(comparison.throughput().measured);
            compared.entry.own_errors.extend(comparison.own_error);
            compared.bound = bound;
            compared.whole.push(comparison.whole_run);
            compared.comparisons.push(comparison);
        }
        if !compared.comparisons.is_empty() {
            all.push(compared);
        }
    }
    Ok(all)
}

/// Names of the folders in a folder, sorted.
fn folders(of: &Path) -> Result<Vec<String>, Failure> {
    let entries = std::fs::read_dir(of).map_err(|e| {
        Failure::data(format!(
            "{}: cannot be read: {e}; check --out",
            of.display()
        ))
    })?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}
