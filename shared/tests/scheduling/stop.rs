//! Orderly stops.

use crate::common::{Driver, End, Fault, Times, Work};
use shared::core::{Action, Event, Status};
use shared::policy::{PRESETS, Policy, Queue, preset};

fn small(name: &str) -> Policy {
    let mut policy = preset(name).expect("it exists");
    (policy.targets, policy.drafters) = (2, 2);
    policy.mix_step_min = policy.mix_step_min.min(3);
    (policy.gate_high, policy.gate_low) = (None, None);
    policy.poll = shared::time::Span::ZERO;
    policy
}

fn status_count(driver: &Driver, status: Status) -> usize {
    let statuses = driver.core.state().lives.statuses();
    statuses.filter(|&s| s == status).count()
}

#[test]
fn a_stop_finishes_the_step_under_way_and_discards_the_rest() {
    for name in PRESETS {
        // The first microbatches are trained on from 120, or from 220 where a whole window is dealt.
        let at = if small(name).queue == Queue::Dealt {
            235
        } else {
            205
        };
        let core = Work::round(40, 3, 2).core(&small(name));
        let mut driver = Driver::new(core, Times::STEADY).at(at, Fault::Stop);
        assert_eq!(driver.run(), End::Done, "{name}");
        assert_eq!(
            status_count(&driver, Status::Committed),
            4,
            "{name}: one whole step"
        );
        assert_eq!(
            status_count(&driver, Status::Skipped),
            36,
            "{name}: the rest is listed"
        );
        let actions = || driver.records.iter().flat_map(|r| &r.actions);
        let applied = actions()
            .filter(|a| matches!(a, Action::Apply { .. }))
            .count();
        assert_eq!(applied, 1, "{name}");
        let metrics = driver.metrics();
        assert!(
            metrics.ledger.balances() && metrics.ledger.skipped == 36,
            "{name}"
        );
        let discards = actions()
            .filter(|a| matches!(a, Action::Discard { .. }))
            .count();
        assert!(
            discards > 0,
            "{name}: what was made for later steps is freed"
        );
        let stop = driver
            .records
            .iter()
            .position(|r| r.event == Event::StopAsked);
        let later = driver.records[stop.expect("it was asked")..].iter();
        let begun = later
            .flat_map(|r| &r.actions)
            .filter(|a| matches!(a, Action::Train { .. }));
        assert!(
            begun.count() < 4,
            "{name}: nothing is trained for another step"
        );
    }
}

#[test]
fn a_stop_before_training_begins_ends_without_a_step() {
    for name in PRESETS {
        let core = Work::round(40, 3, 2).core(&small(name));
        let mut driver = Driver::new(core, Times::STEADY).at(50, Fault::Stop);
        assert_eq!(driver.run(), End::Done, "{name}");
        assert_eq!(status_count(&driver, Status::Skipped), 40, "{name}");
        assert_eq!(
            driver.now.as_ns(),
            100,
            "{name}: forwards under way come home, nothing follows"
        );
    }
}

#[test]
fn without_a_barrier_each_drafter_finishes_its_own_window() {
    let policy = Policy {
        barrier: shared::policy::Barrier::None,
        prefetch: 1,
        ..small("bucketed")
    };
    let core = Work::round(40, 3, 3).core(&policy);
    let mut driver = Driver::new(core, Times::STEADY).at(290, Fault::Stop);
    assert_eq!(driver.run(), End::Done);
    let windows = driver.metrics().step_mixes;
    assert!(windows.iter().all(|w| w.microbatches == 3), "{windows:?}");
    let own_steps: Vec<_> = driver
        .core
        .state()
        .drafters
        .iter()
        .map(|d| d.own_steps)
        .collect();
    assert_eq!(windows.len() as u32, own_steps.iter().sum::<u32>());
}

#[test]
fn a_second_stop_and_one_after_the_end_change_nothing() {
    let core = Work::round(40, 3, 2).core(&small("composed"));
    let mut driver = Driver::new(core, Times::STEADY)
        .at(200, Fault::Stop)
        .at(201, Fault::Stop);
    assert_eq!(driver.run(), End::Done);
    let before = driver.core.state().clone();
    driver.tell(Event::StopAsked);
    assert_eq!(driver.core.state(), &before);
}
