//! A sweep of the reference scenario: `cargo bench --bench sweep -- [POINTS]`, 20,000 microbatches a point, all metrics.
//!
//! Points differ in preset, split and depth, as in a search by hand. Work is prepared once, each order of it once.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

mod cases;

use cases::{cpu_seconds_of_all, reference_point};
use shared::policy::Policy;
use sim::{Point, Verdict, draw_lengths, sweep};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Samples that make about 20,000 microbatches.
const SAMPLES: u32 = 667_600;

fn main() {
    let points = std::env::args()
        .skip(1)
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(200);
    let mut base = reference_point("composed");
    base.workload.samples = SAMPLES;
    let lengths = draw_lengths(&base.workload, base.seed).expect("drawn lengths");
    let lengths = Arc::new(lengths);
    let points: Vec<Point> = (0..points)
        .map(|i| {
            let preset = ["composed", "bucketed", "drafter-queues"][i % 3];
            let (targets, drafters) = [(5, 3), (4, 4), (6, 2)][i / 3 % 3];
            let mut resolved = base.clone();
            resolved.policy = Policy {
                targets,
                drafters,
                depth_total: Some(12 + (i / 9 % 100) as u32),
                ..reference_point(preset).policy
            };
            let lengths = Arc::clone(&lengths);
            Point { resolved, lengths }
        })
        .collect();

    let (begin, cpu) = (Instant::now(), cpu_seconds_of_all());
    let rows = sweep(&points, 1, &AtomicBool::new(false), &|_| {});
    let (wall, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds_of_all() - cpu);
    let done = rows.iter().filter(|row| row.verdict() == Verdict::Done);
    let done = done.count();
    let outcomes = rows.iter().filter_map(|row| row.outcome.as_ref().ok());
    let microbatches: u64 = outcomes
        .map(|outcome| u64::from(outcome.metrics.microbatches))
        .sum();
    let each = cpu / rows.len() as f64;
    println!(
        "{} points, {done} done, {microbatches} microbatches",
        rows.len()
    );
    println!(
        "{cpu:.1} s of processor time in {wall:.1} s: {:.2} M microbatches/s a core",
        microbatches as f64 / cpu / 1e6
    );
    println!("20,000 points on 2 cores: {:.0} s", each * 20_000.0 / 2.0);
}
