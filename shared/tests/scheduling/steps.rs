//! Steps: who trains on what, what waits for whom, and how a run ends.

use crate::common::{Driver, End, Times, Work};
use shared::core::{Action, Activity, Event, Group};
use shared::plan::Tail;
use shared::policy::{Admission, Assignment, Barrier, Input, PRESETS, Policy, Queue, preset};
use shared::time::Span;

fn small(name: &str) -> Policy {
    let mut policy = preset(name).expect("it exists");
    (policy.targets, policy.drafters) = (2, 2);
    policy.mix_step_min = policy.mix_step_min.min(3);
    (policy.gate_high, policy.gate_low) = (None, None);
    policy
}

fn run(policy: &Policy, work: &Work, times: Times) -> Driver {
    let mut driver = Driver::new(work.core(policy), times);
    assert_eq!(driver.run(), End::Done);
    driver
}

/// Microbatches by drafter, in the order trained.
fn trained(driver: &Driver) -> Vec<Vec<u32>> {
    let mut of = vec![Vec::new(); driver.core.state().drafters.len()];
    for action in driver.records.iter().flat_map(|r| &r.actions) {
        if let Action::Train {
            drafter,
            microbatch,
            ..
        } = action
        {
            of[drafter.index()].push(microbatch.0);
        }
    }
    of
}

fn uneven(seed: u64) -> Times {
    Times {
        spread: 200,
        seed: shared::draw::Seed(seed),
        ..Times::STEADY
    }
}

#[test]
fn with_fixed_assignment_each_drafter_trains_its_own_in_plan_order_whatever_the_timing() {
    let policy = small("composed");
    let work = Work::round(32, 4, 2);
    let first = trained(&run(&policy, &work, uneven(1)));
    assert_eq!(first, trained(&run(&policy, &work, uneven(2))));
    for (drafter, own) in first.iter().enumerate() {
        assert!(own.is_sorted());
        let plan = work.plan(&policy);
        assert!(
            own.iter()
                .all(|&id| plan.drafter_of[id as usize].index() == drafter)
        );
    }
}

#[test]
fn with_shared_assignment_who_is_free_trains_and_steps_stay_the_same() {
    let policy = Policy {
        assignment: Assignment::Shared,
        placement: shared::policy::Placement::Target,
        ..small("composed")
    };
    let work = Work::round(64, 4, 4);
    let drivers = [
        run(&policy, &work, uneven(1)),
        run(&policy, &work, uneven(2)),
    ];
    assert_ne!(trained(&drivers[0]), trained(&drivers[1]));
    let mixes = drivers.map(|d| d.metrics().step_mixes);
    assert_eq!(mixes[0], mixes[1]);
    let mut shares = [[0_u32; 2]; 8];
    let driver = run(&policy, &work, uneven(1));
    for action in driver.records.iter().flat_map(|r| &r.actions) {
        if let Action::Train { drafter, step, .. } = action {
            shares[step.index()][drafter.index()] += 1;
        }
    }
    let is_uneven = |share: &[u32; 2]| share[0] != share[1];
    assert!(
        shares.iter().any(is_uneven),
        "nobody waits while there is work: {shares:?}"
    );
}

#[test]
fn prefetch_fetches_the_next_while_the_present_one_is_trained_on() {
    let overlap = |prefetch| {
        let policy = Policy {
            prefetch,
            ..small("bucketed")
        };
        let times = Times {
            fetch: 50,
            train: 100,
            forward: 10,
            ..Times::STEADY
        };
        let driver = run(&policy, &Work::round(40, 3, 4), times);
        let metrics = driver.metrics();
        (metrics.drafter_share(Activity::Copying), metrics.makespan)
    };
    let (without, long) = overlap(0);
    let (with, short) = overlap(1);
    assert!(
        without > 0.25 && with < 0.05,
        "copying {without} without, {with} with"
    );
    assert!(short.as_ns() * 10 < long.as_ns() * 8, "{short:?} {long:?}");
}

#[test]
fn a_barrier_updates_all_drafters_at_once_and_none_lets_each_go_on() {
    let work = Work::round(32, 3, 2);
    let groups = |barrier| {
        let policy = Policy {
            barrier,
            ..small("staged-fifo")
        };
        let driver = run(&policy, &work, uneven(3));
        let shares = driver.metrics().drafter_share(Activity::Barrier);
        let events = driver.records.iter().filter_map(|r| match r.event {
            Event::StepApplied { group, .. } => Some(group),
            _ => None,
        });
        (events.collect::<Vec<_>>(), shares)
    };
    let (all, waited) = groups(Barrier::All);
    assert_eq!(all, [Group::All; 8]);
    assert!(waited > 0.0);
    let (each, waited) = groups(Barrier::None);
    assert!(each.len() >= 16 && !each.contains(&Group::All), "{each:?}");
    assert_eq!(waited, 0.0, "nobody waits for anybody");
}

