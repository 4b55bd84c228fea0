//! Failures, losses and returns.

use crate::common::{Driver, End, Fault, Kind, Times, Work, Worker};
use shared::core::{Action, Core, Event, Outcome, Status, TargetTask};
use shared::id::{MicrobatchId, SampleId};
use shared::policy::{Admission, PRESETS, Placement, Policy, Queue, Transport, preset};
use std::cell::Cell;

fn small(name: &str) -> Policy {
    let mut policy = preset(name).expect("it exists");
    (policy.targets, policy.drafters) = (2, 2);
    policy.mix_step_min = policy.mix_step_min.min(3);
    (policy.gate_high, policy.gate_low) = (None, None);
    policy.poll = shared::time::Span::ZERO;
    policy
}

fn all_committed(driver: &Driver) -> bool {
    let mut statuses = driver.core.state().lives.statuses();
    statuses.all(|status| status == Status::Committed)
}

#[test]
fn a_microbatch_that_always_fails_is_tried_so_often_then_given_up_and_listed() {
    for name in PRESETS {
        for kind in [Kind::Forward, Kind::Train] {
            let policy = Policy {
                retry_max: 2,
                ..small(name)
            };
            let mut work = Work::round(20, 3, 2);
            work.samples = 2;
            let mut driver = Driver::new(work.core(&policy), Times::STEADY).failing(kind, 5);
            assert_eq!(driver.run(), End::Done, "{name}");
            let life = &driver.core.state().lives[MicrobatchId(5)];
            assert_eq!(
                (life.status, life.attempts),
                (Status::Failed, 3),
                "{name} {kind:?}"
            );
            let ledger = driver.metrics().ledger;
            let samples = driver.core.plan().samples_of(MicrobatchId(5));
            assert_eq!(ledger.failed, samples, "{name}: its samples are listed");
            assert_eq!((ledger.trained, ledger.planned), (38, 40));
        }
    }
}

#[test]
fn one_failure_is_made_good() {
    for name in PRESETS {
        let times = Times {
            fail_permille: 150,
            spread: 30,
            ..Times::STEADY
        };
        let policy = Policy {
            retry_max: 20,
            ..small(name)
        };
        let mut driver = Driver::new(Work::round(30, 3, 2).core(&policy), times);
        assert_eq!(driver.run(), End::Done);
        let is_failure = |r: &&shared::record::Record| {
            matches!(
                r.event,
                Event::ForwardEnded {
                    outcome: Outcome::Failed,
                    ..
                } | Event::TrainEnded {
                    outcome: Outcome::Failed,
                    ..
                } | Event::FetchEnded {
                    outcome: Outcome::Failed,
                    ..
                } | Event::StageEnded {
                    outcome: Outcome::Failed,
                    ..
                }
            )
        };
        assert!(
            driver.records.iter().filter(is_failure).count() > 5,
            "{name}"
        );
        assert!(all_committed(&driver), "{name}");
        assert_eq!(driver.metrics().ledger.trained, 30);
    }
}

thread_local! {
    /// Whether the moment that a test is about came.
    static CAME: Cell<bool> = const { Cell::new(false) };
}

/// Loses t0 at every instant of a run; `moment` must hold just before at least one of these losses.
fn lose_target_when(policy: &Policy, moment: fn(&Core) -> bool) {
    let mut came = false;
    for at in 0..60 {
        let work = Work::round(16, 3, 2);
        let times = Times {
            train: 300,
            stage: 40,
            ..Times::STEADY
        };
        let mut before = Driver::new(work.core(policy), times).at(7 * at, Fault::Stop);
        before.run();
        let stop = before
            .records
            .iter()
            .position(|r| r.event == Event::StopAsked);
        let mut core = work.core(policy);
        let until = &before.records[..stop.expect("it was asked for")];
        shared::record::replay(&mut core, until, |_, _, _| {}).expect("it replays");
        came |= moment(&core);
        let lost = Driver::new(work.core(policy), times).at(7 * at, Fault::Lose(Worker::Target(0)));
        let mut lost = lost;
        assert_eq!(lost.run(), End::Done, "lost at {}", 7 * at);
        assert!(all_committed(&lost));
    }
    assert!(came, "the moment comes");
}

#[test]
fn a_target_may_be_lost_while_it_computes() {
    lose_target_when(&small("composed"), |core| {
        matches!(core.state().targets[0].task, TargetTask::Forward(_))
    });
}

#[test]
fn a_target_may_be_lost_while_it_holds_hidden_states() {
    let policy = Policy {
        depth_total: Some(1),
        admission: Admission::Block,
        release: shared::policy::Release::Trained,
        prefetch: 0,
        ..small("bucketed")
    };
    lose_target_when(&policy, |core| core.state().targets[0].held().is_some());
}

#[test]
fn a_target_may_be_lost_while_it_copies_beside_its_work_or_instead() {
    lose_target_when(&small("staged-fifo"), |core| {
        matches!(core.state().targets[0].task, TargetTask::Copy(_))
    });
    lose_target_when(&small("composed"), |core| {
        core.state().targets[0].copies_out > 0
    });
}

