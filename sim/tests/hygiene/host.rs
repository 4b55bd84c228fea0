//! The host that simulates: how fast it is and how many threads it has changes nothing.

use crate::base::{point, simulate, simulate_slowly};
use shared::policy::PRESETS;
use shared::record::Digest;
use sim::{Point, draw_lengths, sweep};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[test]
fn a_slow_host_simulates_the_same() {
    for name in PRESETS {
        let preset = format!("policy.preset = '{name}'");
        let point = point(&[&preset, "policy.mix_step_min = 0"]);
        let mut digests = 0;
        let slow = simulate_slowly(&point, |trace| {
            let mut digest = Digest::default();
            (0..20).for_each(|_| digest.add(trace.as_bytes()));
            digests += digest.finish() & 1;
        });
        assert!(digests > 0, "it did something");
        assert!(slow == simulate(&point), "{name}");
    }
}

#[test]
fn one_thread_and_sixteen_find_the_same() {
    let points: Vec<Point> = PRESETS
        .iter()
        .flat_map(|name| [6, 8, 12].map(|depth| (name, depth)))
        .map(|(name, depth)| {
            let preset = format!("policy.preset = '{name}'");
            let depth = format!("policy.depth_total = {depth}");
            let resolved = point(&[&preset, &depth, "policy.mix_step_min = 0"]);
            let lengths = draw_lengths(&resolved.workload, resolved.seed).expect("drawn lengths");
            Point {
                resolved,
                lengths: Arc::new(lengths),
            }
        })
        .collect();
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = pool.build().expect("a pool");
        let rows = pool.install(|| sweep(&points, 3, &AtomicBool::new(false), &|_| {}));
        format!("{rows:?}")
    };
    assert!(on(1) == on(16), "rows differ");
}