#[test]
fn every_tail_rule_trains_or_lists_every_sample() {
    for queue in [Queue::Fifo, Queue::Bucketed, Queue::Composed] {
        for tail in [Tail::Short, Tail::Carry, Tail::Drop] {
            let policy = Policy {
                queue,
                tail,
                placement: shared::policy::Placement::Target,
                mix_enforce: shared::policy::Enforce::Record,
                mix_step_min: 0,
                ..small("bucketed")
            };
            let mut work = Work::round(10, 3, 2);
            work.epochs.push(work.epochs[0].clone());
            let metrics = run(&policy, &work, Times::STEADY).metrics();
            let sizes: Vec<_> = metrics.step_mixes.iter().map(|s| s.microbatches).collect();
            let expected: &[u32] = match (queue, tail) {
                (_, Tail::Drop) => &[4, 4, 4, 4],
                (Queue::Composed, Tail::Short) => &[4, 4, 2, 4, 4, 2],
                _ => &[4, 4, 4, 4, 4],
            };
            assert_eq!(sizes, expected, "{queue:?} {tail:?}");
            let ledger = metrics.ledger;
            assert!(ledger.balances());
            let dropped = if tail == Tail::Drop { 4 } else { 0 };
            assert_eq!(
                (ledger.trained, ledger.dropped.len()),
                (20 - dropped, dropped as usize)
            );
        }
    }
}

#[test]
fn composed_steps_need_one_slot_to_make_progress() {
    for admission in [Admission::Reserve, Admission::Block] {
        for input in [Input::Shared, Input::FixedRoundRobin] {
            let policy = Policy {
                depth_total: Some(1),
                admission,
                input,
                targets: 3,
                ..small("composed")
            };
            let driver = run(&policy, &Work::round(24, 3, 2), uneven(4));
            assert_eq!(driver.metrics().peaks.slots, 1);
            assert_eq!(driver.metrics().steps, 6);
        }
    }
}

#[test]
fn the_watermark_pauses_at_the_high_mark_and_resumes_at_the_low_one() {
    let policy = Policy {
        gate_high: Some(12),
        gate_low: Some(8),
        ..small("watermark")
    };
    let times = Times {
        train: 400,
        ..Times::STEADY
    };
    let mut driver = Driver::new(Work::round(60, 3, 2).core(&policy), times).watched(|core| {
        let state = core.state();
        assert!(state.samples_in_flight <= 12);
        assert!(!state.paused || state.samples_in_flight > 8 || state.idle_targets.is_empty());
    });
    assert_eq!(driver.run(), End::Done);
    let blocked = driver.metrics().target_share(Activity::Blocked);
    assert!(blocked > 0.3, "targets wait for slow drafters: {blocked}");
    let mut paused = driver.records.iter().filter(|r| {
        matches!(r.event, Event::StepApplied { .. })
            && r.actions
                .iter()
                .any(|a| matches!(a, Action::Forward { .. }))
    });
    assert!(paused.next().is_some(), "a step lets them resume");
}

#[test]
fn a_pool_deals_whole_windows_when_it_is_looked_at() {
    for late in [0, 3] {
        let policy = Policy {
            poll: Span::from_ns(130),
            ..small("pool")
        };
        let times = Times {
            late,
            ..Times::STEADY
        };
        let driver = run(&policy, &Work::round(30, 3, 2), times);
        let mut drafters_began = Vec::new();
        for record in &driver.records {
            let fetches = record
                .actions
                .iter()
                .filter(|a| matches!(a, Action::Fetch { .. }));
            if matches!(record.event, Event::WakeDue) {
                assert_eq!(record.at.as_ns() % 130, late);
                drafters_began.push(fetches.count());
            } else if drafters_began.is_empty() {
                assert_eq!(fetches.count(), 0, "nothing is dealt before the first look");
            }
        }
        assert_eq!(
            drafters_began.first(),
            Some(&2),
            "both drafters get their window at once"
        );
        assert_eq!(driver.metrics().steps, 8);
    }
}

#[test]
fn work_that_takes_no_time_is_done_all_the_same() {
    for name in PRESETS {
        let policy = Policy {
            poll: Span::ZERO,
            ..small(name)
        };
        let driver = run(&policy, &Work::round(20, 3, 2), Times::ZERO);
        let metrics = driver.metrics();
        assert_eq!((metrics.steps, metrics.makespan), (5, Span::ZERO), "{name}");
        assert_eq!(metrics.tokens_per_s(), 0.0, "no rate without time");
    }
}

#[test]
fn a_plan_without_work_stops_everybody_at_once() {
    let policy = Policy {
        tail: Tail::Drop,
        ..small("bucketed")
    };
    let driver = run(&policy, &Work::round(3, 3, 2), Times::STEADY);
    assert_eq!(driver.records.len(), 1);
    assert_eq!(driver.metrics().ledger.dropped.len(), 3);
}
