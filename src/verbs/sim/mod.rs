//! `dflash sim`: search among the points, name the best, write what `exec` needs.

mod effort;
mod space;

use crate::cli::SimArgs;
use crate::failure::{Failure, code};
use crate::output::{OutputDir, OutputError};
use crate::report;
use crate::results;
use crate::scenario::{Case, Input, PolicyFile, cases, first_case, open};
use crate::terminal::{bar, note, say};
use crate::verbs::best;
use sim::spec::Search;
use sim::{Choice, Confirmation, Effort, Found, Point, Progress, Row, Tell, Verdict};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// What a search gave.
pub(crate) struct Searched {
    pub(crate) cases: Vec<Case>,
    pub(crate) rows: Vec<Row>,
    pub(crate) choice: Choice,
    /// What the search took.
    pub(crate) effort: Effort,
    /// The chosen row on fresh seeds.
    pub(crate) confirmation: Option<(usize, Confirmation)>,
    /// Whether the user stopped it before all points were simulated.
    pub(crate) interrupted: bool,
}

pub(crate) fn run(args: &SimArgs) -> Result<(), Failure> {
    let input = open(&args.files, &args.sets, args.max_points)?;
    let mut how = first_case(&input)?;
    how.search.replications = args.replications.unwrap_or(how.search.replications).max(1);
    let name = how.file.name.clone();
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from("reports").join(plain(&name)));
    if out.exists() && !out.is_dir() {
        return Err(OutputError::NotADirectory { path: out }.into());
    }
    let stop = stop_on_signal();
    let searched = match space::sampled(&input, &how.search) {
        Some(points) => with_bar(|tell| space::search(&input, points, &how.search, &stop, tell))?,
        None => search(cases(&input)?, args.replications, &stop)?,
    };
    refuse_broken(&input, &searched)?;
    let dir = OutputDir::create(&out)?;
    results::write(&dir, &searched)?;
    // A policy that is not known to be the best is not handed on as the best.
    let best = match searched.choice.named() {
        Some(best) => Some(best::policy_file(&searched, best)?),
        None => None,
    };
    if let Some(file) = &best {
        best::write(&dir, file)?;
    }
    let chosen = searched.choice.best.filter(|_| best.is_some());
    let prospects = chosen.and_then(|row| report::prospects(&searched, row, &stop));
    let detailed = report::details(&searched, best.as_ref(), &dir, args.trace)?;
    let candidates: Vec<(String, usize)> = detailed
        .iter()
        .map(|detail| (detail.name.clone(), detail.row))
        .collect();
    best::write_candidates(&dir, &searched, &candidates)?;
    if !args.no_figures {
        report::write(
            &dir,
            &searched,
            best.as_ref(),
            prospects.as_ref(),
            &detailed,
        )?;
    }
    for line in report::summary(&searched, best.as_ref(), prospects.as_ref(), &detailed) {
        say(line);
    }
    for fact in effort::lines(&searched) {
        for line in report::terminal_paragraph("", &fact) {
            say(line);
        }
    }
    say(format!("results in {}", out.display()));
    verdict(&searched, best.as_ref())
}

/// Searches among all cases as their scenario says.
pub(crate) fn search(
    cases: Vec<Case>,
    replications: Option<u32>,
    stop: &AtomicBool,
) -> Result<Searched, Failure> {
    let mut search = cases[0].search.clone();
    search.replications = replications.unwrap_or(search.replications).max(1);
    with_bar(|tell| {
        let points: Vec<Point> = points_of(cases.iter());
        confirmed(
            cases,
            sim::search(&points, &search, stop, tell),
            &search,
            stop,
            tell,
        )
    })
}

/// Cases as points to simulate.
fn points_of<'a>(cases: impl Iterator<Item = &'a Case>) -> Vec<Point> {
    cases.map(point_of).collect()
}

fn point_of(case: &Case) -> Point {
    Point {
        resolved: case.file.resolved(),
        lengths: Arc::clone(&case.lengths),
    }
}

