//! The winner measured again: the figure that won a search favours luck, so what is published comes from seeds that the search never saw.

use super::part::Parts;
use super::{Progress, Tell};
use crate::run::RunError;
use crate::stats::Estimate;
use crate::sweep::{Point, simulate_once};
use crate::works::Works;
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Seeds of these replications begin here, far from those of any search.
const FRESH_FROM: u32 = 1_000_000;

/// Replications in one go.
const BLOCK: u32 = 5;

/// Replications at most.
const FRESH_MAX: u32 = 20;

/// A throughput on fresh seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confirmation {
    /// Trained tokens a second. (tok/s)
    pub throughput: Estimate,
    /// Microbatches simulated for it.
    pub microbatches: u64,
}

/// One figure is wanted here, where a search wants many: its runs are so many times as long as the search's.
const LONGER: f64 = 3.0;

/// Measures a point on fresh seeds, after a search by runs of a `share` of its work: five replications, and five more as long as the interval is
/// wider than `tolerance`, at most twenty. `None` if it was stopped before there was an interval.
///
/// # Errors
/// When the point cannot run.
pub fn confirm(
    point: &Point,
    share: f64,
    tolerance: f64,
    stop: &AtomicBool,
    tell: Tell<'_>,
) -> Result<Option<Confirmation>, RunError> {
    let part = Parts::default().of(point, if share > 0.0 { LONGER * share } else { 1.0 });
    let mut throughputs = Vec::new();
    let mut microbatches = 0;
    for block in 0..FRESH_MAX / BLOCK {
        let from = FRESH_FROM + block * BLOCK;
        let replications: Vec<u32> = (from..from + BLOCK).collect();
        tell(Progress::Begins {
            what: "fresh seeds",
            runs: replications.len(),
        });
        let works = Works::expecting(replications.iter().map(|&r| (&part, r)));
        let outcomes: Vec<_> = replications
            .par_iter()
            .filter(|_| !stop.load(Ordering::Relaxed))
            .map(|&replication| {
                let outcome = simulate_once(&part, replication, &works);
                tell(Progress::Done);
                outcome
            })
            .collect();
        for outcome in outcomes {
            let outcome = outcome?;
            throughputs.push(outcome.metrics.tokens_per_s());
            microbatches += u64::from(outcome.metrics.microbatches);
        }
        let throughput = Estimate::of(&throughputs);
        let is_narrow = 2.0 * throughput.half_width <= tolerance * throughput.mean;
        if is_narrow || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok((throughputs.len() > 1).then(|| Confirmation {
        throughput: Estimate::of(&throughputs),
        microbatches,
    }))
}
