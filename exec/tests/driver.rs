//! The driver over a scripted backend: whatever workers do, the run ends, everything is joined and freed, and the records replay.

mod common;

use common::{Recorder, Scripted, Stage, core, plan_for};
use exec::backend::WorkError;
use exec::driver::{Driver, Observer, ObserverError, Options, RunReport};
use exec::error::{DriverError, Site, WorkerId};
use shared::core::{Action, Core, Event, Status};
use shared::id::{DrafterId, MicrobatchId, TargetId};
use shared::policy::{PRESETS, Policy, Release, preset};
use shared::time::Time;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const COUNT: usize = 41;

fn policies() -> impl Iterator<Item = Policy> {
    PRESETS.iter().map(|name| Policy {
        targets: 3,
        drafters: 2,
        ..preset(name).unwrap()
    })
}

fn policy(name: &str) -> Policy {
    policies().find(|policy| policy.name == name).unwrap()
}

struct Ran {
    result: Result<RunReport, DriverError>,
    recorder: Recorder,
}

/// Runs a policy on a script. Whatever came of it, nothing is left over and the records replay.
fn run(policy: &Policy, script: Scripted) -> Ran {
    let plan = plan_for(policy, COUNT);
    let core = core(&plan, policy);
    let mut recorder = Recorder::new(&core);
    let script = Arc::new(script);
    let driver = Driver::new(
        core,
        Arc::new(Stage(Arc::clone(&script))),
        Options::default(),
    );
    let result = driver.run(&mut recorder);
    assert_eq!(
        script.alive.load(Ordering::SeqCst),
        0,
        "hidden states are freed"
    );
    assert_eq!(
        script.workers.load(Ordering::SeqCst),
        0,
        "threads are joined"
    );
    recorder.assert_replays();
    Ran { result, recorder }
}

/// True the first time it is asked for `wanted`.
fn once<T: PartialEq + Send + Sync>(wanted: T) -> impl Fn(T) -> bool + Send + Sync {
    let done = AtomicBool::new(false);
    move |found| found == wanted && !done.swap(true, Ordering::SeqCst)
}

#[test]
fn every_preset_trains_everything_once() {
    for policy in policies() {
        for overlap in [false, true] {
            let policy = Policy {
                overlap,
                ..policy.clone()
            };
            let Ran { result, recorder } = run(&policy, Scripted::default());
            let report = result.unwrap_or_else(|error| panic!("{}: {error}", policy.name));
            recorder.assert_complete();
            assert!(report.lost.is_empty() && !report.stopped);
            assert_eq!(report.events as usize, recorder.records.len());
            assert!(report.slots_peak.slots > 0 && report.peaks.all.0 > 0);
        }
    }
}

#[test]
fn a_lost_target_leaves_its_work_to_the_others() {
    for policy in policies() {
        let first = once(TargetId(1));
        let script = Scripted {
            forward: Box::new(move |target, _| {
                assert!(!first(target), "planned");
                Ok(())
            }),
            ..Scripted::default()
        };
        let Ran { result, recorder } = run(&policy, script);
        let report = result.unwrap_or_else(|error| panic!("{}: {error}", policy.name));
        recorder.assert_complete();
        let [loss] = &report.lost[..] else {
            panic!("one worker is lost: {:?}", report.lost)
        };
        assert_eq!(loss.site.worker, WorkerId::Target(TargetId(1)));
        assert!(loss.message.contains("planned"), "{}", loss.message);
    }
}

#[test]
fn a_lost_copy_thread_takes_its_worker_with_it() {
    for policy in policies() {
        let first = once(WorkerId::Drafter(DrafterId(0)));
        let copies = !matches!(policy.name.as_str(), "drafter-queues" | "composed");
        let script = Scripted {
            copy: Box::new(move |end, _| {
                assert!(!first(end), "planned");
                Ok(())
            }),
            ..Scripted::default()
        };
        let Ran { result, recorder } = run(&policy, script);
        let report = result.unwrap_or_else(|error| panic!("{}: {error}", policy.name));
        recorder.assert_complete();
        assert_eq!(report.lost.len(), usize::from(copies), "{}", policy.name);
    }
}

#[test]
fn what_a_lost_drafter_had_accumulated_is_trained_again() {
    for policy in policies() {
        for fatal in [0, 1, 2] {
            let seen = AtomicUsize::new(0);
            let script = Scripted {
                train: Box::new(move |drafter, _| {
                    let is_it = drafter == DrafterId(1);
                    assert!(
                        !is_it || seen.fetch_add(1, Ordering::SeqCst) != fatal,
                        "planned"
                    );
                    Ok(())
                }),
                apply: Box::new(|leader, _, members| {
                    assert_eq!(leader, members[0]);
                    Ok(())
                }),
                ..Scripted::default()
            };
            let Ran { result, recorder } = run(&policy, script);
            let report = result.unwrap_or_else(|error| panic!("{}: {error}", policy.name));
            recorder.assert_complete();
            assert_eq!(report.lost.len(), 1);
        }
    }
}

