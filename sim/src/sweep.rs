//! Many points, in parallel over points, each by as many replications as asked for.

use crate::engine::End;
use crate::run::{Nobody, Outcome, Resolved, RunError, run};
use crate::stats::Estimate;
use crate::works::Works;
use rayon::prelude::*;
use shared::metrics::Detail;
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
    /// The first replication in full, or why there is none.
    pub outcome: Result<Box<Outcome>, RunError>,
}

impl Row {
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
    let works = Works::default();
    points
        .par_iter()
        .enumerate()
        .with_max_len(8)
        .filter_map(|(index, point)| {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let row = simulate_point(index, point, replications, &works);
            done(&row);
            Some(row)
        })
        .collect()
}

fn simulate_point(index: usize, point: &Point, replications: u32, works: &Works) -> Row {
    let mut throughputs = Vec::new();
    let mut first = None;
    for replication in 0..replications.max(1) {
        let resolved = replicate(&point.resolved, replication);
        let outcome = works
            .get(&resolved, &point.lengths)
            .and_then(|work| run(&resolved, &work, Detail::default(), &mut Nobody).map(Box::new));
        if let Ok(outcome) = &outcome {
            throughputs.push(outcome.metrics.tokens_per_s());
        }
        let failed = outcome.as_ref().map_or(true, |o| o.end != End::Done);
        first.get_or_insert(outcome);
        if failed {
            break;
        }
    }
    let outcome = first.expect("at least one replication ran");
    Row {
        index,
        throughput: Estimate::of(&throughputs),
        outcome,
    }
}

/// The same point with the seed of a replication; replication 0 keeps its own.
pub fn replicate(point: &Resolved, replication: u32) -> Resolved {
    let mut point = point.clone();
    if replication > 0 {
        point.seed = point.seed.derive(u64::from(replication));
    }
    point
}
