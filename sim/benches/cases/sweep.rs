//! The sweep of the reference scenario: 20,000 microbatches a point, all metrics.
//!
//! The whole sweep has 19,872 points, no two alike: 288 families (preset, split, release, prefetch, copies beside compute) of 69 depths.
//! Work is prepared once, each order of it once, and points that no cap hinders share a run. A part of the families, spread over all of
//! them, stands for the whole.

use super::{cpu_seconds_of_all, reference_point};
use shared::policy::{Policy, Release};
use sim::{Point, Verdict, draw_lengths, sweep};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Samples that make about 20,000 microbatches.
const SAMPLES: u32 = 667_600;
/// Families of the whole sweep.
pub(crate) const FAMILIES: usize = 288;
const DEPTHS: std::ops::Range<u32> = 12..81;

/// A family's policy, without its depth.
fn family(number: usize) -> Policy {
    let mut rest = number;
    let mut one_of = |count: usize| {
        let choice = rest % count;
        rest /= count;
        choice
    };
    let preset = ["composed", "bucketed", "drafter-queues"][one_of(3)];
    let (targets, drafters) = [(5, 3), (4, 4), (6, 2), (3, 5), (4, 3), (5, 2)][one_of(6)];
    Policy {
        targets,
        drafters,
        release: [Release::Fetched, Release::Trained][one_of(2)],
        prefetch: [1, 2, 3, 4][one_of(4)],
        copies_beside: [1, 2][one_of(2)],
        ..reference_point(preset).policy
    }
}

/// What a sweep simulated, and how long it took.
pub(crate) struct Swept {
    points: usize,
    done: usize,
    microbatches: u64,
    /// By the clock on the wall, and of all cores. (s)
    wall: f64,
    cpu: f64,
}

/// Sweeps so many families.
pub(crate) fn sweep_families(families: usize) -> Swept {
    let mut base = reference_point("composed");
    base.workload.samples = SAMPLES;
    let lengths = draw_lengths(&base.workload, base.seed).expect("drawn lengths");
    let lengths = Arc::new(lengths);
    // A step that has no divisor in common with the choices meets all of them.
    let numbers = (0..families).map(|i| i * 125 % FAMILIES);
    let points: Vec<Point> = numbers
        .flat_map(|number| DEPTHS.map(move |depth| (number, depth)))
        .map(|(number, depth)| {
            let mut resolved = base.clone();
            resolved.policy = Policy {
                depth_total: Some(depth),
                ..family(number)
            };
            let lengths = Arc::clone(&lengths);
            Point { resolved, lengths }
        })
        .collect();

    let (begin, cpu) = (Instant::now(), cpu_seconds_of_all());
    let rows = sweep(&points, 1, &AtomicBool::new(false), &|_| {});
    let (wall, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds_of_all() - cpu);
    let done = rows.iter().filter(|row| row.verdict() == Verdict::Done);
    let outcomes = rows.iter().filter_map(|row| row.outcome.as_ref().ok());
    Swept {
        points: rows.len(),
        done: done.count(),
        microbatches: outcomes
            .map(|outcome| u64::from(outcome.metrics.microbatches))
            .sum(),
        wall,
        cpu,
    }
}

impl fmt::Display for Swept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            points,
            done,
            microbatches,
            wall,
            cpu,
        } = *self;
        let rate = microbatches as f64 / cpu / 1e6;
        let whole = cpu / points as f64 * 20_000.0 / 2.0;
        writeln!(
            f,
            "{points} points, {done} done, {microbatches} microbatches"
        )?;
        writeln!(
            f,
            "{cpu:.1} s of processor time in {wall:.1} s: {rate:.2} M microbatches/s a core"
        )?;
        write!(f, "20,000 points on 2 cores: {whole:.0} s")
    }
}
