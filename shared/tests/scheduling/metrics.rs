//! What the reducer makes of records.

use crate::common::{Driver, End, Fault, Times, Work, Worker};
use shared::core::Activity;
use shared::policy::{Admission, Policy, Release, preset};
use shared::time::Span;

/// One target, one drafter, one copy at a time.
fn plain() -> Policy {
    Policy {
        targets: 1,
        drafters: 1,
        depth_total: Some(1),
        ..preset("staged-fifo").expect("it exists")
    }
}

#[test]
fn shares_of_a_small_run_are_known_to_the_nanosecond() {
    let mut driver = Driver::new(Work::round(2, 1, 2).core(&plain()), Times::STEADY);
    assert_eq!(driver.run(), End::Done);
    let metrics = driver.metrics();
    // Target: forward 0-100, copy -110, forward -210, copy -220, no more input.
    // Drafter: waits -110, fetch -120, trains -180, waits -220, fetch -230, trains -290, applies -295.
    assert_eq!(metrics.makespan, Span::from_ns(295));
    let spans = |worker: usize| {
        let of = |activity| metrics.workers[worker].span(activity).as_ns();
        [
            Activity::Busy,
            Activity::Copying,
            Activity::Starved,
            Activity::Blocked,
        ]
        .map(of)
    };
    assert_eq!(spans(0), [200, 20, 75, 0]);
    assert_eq!(spans(1), [60 + 60 + 5, 20, 150, 0]);
}

#[test]
fn waiting_lasts_from_the_slot_to_the_taking() {
    let policy = Policy {
        admission: Admission::Block,
        release: Release::Trained,
        placement: shared::policy::Placement::Target,
        transport: shared::policy::Transport::P2p,
        prefetch: 0,
        overlap: true,
        ..plain()
    };
    let mut driver = Driver::new(Work::round(2, 1, 2).core(&policy), Times::STEADY);
    assert_eq!(driver.run(), End::Done);
    let delay = driver.metrics().delays[0];
    // The second holds without a slot until the first is trained on, then is taken at once.
    assert_eq!(
        (delay.count, delay.sum),
        (2, Span::ZERO),
        "{}",
        driver.text()
    );
}

#[test]
fn a_step_counts_what_became_part_of_the_weights_once() {
    let policy = Policy {
        drafters: 2,
        depth_total: Some(8),
        ..plain()
    };
    let work = Work::round(80, 1, 2);
    let mut driver = Driver::new(work.core(&policy), Times::STEADY)
        .at(3_000, Fault::Lose(Worker::Drafter(1)))
        .at(3_500, Fault::Join(Worker::Drafter(1)))
        .at(5_000, Fault::Lose(Worker::Drafter(0)))
        .at(5_500, Fault::Join(Worker::Drafter(0)));
    assert_eq!(driver.run(), End::Done);
    let metrics = driver.metrics();
    let steady: u32 = {
        let steps = &metrics.step_mixes;
        let first = steps.len() / 10;
        let counted = steps[first + 1..]
            .iter()
            .take(metrics.steady.steps as usize);
        counted.map(|s| s.microbatches).sum()
    };
    assert_eq!(metrics.steady.tokens.0, u64::from(steady), "one token each");
    assert_eq!(metrics.samples, 80);
}

#[test]
fn bars_of_the_timeline_cover_what_workers_did() {
    let policy = Policy {
        barrier: shared::policy::Barrier::None,
        drafters: 2,
        depth_total: Some(8),
        ..plain()
    };
    let times = Times {
        forward: 10,
        apply: 50,
        ..Times::STEADY
    };
    let mut driver = Driver::new(Work::round(8, 1, 2).core(&policy), times);
    assert_eq!(driver.run(), End::Done);
    let bars = driver.metrics().timeline;
    let applies: Vec<_> = bars
        .iter()
        .filter(|bar| bar.work == shared::metrics::Work::Apply)
        .map(|bar| (bar.worker.as_str(), (bar.to - bar.from).as_ns()))
        .collect();
    assert_eq!(
        applies[..2],
        [("d0", 50), ("d1", 50)],
        "steps of the same number are told apart"
    );
}
