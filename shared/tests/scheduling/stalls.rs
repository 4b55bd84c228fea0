//! Runs that cannot go on, and what they say.

use crate::common::{Driver, End, Fault, Kind, Times, Work, Worker};
use expect_test::{Expect, expect};
use shared::policy::{Admission, Enforce, Placement, Policy, Queue, Release, Transport, preset};

fn check(policy: &Policy, work: &Work, expected: Expect) {
    check_failing(policy, work, None, expected);
}

/// The same with work that always fails.
fn check_failing(policy: &Policy, work: &Work, fails: Option<(Kind, u32)>, expected: Expect) {
    let mut driver = Driver::new(work.core(policy), Times::STEADY);
    if let Some((kind, microbatch)) = fails {
        driver = driver.failing(kind, microbatch);
    }
    let End::Stalled(stall) = driver.run() else {
        panic!("it ends:\n{}", driver.text());
    };
    let warned = work.findings(policy);
    assert!(
        warned.iter().any(|f| f.message.contains("deadlock")),
        "{warned:?}"
    );
    expected.assert_eq(&stall.to_string());
}

/// At least two distinct buckets in each drafter's window of three, enforced when something is taken.
fn picky() -> Policy {
    Policy {
        targets: 2,
        drafters: 1,
        depth_total: Some(3),
        prefetch: 0,
        mix_window_min: 2,
        mix_enforce: Enforce::Take,
        ..preset("bucketed").expect("it exists")
    }
}

#[test]
fn a_mixing_rule_that_acts_on_taking_can_deadlock() {
    let mut buckets = vec![0; 12];
    buckets.push(1);
    check(
        &picky(),
        &Work::new(&buckets, 3),
        expect![[r#"
        deadlock at 400 ns: 13 microbatches are undone, 3 slots are in use, nothing is in flight
          t0 holds m6 (bucket b0) and waits for a slot
          t1 holds m5 (bucket b0) and waits for a slot
          m2 (bucket b0) waits for a drafter that may take it
          m3 (bucket b0) waits for a drafter that may take it
          m4 (bucket b0) waits for a drafter that may take it
          d0 has 2 of 3 in its window, from {b0}, and waits for 1 more distinct bucket(s): the rule asks for 2"#]],
    );
}

#[test]
fn the_same_rule_does_not_hang_when_other_buckets_are_dry() {
    let mut driver = Driver::new(
        Work::new(&[0, 1, 0, 0, 0, 0, 0], 3).core(&picky()),
        Times::STEADY,
    );
    assert_eq!(driver.run(), End::Done);
    let mixes = driver.metrics().step_mixes;
    let distinct: Vec<_> = mixes.iter().map(|mix| mix.distinct).collect();
    assert_eq!(
        distinct,
        [2, 1, 1],
        "what cannot be mixed is trained unmixed"
    );
}

#[test]
fn slots_kept_for_the_next_step_can_starve_this_one() {
    let policy = Policy {
        targets: 2,
        drafters: 2,
        depth_total: Some(1),
        release: Release::Trained,
        queue: Queue::Fifo,
        ..preset("bucketed").expect("it exists")
    };
    let fails = Some((Kind::Train, 1));
    check_failing(
        &policy,
        &Work::round(12, 1, 1),
        fails,
        expect![[r#"
        deadlock at 340 ns: 12 microbatches are undone, 1 slots are in use, nothing is in flight
          t0 holds m1 (bucket b0) and waits for a slot
          t1 holds m3 (bucket b0) and waits for a slot
          d0 waits for the others at the barrier
          d1 has 0 of 1 in its window, from {}, and waits for hidden states"#]],
    );
}

#[test]
fn one_drafters_queue_can_fill_what_all_share() {
    let policy = Policy {
        targets: 3,
        drafters: 2,
        depth_total: Some(1),
        depth_per_drafter: None,
        queue: Queue::PerDrafter,
        placement: Placement::Host,
        transport: Transport::HostPinned,
        admission: Admission::Block,
        ..preset("drafter-queues").expect("it exists")
    };
    let fails = Some((Kind::Forward, 1));
    check_failing(
        &policy,
        &Work::round(12, 1, 1),
        fails,
        expect![[r#"
        deadlock at 400 ns: 11 microbatches are undone, 1 slots are in use, nothing is in flight
          t0 holds m3 (bucket b0) and waits for a slot
          t1 holds m4 (bucket b0) and waits for a slot
          t2 holds m5 (bucket b0) and waits for a slot
          m2 (bucket b0) waits for a drafter that may take it
          d0 waits for the others at the barrier
          d1 has 0 of 1 in its window, from {}, and waits for hidden states"#]],
    );
}

#[test]
fn targets_that_pause_too_early_never_resume() {
    let policy = Policy {
        targets: 1,
        drafters: 1,
        gate_high: Some(3),
        gate_low: Some(1),
        gate_lag: 1,
        ..preset("watermark").expect("it exists")
    };
    check(
        &policy,
        &Work::round(12, 1, 2),
        expect![[r#"
        deadlock at 345 ns: 10 microbatches are undone, 1 slots are in use, nothing is in flight
          t0 waits to begin m3: the watermark holds targets back until samples in flight fall to gate_low
          m2 (bucket b0) waits for a drafter that may take it
          d0 has 0 of 2 in its window, from {}, and waits for hidden states"#]],
    );
}

#[test]
fn a_bucket_cap_can_keep_a_window_from_being_dealt() {
    let policy = Policy {
        targets: 1,
        drafters: 1,
        depth_per_bucket: Some(1),
        poll: shared::time::Span::ZERO,
        ..preset("pool").expect("it exists")
    };
    check(
        &policy,
        &Work::round(6, 1, 2),
        expect![[r#"
        deadlock at 200 ns: 6 microbatches are undone, 1 slots are in use, nothing is in flight
          t0 holds m1 (bucket b0) and waits for a slot
          m0 (bucket b0) waits for a drafter that may take it
          d0 has 0 of 2 in its window, from {}, and waits for hidden states"#]],
    );
}

#[test]
fn a_run_without_workers_of_a_kind_says_so() {
    let policy = Policy {
        targets: 1,
        drafters: 1,
        ..preset("staged-fifo").expect("it exists")
    };
    let mut driver = Driver::new(Work::round(4, 1, 2).core(&policy), Times::STEADY)
        .at(150, Fault::Lose(Worker::Target(0)));
    let End::Stalled(stall) = driver.run() else {
        panic!("nobody is left");
    };
    expect![[r#"
        deadlock at 180 ns: 4 microbatches are undone, 0 slots are in use, nothing is in flight
          no target worker is left
          d0 has 1 of 2 in its window, from {b0}, and waits for hidden states"#]]
    .assert_eq(&stall.to_string());
}
