//! From many points to one: simulated in full (`grid`), or by bounds, short runs and longer ones for those that are left (`halving`).
//!
//! Both end in a selection with a stated indifference zone and probability ([`kn`]), a ranking on common random numbers ([`ranking`]) and a
//! choice under the scenario's constraints ([`choice`]). Whatever the number of threads, the same seed gives the same answer: rounds are
//! finished before anything is decided, and rows are in the order of the points.

mod choice;
mod confirm;
mod halving;
mod kn;
mod part;
mod ranking;
mod screen;
mod select;

pub use choice::{Choice, choose};
pub use confirm::{Confirmation, confirm};
pub use ranking::{Basis, Comparison, Ranking, Refusal, Standing};

use crate::spec::{Method, Search};
use crate::sweep::{Point, Row, sweep};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a search found and what it took.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// What was simulated, in the order of the points.
    pub rows: Vec<Row>,
    /// The choice among them.
    pub choice: Choice,
    /// What it took.
    pub effort: Effort,
    /// Whether it was stopped; the rest is what was found so far.
    pub is_interrupted: bool,
}

/// What a search took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effort {
    /// Points there are.
    pub points: usize,
    /// Points that the bound, the policy's rules or the box rule out without a simulation.
    pub screened: usize,
    /// Rounds of short runs.
    pub rounds: Vec<Round>,
    /// Contenders of the selection at the end.
    pub contenders: usize,
    /// Replications of the contender that had most.
    pub replications: usize,
    /// Whether the selection came to its end: only then does its probability hold.
    pub is_selected: bool,
    /// Share of the work that each run of the ranking simulates.
    pub share: f64,
    /// Points that were simulated in full after they had been chosen by shorter runs; the last one is the choice.
    pub confirmed: Vec<usize>,
    /// Microbatches simulated in all.
    pub microbatches: u64,
}

/// One round of short runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Points simulated.
    pub points: usize,
    /// Optimizer steps that its runs aim at.
    pub steps: u32,
    /// Microbatches simulated.
    pub microbatches: u64,
}

/// What a search is at, for whoever shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many runs or points come next.
    Begins {
        /// What they are for.
        what: &'static str,
        /// How many.
        runs: usize,
    },
    /// One of them is done.
    Done,
}

/// Where progress is told; called from many threads.
pub type Tell<'a> = &'a (dyn Fn(Progress) + Sync);

/// Searches among `points` as `search` says. Once `stop` is set, nothing new begins.
pub fn search(points: &[Point], search: &Search, stop: &AtomicBool, tell: Tell<'_>) -> Found {
    let mut found = match search.method {
        Method::Grid => grid(points, search, stop, tell),
        Method::Halving => halving::halve(points, search, stop, tell),
    };
    found.effort.points = points.len();
    found.effort.microbatches = found.rows.iter().map(|row| row.simulated).sum();
    found.is_interrupted = stop.load(Ordering::Relaxed);
    found
}

fn grid(points: &[Point], search: &Search, stop: &AtomicBool, tell: Tell<'_>) -> Found {
    tell(Progress::Begins {
        what: "simulating",
        runs: points.len(),
    });
    let mut rows = sweep(points, search.replications, stop, &|_| tell(Progress::Done));
    let mut effort = Effort {
        share: 1.0,
        ..Effort::default()
    };
    if search.replications > 1 {
        let point = |i: usize| &points[i];
        select::settle(&mut rows, &point, search, stop, tell, &mut effort);
    }
    Found {
        choice: choose(&rows, search),
        rows,
        effort,
        is_interrupted: false,
    }
}
