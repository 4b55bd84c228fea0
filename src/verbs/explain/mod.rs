//! `dflash explain`: why one policy beats another on the same work.
//!
//! Both are simulated side by side on common random numbers. The time that a worker has for a million trained tokens is taken apart by
//! what it does with it; since the parts add up to the whole for both, the differences of the parts add up to the difference of the
//! policies. Then each key in which they differ is changed alone, in both directions, which tells causes from company.

mod account;
mod cause;
mod page;
mod show;
mod swap;

use crate::cli::ExplainArgs;
use crate::config::POINTS_MAX;
use crate::failure::Failure;
use crate::output::OutputDir;
use crate::scenario::{Case, cases, open};
use crate::terminal::{bar, say};
use crate::verbs::sim::stop_on_signal;
use account::Account;
use cause::Cause;
use sim::{Outcome, Point, Unpaired, side_by_side};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use swap::Swap;

/// One of the two policies.
struct Side {
    /// `A` or `B`.
    letter: &'static str,
    path: PathBuf,
    case: Case,
    outcomes: Vec<Outcome>,
}

impl Side {
    /// The policy's name, as it is shown.
    fn name(&self) -> &str {
        &self.case.file.policy.name
    }
}

/// All that is known about why one side beats the other.
struct Explanation {
    a: Side,
    b: Side,
    account: Account,
    /// `None` where neither is faster.
    cause: Option<Cause>,
    swaps: Vec<Swap>,
    replications: u32,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let a = only_case(&args.a, &args.sets)?;
    let b = only_case(&args.b, &args.sets)?;
    refuse_other_work((&args.a, &a), (&args.b, &b))?;
    let swaps = swap::candidates(&a.file.policy, &b.file.policy);
    let mut points = vec![point(&a), point(&b)];
    points.extend(swaps.iter().flat_map(|swap| swap.points(&a, &b)));
    let stop = stop_on_signal();
    let progress = bar(
        points.len() as u64 * u64::from(args.replications),
        "simulating",
    );
    let mut outcomes = side_by_side(&points, 0..args.replications, &stop, &|| progress.inc(1));
    progress.finish_and_clear();
    let swapped = outcomes.split_off(2);
    let mut outcomes = outcomes.into_iter();
    let mut side = |letter, path: &PathBuf, case| {
        let outcomes = outcomes.next().unwrap_or(Err(Unpaired::Interrupted));
        let outcomes = outcomes.map_err(|reason| refused(path, &reason))?;
        let path = path.clone();
        Ok::<_, Failure>(Side {
            letter,
            path,
            case,
            outcomes,
        })
    };
    let (a, b) = (side("A", &args.a, a)?, side("B", &args.b, b)?);
    let account = Account::of(&a.outcomes, &b.outcomes);
    let cause = cause::first(&account, &a, &b);
    let swaps = swap::measured(swaps, &swapped, &a.outcomes, &b.outcomes);
    let explanation = Explanation {
        account,
        cause,
        swaps,
        replications: args.replications,
        a,
        b,
    };
    for line in show::lines(&explanation) {
        say(line);
    }
    if let Some(out) = &args.out {
        let dir = OutputDir::create(out)?;
        dir.write("explanation.csv", &show::csv(&explanation))?;
        dir.write("explanation.html", page::page(&explanation)?.as_bytes())?;
        say(format!("results in {}", out.display()));
    }
    Ok(())
}

fn point(case: &Case) -> Point {
    Point {
        resolved: case.file.resolved(),
        lengths: Arc::clone(&case.lengths),
    }
}

fn refused(path: &Path, reason: &Unpaired) -> Failure {
    let text = format!("{}: cannot be compared: {reason}", path.display());
    match reason {
        Unpaired::Refused(_) => Failure::usage(text),
        Unpaired::Interrupted => Failure::new(crate::failure::code::INTERRUPTED, text),
        Unpaired::Deadlock | Unpaired::Overflow(_) => Failure::no(text),
    }
}

/// The one point of a file.
fn only_case(path: &PathBuf, sets: &[String]) -> Result<Case, Failure> {
    let cases = cases(&open(std::slice::from_ref(path), sets, POINTS_MAX)?)?;
    let count = cases.len();
    let only = cases.into_iter().next().filter(|_| count == 1);
    only.ok_or_else(|| {
        Failure::usage(format!(
            "{}: holds {count} points, and one is explained against one; name a policy file, such as best.toml or one of policies/ that `dflash sim` writes",
            path.display()
        ))
    })
}

/// Policies are compared on one work, one box and one seed; else the differences are not theirs.
fn refuse_other_work(a: (&PathBuf, &Case), b: (&PathBuf, &Case)) -> Result<(), Failure> {
    let ((path_a, a), (path_b, b)) = (a, b);
    let (x, y) = (&a.file, &b.file);
    let buckets = |case: &Case| sim::edges(&case.file.workload.buckets, &case.lengths).ok();
    let sections = [
        ("seed", x.seed == y.seed),
        ("workload.lengths", a.lengths == b.lengths),
        ("workload.buckets", buckets(a) == buckets(b)),
        ("workload.epochs", x.workload.epochs == y.workload.epochs),
        ("training", x.training == y.training),
        ("model", x.model == y.model),
        ("hardware", x.hardware == y.hardware),
        ("costs", x.costs == y.costs),
        ("fault", x.fault == y.fault),
    ];
    match sections.iter().find(|(_, is_same)| !is_same) {
        None => Ok(()),
        Some((key, _)) => Err(Failure::usage(format!(
            "{} and {}: {key} differs, so their difference is not that of their policies alone; give both the same, with --set or in the files",
            path_a.display(),
            path_b.display()
        ))),
    }
}
