//! Lines that queueing theory has solved, run through the real core.
//!
//! A saturated target in front of a store without limit is a Poisson source, drafters are servers, a blocking target is blocking after
//! service, a slot reserved before the forward is a credit. A stochastic case holds when the exact value lies in the 99 % interval over
//! independent replications and that interval is narrow; a deterministic one is exact to the nanosecond.

mod bounded;
mod deterministic;
mod line;
mod open;
mod reference;
mod steps;

use line::{Line, Run, run};
use rayon::prelude::*;
use reference::{Measured, agrees, exact};
use shared::core::Activity;
use shared::draw::Seed;

/// An unoptimised build runs fewer items, and its intervals may be wider in proportion.
const SHORTER: u32 = if cfg!(debug_assertions) { 32 } else { 1 };
const REPLICATIONS: u64 = 12;
/// Widest interval of a line with bounded queues, as a share of the metric's scale.
const WIDTH: f64 = 0.01;
type Metric<'a> = (&'static str, f64, &'a dyn Fn(&Run) -> f64);

/// Runs replications of `line` and compares every metric; a scale of 0 stands for the exact value.
fn holds(
    case: &str,
    parameters: &str,
    line: &Line,
    items: u32,
    width: f64,
    metrics: &[Metric<'_>],
) {
    let runs: Vec<Run> = (0..REPLICATIONS)
        .into_par_iter()
        .map(|i| run(line, items / SHORTER, Seed(7).derive(i)))
        .collect();
    let width = width * f64::from(SHORTER).sqrt();
    let failures: Vec<String> = metrics
        .iter()
        .filter_map(|&(metric, scale, of)| {
            let exact = exact(case, parameters, metric);
            let scale = if scale == 0.0 { exact } else { scale };
            let values = runs.iter().map(of).collect();
            agrees(
                case,
                parameters,
                &Measured {
                    metric,
                    values,
                    scale,
                },
                width,
            )
            .err()
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn busy_drafters(run: &Run) -> f64 {
    run.metrics.drafter_share(Activity::Busy)
}

/// Mean wait in the store. (ms)
fn wait(run: &Run) -> f64 {
    let delays = &run.metrics.delays;
    let sum: u64 = delays.iter().map(|d| d.sum.as_ns()).sum();
    let count: u32 = delays.iter().map(|d| d.count).sum();
    sum as f64 / f64::from(count) / 1e6
}

fn slots(run: &Run) -> f64 {
    run.metrics.peaks.slots_mean(run.metrics.end())
}