/// What was found, its best measured again on fresh seeds.
fn confirmed(
    cases: Vec<Case>,
    found: Found,
    search: &Search,
    stop: &AtomicBool,
    tell: Tell<'_>,
) -> Result<Searched, Failure> {
    let confirmation = match found.choice.named() {
        Some(row) => {
            let point = point_of(&cases[found.rows[row].index]);
            let share = found.effort.share;
            let confirmed = sim::confirm(&point, share, search.tolerance, stop, tell);
            let confirmed = confirmed.map_err(Failure::usage)?;
            confirmed.map(|confirmed| (row, confirmed))
        }
        None => None,
    };
    Ok(Searched {
        cases,
        rows: found.rows,
        choice: found.choice,
        effort: found.effort,
        confirmation,
        interrupted: found.is_interrupted,
    })
}

/// Runs `search` under a bar that shows what it is at.
fn with_bar<T>(search: impl FnOnce(Tell<'_>) -> T) -> T {
    let progress = bar(0, "simulating");
    let searched = search(&|told: Progress| match told {
        Progress::Begins { what, runs } => {
            progress.set_message(what);
            progress.set_length(runs as u64);
            progress.set_position(0);
        }
        Progress::Done => progress.inc(1),
    });
    progress.finish_and_clear();
    searched
}

/// A policy entry none of whose points can even be set up is a mistake in the file, not a result.
fn refuse_broken(input: &Input, searched: &Searched) -> Result<(), Failure> {
    let entry = |row: &Row| searched.cases[row.index].entry;
    let entries = searched.rows.iter().map(entry).collect::<BTreeSet<_>>();
    let mut errors = Vec::new();
    for which in entries {
        let rows = || searched.rows.iter().filter(|row| entry(row) == which);
        let failed = |row: &Row| {
            let point = searched.cases[row.index].point;
            Some((point, row.outcome.as_ref().err()?.to_string()))
        };
        // A bound may have ruled out the others, which are no mistakes.
        let all = searched.cases.iter().filter(|case| case.entry == which);
        if rows().filter(|row| row.outcome.is_err()).count() == all.count()
            && let Some((index, error)) = rows().find_map(failed)
        {
            errors.push(input.error_at_key(index, error).to_string());
        }
    }
    // A mistake outside the policies shows in each of them.
    errors.dedup();
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Failure::usage(errors.join("\n")))
    }
}

fn verdict(searched: &Searched, best: Option<&PolicyFile>) -> Result<(), Failure> {
    if searched.interrupted {
        let done = searched.rows.len();
        let all = searched.cases.len();
        let kept =
            format!("interrupted after {done} of {all} points; what was simulated is written");
        return Err(Failure::new(code::INTERRUPTED, kept));
    }
    if best.is_some() {
        return Ok(());
    }
    if let Some(refused) = effort::refused(searched) {
        return Err(Failure::no(format!("ranking refused: {refused}")));
    }
    let count = |verdict| {
        searched
            .rows
            .iter()
            .filter(|r| r.verdict() == verdict)
            .count()
    };
    Err(Failure::no(format!(
        "no policy qualifies: of {} points {} end in deadlock, {} are infeasible and {} break a constraint of [search]; see results.csv",
        searched.rows.len(),
        count(Verdict::Deadlock),
        count(Verdict::Infeasible),
        searched.choice.excluded.len()
    )))
}

/// Set once by the first Ctrl-C; the second ends the process at once. All verbs of one process share it.
pub(crate) fn stop_on_signal() -> Arc<AtomicBool> {
    static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    let install = || {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let handler = move || {
            if flag.swap(true, Ordering::SeqCst) {
                std::process::exit(i32::from(code::INTERRUPTED));
            }
            note("stopping; once more to stop at once");
        };
        if let Err(error) = ctrlc::set_handler(handler) {
            note(format!("Ctrl-C will stop at once: {error}"));
        }
        stop
    };
    Arc::clone(STOP.get_or_init(install))
}

/// A scenario's name as a folder: no separators.
pub(crate) fn plain(name: &str) -> String {
    let kept = name.chars().map(|c| {
        let fits = c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if fits { c } else { '-' }
    });
    let kept: String = kept.collect();
    let kept = kept.trim_matches('.');
    if kept.is_empty() {
        "unnamed".to_owned()
    } else {
        kept.to_owned()
    }
}
