//! Points side by side on common random numbers: in each replication all of them face the same samples and the same noise.

use crate::engine::End;
use crate::run::{Nobody, Outcome, RunError, run};
use crate::stats::Estimate;
use crate::sweep::{Point, replicate};
use crate::works::Works;
use rayon::prelude::*;
use shared::metrics::Detail;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a point has no numbers to compare.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpaired {
    /// It cannot be set up.
    #[error(transparent)]
    Refused(#[from] RunError),
    /// It hung.
    #[error("it ends in a deadlock")]
    Deadlock,
    /// It does not fit the memory there is.
    #[error("{0}")]
    Overflow(String),
    /// The user stopped before all its replications were there.
    #[error("it was not simulated to its end: interrupted")]
    Interrupted,
}

/// One outcome a replication, in the order of the replications.
pub type Outcomes = Result<Vec<Outcome>, Unpaired>;

/// Simulates every point under each of `replications`; once `stop` is set, what has not begun is left out.
pub fn side_by_side(
    points: &[Point],
    replications: Range<u32>,
    stop: &AtomicBool,
    done: &(dyn Fn() + Sync),
) -> Vec<Outcomes> {
    // By replication first, so that points that share their work ask for it one after the other.
    let runs: Vec<(&Point, u32)> = replications
        .clone()
        .flat_map(|number| points.iter().map(move |point| (point, number)))
        .collect();
    let works = Works::expecting(runs.iter().copied());
    let outcomes: Vec<Result<Outcome, Unpaired>> = runs
        .into_par_iter()
        .map(|(point, number)| {
            if stop.load(Ordering::Relaxed) {
                return Err(Unpaired::Interrupted);
            }
            let outcome = one(point, number, &works);
            done();
            outcome
        })
        .collect();
    let mut by_point: Vec<Vec<Result<Outcome, Unpaired>>> = vec![Vec::new(); points.len()];
    for (i, outcome) in outcomes.into_iter().enumerate() {
        by_point[i % points.len()].push(outcome);
    }
    by_point
        .into_iter()
        .map(|outcomes| outcomes.into_iter().collect())
        .collect()
}

fn one(point: &Point, number: u32, works: &Works) -> Result<Outcome, Unpaired> {
    let again = replicate(&point.resolved, number);
    let work = works.get(&again, &point.lengths)?;
    let outcome = run(&again, &work, Detail::default(), &mut Nobody)?;
    if outcome.end != End::Done {
        return Err(Unpaired::Deadlock);
    }
    match outcome.overflow.first() {
        Some(place) => Err(Unpaired::Overflow(place.to_string())),
        None => Ok(outcome),
    }
}

/// The mean of `value(other, base)` over the pairs of two points, with its interval.
pub fn paired(
    base: &[Outcome],
    other: &[Outcome],
    value: impl Fn(&Outcome, &Outcome) -> f64,
) -> Estimate {
    let pairs = base.iter().zip(other);
    Estimate::of(
        &pairs
            .map(|(base, other)| value(other, base))
            .collect::<Vec<_>>(),
    )
}

/// By how much `other` is faster than `base`, as a share of `base`. (1)
pub fn gain(base: &[Outcome], other: &[Outcome]) -> Estimate {
    paired(base, other, |other, base| {
        let before = base.metrics.tokens_per_s();
        if before > 0.0 {
            other.metrics.tokens_per_s() / before - 1.0
        } else {
            0.0
        }
    })
}