#[test]
fn a_run_whose_only_target_is_lost_is_an_error() {
    for policy in policies() {
        let policy = Policy {
            targets: 1,
            ..policy
        };
        let script = Scripted {
            forward: Box::new(|_, id| {
                assert_ne!(id, MicrobatchId(7), "planned");
                Ok(())
            }),
            ..Scripted::default()
        };
        let error = run(&policy, script).result.unwrap_err();
        let DriverError::WorkerPanicked { site, .. } = error else {
            panic!("{}: {error}", policy.name)
        };
        let expected = Site {
            worker: WorkerId::Target(TargetId(0)),
            microbatch: Some(MicrobatchId(7)),
        };
        assert_eq!(site, expected);
    }
}

#[test]
fn a_run_whose_only_drafter_is_lost_is_an_error() {
    for policy in policies() {
        let policy = Policy {
            drafters: 1,
            ..policy
        };
        let seen = AtomicUsize::new(0);
        let script = Scripted {
            train: Box::new(move |_, _| {
                assert!(seen.fetch_add(1, Ordering::SeqCst) < 5, "planned");
                Ok(())
            }),
            ..Scripted::default()
        };
        let error = run(&policy, script).result.unwrap_err();
        let DriverError::WorkerPanicked { site, .. } = error else {
            panic!("{}: {error}", policy.name)
        };
        assert_eq!(site.worker, WorkerId::Drafter(DrafterId(0)));
    }
}

#[test]
fn a_panic_in_an_optimizer_step_ends_the_run() {
    let script = Scripted {
        apply: Box::new(|_, step, _| {
            assert_ne!(step.0, 2, "planned");
            Ok(())
        }),
        ..Scripted::default()
    };
    let error = run(&policy("composed"), script).result.unwrap_err();
    assert!(
        matches!(error, DriverError::WorkerPanicked { .. }),
        "{error}"
    );
}

#[test]
fn an_error_names_worker_and_microbatch() {
    for policy in policies() {
        let script = Scripted {
            train: Box::new(|_, id| match id.0 {
                9 => Err(WorkError::Fatal("out of memory".into())),
                _ => Ok(()),
            }),
            ..Scripted::default()
        };
        let error = run(&policy, script).result.unwrap_err();
        let DriverError::WorkerFailed { site, message } = &error else {
            panic!("{}: {error}", policy.name)
        };
        assert_eq!(site.microbatch, Some(MicrobatchId(9)));
        assert!(matches!(site.worker, WorkerId::Drafter(_)));
        assert_eq!(message, "out of memory");
    }
}

#[test]
fn what_fails_in_passing_is_done_again_or_given_up() {
    for policy in policies() {
        for (failures, given_up) in [(policy.retry_max, 0), (policy.retry_max + 1, 1)] {
            let failed = AtomicUsize::new(0);
            let script = Scripted {
                train: Box::new(move |_, id| {
                    let fails = id == MicrobatchId(3)
                        && failed.fetch_add(1, Ordering::SeqCst) < usize::from(failures);
                    if fails {
                        Err(WorkError::Transient("passing".into()))
                    } else {
                        Ok(())
                    }
                }),
                ..Scripted::default()
            };
            let Ran { result, recorder } = run(&policy, script);
            result.unwrap_or_else(|error| panic!("{}: {error}", policy.name));
            let lives = &recorder.last.state().lives;
            let count = |status| lives.statuses().filter(|&s| s == status).count();
            assert_eq!(count(Status::Failed), given_up, "{}", policy.name);
            assert_eq!(
                count(Status::Committed),
                COUNT - given_up,
                "{}",
                policy.name
            );
        }
    }
}

#[test]
fn a_step_that_diverges_is_named_with_its_microbatches() {
    let script = Scripted {
        apply: Box::new(|_, step, _| match step.0 {
            1 => Err(WorkError::NonFinite("the loss is NaN".into())),
            _ => Ok(()),
        }),
        ..Scripted::default()
    };
    let Ran { result, recorder } = run(&policy("composed"), script);
    let DriverError::Diverged {
        step,
        message,
        mut microbatches,
    } = result.unwrap_err()
    else {
        panic!("it diverged")
    };
    assert_eq!((step.0, message.as_str()), (1, "the loss is NaN"));
    microbatches.sort_unstable();
    let planned = recorder.last.plan().steps[1].microbatches.clone();
    assert_eq!(microbatches, planned.map(MicrobatchId).collect::<Vec<_>>());
}

