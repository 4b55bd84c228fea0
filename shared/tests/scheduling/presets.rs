//! What each preset decides, record by record, on one small piece of work.
//!
//! The files in `snapshots` are traces without header: `UPDATE_EXPECT=1 cargo test` writes them anew.

use crate::common::{Driver, End, Times, Work};
use expect_test::{ExpectFile, expect_file};
use shared::policy::{Policy, preset};

/// Two targets, two drafters, three buckets, two steps of four and a tail of two.
fn check(name: &str, adjust: impl FnOnce(&mut Policy), expected: ExpectFile) {
    let mut policy = preset(name).expect("it exists");
    (policy.targets, policy.drafters) = (2, 2);
    policy.mix_step_min = policy.mix_step_min.min(3);
    adjust(&mut policy);
    let work = Work::new(&[0, 1, 2, 0, 1, 0, 0, 1, 2, 0], 2);
    let errors = policy.ensure(&shared::policy::RunFacts::of(
        &work.plan(&policy).microbatches,
        2,
    ));
    assert_eq!(errors, Ok(()));
    let times = Times {
        spread: 60,
        ..Times::STEADY
    };
    let mut driver = Driver::new(work.core(&policy), times);
    assert_eq!(driver.run(), End::Done);
    expected.assert_eq(&driver.text());
}

#[test]
fn staged_fifo_waits_for_copies_and_feeds_targets_in_turn() {
    check(
        "staged-fifo",
        |_| {},
        expect_file!["snapshots/staged-fifo.txt"],
    );
}

#[test]
fn drafter_queues_send_every_other_microbatch_to_each_drafter() {
    check(
        "drafter-queues",
        |_| {},
        expect_file!["snapshots/drafter-queues.txt"],
    );
}

#[test]
fn bucketed_goes_round_through_the_buckets() {
    check("bucketed", |_| {}, expect_file!["snapshots/bucketed.txt"]);
}

#[test]
fn composed_dispatches_in_plan_order() {
    let narrow = |policy: &mut Policy| policy.depth_total = Some(4);
    check("composed", narrow, expect_file!["snapshots/composed.txt"]);
}

#[test]
fn watermark_pauses_targets_and_deals_whole_windows() {
    let low = |policy: &mut Policy| {
        (policy.gate_high, policy.gate_low) = (Some(12), Some(9));
    };
    check("watermark", low, expect_file!["snapshots/watermark.txt"]);
}

#[test]
fn pool_is_looked_at_now_and_then() {
    let poll = |policy: &mut Policy| policy.poll = shared::time::Span::from_ns(100);
    check("pool", poll, expect_file!["snapshots/pool.txt"]);
}