#[test]
fn a_target_may_be_lost_while_its_hidden_states_wait_or_are_fetched_or_trained_on() {
    let policy = Policy {
        release: shared::policy::Release::Trained,
        ..small("bucketed")
    };
    for status in [
        Status::Queued,
        Status::Fetching,
        Status::Ready,
        Status::Training,
    ] {
        CAME.set(false);
        let moment: fn(&Core) -> bool = match status {
            Status::Queued => |core| lies_with_t0(core, Status::Queued),
            Status::Fetching => |core| lies_with_t0(core, Status::Fetching),
            Status::Ready => |core| lies_with_t0(core, Status::Ready),
            _ => |core| lies_with_t0(core, Status::Training),
        };
        lose_target_when(&policy, moment);
    }
}

fn lies_with_t0(core: &Core, status: Status) -> bool {
    let lives = &core.state().lives;
    lives
        .kept()
        .any(|(_, life)| life.status == status && life.at_target.is_some_and(|t| t.0 == 0))
}

#[test]
fn a_drafter_lost_in_a_step_has_its_share_trained_again_by_others() {
    for name in PRESETS {
        for at in (0..1_500).step_by(40) {
            let policy = small(name);
            let core = Work::round(24, 3, 3).core(&policy);
            let mut driver = Driver::new(core, Times::STEADY)
                .at(at, Fault::Lose(Worker::Drafter(1)))
                .at(at + 700, Fault::Join(Worker::Drafter(1)));
            // The driver checks that every sample is committed exactly once.
            assert_eq!(driver.run(), End::Done, "{name} at {at}");
            assert!(all_committed(&driver), "{name} at {at}");
            let trained = driver.records.iter().filter(|r| {
                matches!(
                    r.event,
                    Event::TrainEnded {
                        outcome: Outcome::Done,
                        ..
                    }
                )
            });
            assert!(trained.count() >= 24);
            assert_eq!(driver.metrics().ledger.trained, 24);
        }
    }
}

#[test]
fn a_worker_that_comes_back_takes_part_again() {
    for name in PRESETS {
        let core = Work::round(60, 3, 2).core(&small(name));
        let mut driver = Driver::new(core, Times::STEADY)
            .at(120, Fault::Lose(Worker::Target(1)))
            .at(130, Fault::Lose(Worker::Drafter(0)))
            .at(600, Fault::Join(Worker::Target(1)))
            .at(610, Fault::Join(Worker::Drafter(0)));
        assert_eq!(driver.run(), End::Done, "{name}");
        assert!(all_committed(&driver), "{name}");
        let after = driver.records.iter().filter(|r| r.at.as_ns() > 610);
        let actions: Vec<_> = after.flat_map(|r| &r.actions).collect();
        let forwards = actions
            .iter()
            .any(|a| matches!(a, Action::Forward { target, .. } if target.0 == 1));
        let trains = actions
            .iter()
            .any(|a| matches!(a, Action::Train { drafter, .. } if drafter.0 == 0));
        assert!(forwards && trains, "{name}");
    }
}

#[test]
fn everybody_of_a_kind_may_be_lost_and_come_back() {
    for name in PRESETS {
        for kind in [Worker::Target as fn(u16) -> Worker, Worker::Drafter] {
            let core = Work::round(24, 3, 2).core(&small(name));
            let mut driver = Driver::new(core, Times::STEADY)
                .at(250, Fault::Lose(kind(0)))
                .at(260, Fault::Lose(kind(1)))
                .at(900, Fault::Join(kind(1)));
            assert_eq!(driver.run(), End::Done, "{name}");
            assert!(all_committed(&driver), "{name}");
        }
    }
}

#[test]
fn a_drafter_lost_while_a_step_is_applied_is_part_of_that_step() {
    let times = Times {
        apply: 100,
        ..Times::STEADY
    };
    for name in PRESETS {
        let work = Work::round(16, 3, 2);
        let mut whole = Driver::new(work.core(&small(name)), times);
        whole.run();
        let applied = whole
            .records
            .iter()
            .find(|r| matches!(r.event, Event::StepApplied { .. }));
        let at = applied.expect("a step is applied").at.as_ns() - 50;
        let mut driver =
            Driver::new(work.core(&small(name)), times).at(at, Fault::Lose(Worker::Drafter(0)));
        assert_eq!(driver.run(), End::Done, "{name}");
        assert!(all_committed(&driver));
        let first = driver.metrics().step_mixes[0].microbatches;
        assert_eq!(first, 4, "{name}: the step that was being applied is whole");
    }
}

#[test]
fn prefetched_work_gives_way_to_what_must_be_done_again() {
    // One slot, and the surviving drafter may hold the next step's work when the other's share comes back.
    for depth in [1, 2, 3] {
        for (placement, transport) in [
            (Placement::Drafter, Transport::P2p),
            (Placement::Target, Transport::P2p),
            (Placement::Host, Transport::HostPinned),
        ] {
            for at in (0..2_000).step_by(30) {
                let policy = Policy {
                    queue: Queue::Composed,
                    depth_total: Some(depth),
                    placement,
                    transport,
                    prefetch: 1,
                    ..small("composed")
                };
                let core = Work::round(16, 4, 2).core(&policy);
                let mut driver =
                    Driver::new(core, Times::STEADY).at(at, Fault::Lose(Worker::Drafter(1)));
                assert_eq!(driver.run(), End::Done, "depth {depth} at {at}");
                assert!(all_committed(&driver));
            }
        }
    }
}

#[test]
fn samples_made_up_by_the_builder_are_numbered_by_epoch() {
    let plan = Work::round(3, 1, 1).plan(&small("staged-fifo"));
    assert_eq!(plan.samples, [0, 1, 2].map(SampleId));
}