#[test]
fn a_stop_finishes_the_step_under_way_and_nothing_more() {
    for policy in policies() {
        let plan = plan_for(&policy, COUNT);
        let core = core(&plan, &policy);
        let mut recorder = Recorder::new(&core);
        let handle = Arc::new(Mutex::new(None));
        let seen = AtomicUsize::new(0);
        let script = Arc::new(Scripted {
            train: {
                let handle = Arc::clone(&handle);
                Box::new(move |_, _| {
                    if seen.fetch_add(1, Ordering::SeqCst) == 9 {
                        let handle: &Option<exec::driver::StopHandle> = &handle.lock().unwrap();
                        let handle = handle.as_ref().unwrap();
                        handle.stop();
                        handle.stop();
                    }
                    Ok(())
                })
            },
            ..Scripted::default()
        });
        let driver = Driver::new(
            core,
            Arc::new(Stage(Arc::clone(&script))),
            Options::default(),
        );
        *handle.lock().unwrap() = Some(driver.stop_handle());
        let report = driver.run(&mut recorder).unwrap();
        assert!(report.stopped);
        assert_eq!(script.alive.load(Ordering::SeqCst), 0);
        let asked = recorder
            .records
            .iter()
            .filter(|r| r.event == Event::StopAsked)
            .count();
        assert_eq!(asked, 1, "a stop is asked for once");
        let committed = recorder.committed();
        assert!(
            (10..COUNT).contains(&committed.len()),
            "{}: {}",
            policy.name,
            committed.len()
        );
        assert!(committed.values().all(|times| *times == 1));
        recorder.assert_replays();
    }
}

#[test]
fn a_stop_before_the_start_trains_nothing() {
    let policy = policy("bucketed");
    let core = core(&plan_for(&policy, COUNT), &policy);
    let mut recorder = Recorder::new(&core);
    let driver = Driver::new(core, Arc::new(Stage(Arc::default())), Options::default());
    driver.stop_handle().stop();
    assert!(driver.run(&mut recorder).unwrap().stopped);
    assert_eq!(recorder.committed().len(), 0);
}

#[test]
fn a_worker_that_cannot_start_is_named() {
    let script = Scripted {
        start: Box::new(|worker| match worker {
            WorkerId::Drafter(DrafterId(1)) => Err(WorkError::Fatal("no such device".into())),
            _ => Ok(()),
        }),
        ..Scripted::default()
    };
    let error = run(&policy("composed"), script).result.unwrap_err();
    assert_eq!(
        error.to_string(),
        "drafter d1 could not start: no such device"
    );
}

#[test]
fn a_hang_is_an_error_that_names_worker_and_microbatch() {
    let policy = policy("composed");
    let core = core(&plan_for(&policy, COUNT), &policy);
    let (release, hang) = channel::<()>();
    let hang = Mutex::new(hang);
    let script = Scripted {
        forward: Box::new(move |_, id| {
            if id == MicrobatchId(5) {
                // Returns when the test lets go of the other end.
                let _ = hang.lock().unwrap().recv();
            }
            Ok(())
        }),
        ..Scripted::default()
    };
    let options = Options {
        deadline: Some(Duration::from_millis(200)),
    };
    let driver = Driver::new(core, Arc::new(Stage(Arc::new(script))), options);
    let DriverError::Hung { site, .. } = driver.run(&mut ()).unwrap_err() else {
        panic!("it hangs")
    };
    assert_eq!(site.microbatch, Some(MicrobatchId(5)));
    assert!(matches!(site.worker, WorkerId::Target(_)));
    drop(release);
}

#[test]
fn a_stall_says_who_waits_for_what() {
    // A rule on taking that needs more distinct buckets than the slots can hold.
    let policy = Policy {
        depth_total: Some(1),
        mix_window_min: 2,
        mix_enforce: shared::policy::Enforce::Take,
        release: Release::Trained,
        ..policy("bucketed")
    };
    let plan = plan_for(&policy, COUNT);
    let core = core(&plan, &policy);
    let mut recorder = Recorder::new(&core);
    let driver = Driver::new(core, Arc::new(Stage(Arc::default())), Options::default());
    match driver.run(&mut recorder) {
        Err(DriverError::Stalled(text)) => assert!(text.contains("waits"), "{text}"),
        other => panic!("{other:?}"),
    }
}

struct FullDisk;

impl Observer for FullDisk {
    fn on_record(
        &mut self,
        _: Time,
        event: &Event,
        _: &[Action],
        _: &Core,
    ) -> Result<(), ObserverError> {
        match event {
            Event::StepApplied { .. } => Err("no space left".into()),
            _ => Ok(()),
        }
    }
}

#[test]
fn an_observer_that_fails_ends_the_run() {
    let policy = policy("composed");
    let core = core(&plan_for(&policy, COUNT), &policy);
    let driver = Driver::new(core, Arc::new(Stage(Arc::default())), Options::default());
    let error = driver.run(&mut FullDisk).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the record of the run could not be kept: no space left"
    );
}
