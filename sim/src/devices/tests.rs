use super::*;
use crate::spec::SharedRate;
use shared::policy::preset;

fn one_gpu(sharing: Sharing, targets: u16, drafters: u16) -> Devices {
    let hardware = Hardware {
        sharing: Some(sharing),
        ..hardware("gpus = 1")
    };
    devices(&hardware, "composed", targets, drafters)
}

/// A box of which `keys` say what matters.
fn hardware(keys: &str) -> Hardware {
    toml::from_str(&format!(
        "gpu_memory = '1 GB'\nhost_memory = '1 GB'\n{keys}"
    ))
    .unwrap()
}

fn devices(hardware: &Hardware, name: &str, targets: u16, drafters: u16) -> Devices {
    let policy = Policy {
        targets,
        drafters,
        ..preset(name).unwrap()
    };
    Devices::new(hardware, &policy)
}

fn ns(ns: u64) -> Time {
    Time::from_ns(ns)
}

#[test]
fn two_that_share_evenly_take_twice_as_long_until_one_ends() {
    let mut devices = one_gpu(Sharing::default(), 1, 1);
    let gpu = devices.of_target(0).unwrap();
    assert_eq!(devices.of_drafter(0), Some(gpu));
    devices.begin(gpu, ns(0), 7, Work::Forward, Span::from_ns(100));
    assert_eq!(devices.times(gpu).collect::<Vec<_>>(), [(7, ns(100))]);
    devices.begin(gpu, ns(50), 9, Work::Train, Span::from_ns(100));
    // 50 are left of the first, at half speed.
    let times: Vec<_> = devices.times(gpu).collect();
    assert_eq!(times, [(7, ns(150)), (9, ns(250))]);
    devices.end(gpu, ns(150), 7);
    assert_eq!(devices.times(gpu).collect::<Vec<_>>(), [(9, ns(200))]);
}

#[test]
fn measured_rates_hold_for_the_state_they_were_measured_in() {
    let rate = SharedRate {
        forwards: 1,
        trains: 1,
        forward_rate: 0.8,
        train_rate: 0.25,
    };
    let mut devices = one_gpu(
        Sharing {
            rates: vec![rate],
            ..Sharing::default()
        },
        2,
        1,
    );
    let gpu = devices.of_target(1).unwrap();
    devices.begin(gpu, ns(0), 0, Work::Forward, Span::from_ns(80));
    devices.begin(gpu, ns(0), 2, Work::Train, Span::from_ns(100));
    let times: Vec<_> = devices.times(gpu).collect();
    assert_eq!(times, [(0, ns(100)), (2, ns(400))]);
    // A second forward: three share evenly.
    devices.begin(gpu, ns(40), 1, Work::Forward, Span::from_ns(10));
    let times: Vec<_> = devices.times(gpu).collect();
    assert_eq!(times, [(0, ns(184)), (2, ns(310)), (1, ns(70))]);
}

#[test]
fn by_kernels_a_short_training_waits_for_the_kernels_of_a_long_forward() {
    // Together they do as much as one, and a training has as many kernels as a forward.
    let sharing = Sharing {
        kernel_ratio: Some(1.0),
        ..Sharing::default()
    };
    let mut devices = one_gpu(sharing, 1, 1);
    let gpu = devices.of_target(0).unwrap();
    devices.begin(gpu, ns(0), 0, Work::Forward, Span::from_ns(300));
    devices.begin(gpu, ns(0), 1, Work::Train, Span::from_ns(100));
    // Kernel by kernel both end when all is done.
    let times: Vec<_> = devices.times(gpu).collect();
    assert_eq!(times, [(0, ns(400)), (1, ns(400))]);
    devices.end(gpu, ns(400), 1);
    devices.begin(gpu, ns(400), 1, Work::Apply, Span::from_ns(10));
    assert_eq!(devices.times(gpu).last(), Some((1, ns(420))));
}

#[test]
fn an_optimizer_step_beside_forwards_has_a_speed_of_its_own() {
    let sharing = Sharing {
        step_rate: Some(0.8),
        ..Sharing::default()
    };
    let mut devices = one_gpu(sharing, 1, 2);
    let gpu = devices.of_target(0).unwrap();
    devices.begin(gpu, ns(0), 1, Work::Apply, Span::from_ns(80));
    devices.begin(gpu, ns(0), 2, Work::Train, Span::from_ns(90));
    // Beside a training alone it shares evenly.
    let times: Vec<_> = devices.times(gpu).collect();
    assert_eq!(times, [(1, ns(160)), (2, ns(180))]);
    devices.begin(gpu, ns(0), 0, Work::Forward, Span::from_ns(30));
    let times: Vec<_> = devices.times(gpu).collect();
    assert_eq!(times, [(1, ns(100)), (2, ns(270)), (0, ns(90))]);
}

#[test]
fn copies_that_hold_up_launches_slow_compute_while_they_last() {
    let keys =
        "gpus = 1\nsharing = {}\nhost_pageable = { bandwidth = '1 GB/s', compute_rate = 0.5 }";
    let mut devices = devices(&hardware(keys), "staged-fifo", 1, 1);
    let gpu = devices.of_target(0).unwrap();
    devices.begin(gpu, ns(0), 0, Work::Forward, Span::from_ns(100));
    assert!(devices.begin_copy(gpu, ns(20), MicrobatchId(4)));
    assert_eq!(devices.times(gpu).last(), Some((0, ns(180))));
    assert_eq!(devices.end_copy(ns(60), MicrobatchId(4)), Some(gpu));
    assert_eq!(devices.times(gpu).last(), Some((0, ns(120))));
    assert_eq!(devices.end_copy(ns(60), MicrobatchId(4)), None);
    assert!(!one_gpu(Sharing::default(), 1, 1).begin_copy(0, ns(0), MicrobatchId(1)));
}

#[test]
fn whoever_has_a_gpu_alone_is_not_slowed() {
    let devices = devices(&hardware("gpus = 3\nsharing = {}"), "composed", 2, 2);
    assert_eq!(devices.of_target(0), None);
    assert_eq!(devices.of_target(1), None);
    assert!(devices.of_drafter(0).is_some());
    assert_eq!(devices.of_drafter(0), devices.of_drafter(1));
}

#[test]
fn a_worker_with_a_gpu_of_its_own_gains_by_rests() {
    let keys = "gpus = 2\nrests = { forward = { exponent = 0.5, busy = 1.0, speed_max = 1.25 } }";
    let mut devices = devices(&hardware(keys), "composed", 1, 1);
    let (target, drafter) = (
        devices.of_target(0).unwrap(),
        devices.of_drafter(0).unwrap(),
    );
    assert_ne!(target, drafter);
    // After ten seconds without work both are fresh; only forwards gain by it.
    let ten = ns(10_000_000_000);
    let end = |after: u64| ns(10_000_000_000 + after);
    devices.begin(target, ten, 0, Work::Forward, Span::from_ns(1000));
    devices.begin(drafter, ten, 1, Work::Train, Span::from_ns(1000));
    assert_eq!(devices.times(target).collect::<Vec<_>>(), [(0, end(800))]);
    assert_eq!(devices.times(drafter).collect::<Vec<_>>(), [(1, end(1000))]);
}
