//! Many points, in parallel over points, each by as many replications as asked for.

use crate::courses::run_or_share;
use crate::engine::End;
use crate::run::{Outcome, Resolved, RunError, Work};
use crate::stats::Estimate;
use crate::works::Works;
use rayon::prelude::*;
use shared::id::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One point to simulate.
#[derive(Clone, Debug)]
pub struct Point {
    /// What to simulate.
    pub resolved: Resolved,
    /// The lengths of its samples; shared between points. (tokens)
    pub lengths: Arc<Vec<u32>>,
}

/// What a point gave.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its number in the sweep.
    pub index: usize,
    /// Trained tokens per second over replications. (tok/s)
    pub throughput: Estimate,
    /// The same by replication; equal replications of different points face the same work. (tok/s)
    pub throughputs: Vec<f64>,
    /// What constraints look at, at its worst over replications.
    pub worst: Worst,
    /// The first replication, or why there is none; without what grows with its length.
    pub outcome: Result<Box<Outcome>, RunError>,
    /// Microbatches of the runs that its numbers rest on, of all lengths, whether it shares them with other points or not.
    pub simulated: u64,
    /// The round of a search by halving after which it was left behind; its runs are shorter than those that are ranked.
    pub left_behind: Option<usize>,
}

/// What constraints look at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worst {
    /// Largest total variation distance of a full step.
    pub tv_max: f64,
    /// Fewest distinct buckets in a full step.
    pub distinct_min: u32,
    /// Most hidden states alive at once. (bytes)
    pub alive_bytes: Bytes,
    /// Least throughput over the bound.
    pub bound_share: f64,
}

impl Row {
    /// The row of point `index` after its first replication.
    pub(crate) fn new(index: usize, mut first: Result<Box<Outcome>, RunError>) -> Self {
        if let Ok(outcome) = &mut first {
            outcome.metrics.forget_steps();
        }
        let mut row = Self {
            index,
            throughput: Estimate::default(),
            throughputs: Vec::new(),
            worst: Worst {
                distinct_min: u32::MAX,
                bound_share: f64::INFINITY,
                ..Worst::default()
            },
            outcome: first.clone(),
            simulated: 0,
            left_behind: None,
        };
        if let Ok(outcome) = first {
            row.count_in(&outcome);
        }
        row
    }

    /// Takes in one replication.
    pub(crate) fn count_in(&mut self, outcome: &Outcome) {
        let metrics = &outcome.metrics;
        let worst = &mut self.worst;
        let tokens_per_s = metrics.tokens_per_s();
        self.throughputs.push(tokens_per_s);
        self.throughput = Estimate::of(&self.throughputs);
        self.simulated += u64::from(metrics.microbatches);
        worst.tv_max = worst.tv_max.max(metrics.mix.tv_max);
        worst.distinct_min = worst.distinct_min.min(metrics.mix.distinct_min);
        worst.alive_bytes = worst.alive_bytes.max(metrics.peaks.alive_bytes);
        let share = tokens_per_s / outcome.bound.tokens_per_s();
        worst.bound_share = worst.bound_share.min(share);
        if let Ok(first) = &mut self.outcome {
            if first.overflow.is_empty() {
                first.overflow.clone_from(&outcome.overflow);
            }
            if first.end == End::Done {
                first.end.clone_from(&outcome.end);
            }
        }
    }

    /// Puts a run of the whole work in the place of the first replication; the throughput stays that of the replications.
    pub(crate) fn confirm(&mut self, outcome: Outcome) {
        let throughput = self.throughput;
        let count = self.throughputs.len();
        self.count_in(&outcome);
        self.throughputs.truncate(count);
        self.throughput = throughput;
        let mut outcome = outcome;
        outcome.metrics.forget_steps();
        self.outcome = Ok(Box::new(outcome));
    }

    /// `done`, `deadlock` or `infeasible`.
    pub fn verdict(&self) -> Verdict {
        match &self.outcome {
            Err(_) => Verdict::Infeasible,
            Ok(outcome) if matches!(outcome.end, End::Deadlock(_)) => Verdict::Deadlock,
            Ok(outcome) if !outcome.overflow.is_empty() => Verdict::Infeasible,
            Ok(_) => Verdict::Done,
        }
    }
}

/// How a point ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// All work is done, within all memory.
    Done,
    /// Nothing could go on.
    Deadlock,
    /// It cannot run as described, or not in the memory there is.
    Infeasible,
}

impl Verdict {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        ["done", "deadlock", "infeasible"][self as usize]
    }
}

/// Simulates all points. `done` is told each row as it is there; once `stop` is set, points not begun are left out.
///
/// Rows come back in the order of the points.
pub fn sweep(
    points: &[Point],
    replications: u32,
    stop: &AtomicBool,
    done: &(dyn Fn(&Row) + Sync),
) -> Vec<Row> {
    let replications = replications.max(1);
    let runs = points
        .iter()
        .flat_map(|point| (0..replications).map(move |replication| (point, replication)));
    let works = Works::expecting(runs);
    points
        .par_iter()
        .enumerate()
        .with_max_len(8)
        .filter_map(|(index, point)| {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let row = simulate_point(index, point, 0..replications, &works);
            done(&row);
            Some(row)
        })
        .collect()
}

/// Simulates one point by these replications; the first that does not end well is the last.
pub(crate) fn simulate_point(
    index: usize,
    point: &Point,
    replications: std::ops::Range<u32>,
    works: &Works,
) -> Row {
    let mut row: Option<Row> = None;
    for replication in replications {
        let outcome = simulate_once(point, replication, works);
        let failed = outcome.as_ref().map_or(true, |o| o.end != End::Done);
        match (&mut row, outcome) {
            (None, outcome) => row = Some(Row::new(index, outcome)),
            (Some(row), Ok(outcome)) => row.count_in(&outcome),
            (Some(_), Err(_)) => {}
        }
        if failed {
            break;
        }
    }
    row.expect("at least one replication ran")
}

/// One replication of a point.
pub(crate) fn simulate_once(
    point: &Point,
    replication: u32,
    works: &Works,
) -> Result<Box<Outcome>, RunError> {
    let (resolved, work) = work_of(point, replication, works)?;
    run_or_share(&resolved, &work).map(Box::new)
}

/// One replication of a point, and its work.
pub(crate) fn work_of(
    point: &Point,
    replication: u32,
    works: &Works,
) -> Result<(Resolved, Work), RunError> {
    let resolved = replicate(&point.resolved, replication);
    let work = works.get(&resolved, &point.lengths)?;
    Ok((resolved, work))
}

/// The same point with the seed of a replication; replication 0 keeps its own.
pub fn replicate(point: &Resolved, replication: u32) -> Resolved {
    let mut point = point.clone();
    if replication > 0 {
        point.seed = point.seed.derive(u64::from(replication));
    }
    point
}
