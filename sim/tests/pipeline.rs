//! A small pipeline that was simulated by other frameworks, replayed to the nanosecond.
//!
//! 5 targets with recorded service times, a store of 6 buckets that shares a capacity of 12 and blocks after service, 3 drafters that take
//! round robin with one pointer, 32 ms each, and an 8 ms optimizer step of a drafter's own after every fourth. The five integers below are
//! what a hand-written loop, two discrete-event frameworks in Rust and two in Python agree on.

#[path = "../benches/cases/mod.rs"]
mod cases;

use cases::{pipeline, recorded, reference};
use sim::validate::Checksum;

#[test]
fn the_pipeline_of_other_frameworks_is_replayed_to_the_nanosecond() {
    assert_eq!(
        pipeline(&recorded()).checksum(20_000),
        Checksum {
            makespan: 228_992_358_205,
            blocked: 32_180_257_656,
            starved: 6_939_259_346,
            area: 1_633_271_861_776,
            steps: 4_999,
        }
    );
}

#[test]
fn however_long_a_run_its_core_keeps_what_it_is_at_work_on() {
    let names = ["composed", "bucketed", "drafter-queues", "staged-fifo"];
    let names = names.map(|name| (name, reference(name)));
    for (name, case) in [("pipeline", pipeline(&recorded()))]
        .into_iter()
        .chain(names)
    {
        let all = case.plan.microbatches.len();
        let most = case.most_kept();
        assert!(all > 10_000 && most < 500, "{name}: {most} of {all}");
    }
}
