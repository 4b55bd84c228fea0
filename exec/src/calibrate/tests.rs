use super::*;
use crate::backend::emulated::{Emulated, Emulation, LinkSharing, ServiceTimes};
use shared::id::Bytes;
use shared::policy::preset;

/// Three microbatches, whose pieces take these times.
fn emulation(times: ServiceTimes) -> Emulation {
    Emulation {
        times,
        bytes: vec![Bytes(64); 3],
        byte_scale: 1.0,
        speedup: 1.0,
        sharing: LinkSharing::Own,
        both_ways_rate: 1.0,
    }
}

/// Forwards take 2, 4 and 6 ms, copies 1 and trainings 3 of the time that is emulated.
fn emulated() -> Arc<Emulated> {
    let ms = |each: [u64; 3]| each.map(Span::from_ms).to_vec();
    let times = ServiceTimes {
        forward: ms([2, 4, 6]),
        stage: ms([1; 3]),
        fetch: ms([1; 3]),
        train: ms([3; 3]),
        apply: Span::from_ms(1),
    };
    Arc::new(Emulated::new(emulation(times)).unwrap())
}

fn policy() -> Policy {
    Policy {
        targets: 1,
        drafters: 1,
        ..preset("staged-fifo").unwrap()
    }
}

fn request() -> Request {
    Request {
        sample: (0..3).map(MicrobatchId).collect(),
        order: (0..3)
            .map(|id| (MicrobatchId(id), MicrobatchId(id)))
            .collect(),
        repeats: 2,
        copies_only: false,
        in_hand: 1,
        rests: true,
        states: vec![(1, 1)],
        window: Span::from_ms(10),
    }
}

/// The share of the time in which something was computed.
fn busy(pace: &Pace) -> f64 {
    let computed: u64 = pace.pieces.iter().map(|piece| piece.span.as_ns()).sum();
    computed as f64 / pace.elapsed.as_ns() as f64
}

#[test]
fn every_stage_is_measured_as_often_as_asked_and_never_too_short() {
    let told = std::cell::Cell::new(0);
    let count = || told.set(told.get() + 1);
    let stop = AtomicBool::new(false);
    let measured = measure(&emulated(), &policy(), &request(), &count, &stop).unwrap();
    let of = |stage| measured.alone.iter().filter(move |t| t.stage == stage);
    for stage in [Stage::Forward, Stage::Train] {
        for id in (0..3).map(MicrobatchId) {
            let count = of(stage).filter(|t| t.microbatch == Some(id)).count();
            assert!(count >= 2, "{}: {count}", stage.name());
        }
    }
    assert_eq!(of(Stage::Apply).count(), 2);
    assert!(of(Stage::Train).all(|t| t.span >= Span::from_ms(3)));
    let longest = of(Stage::Forward).filter(|t| t.microbatch == Some(MicrobatchId(2)));
    assert!(longest.clone().all(|t| t.span >= Span::from_ms(6)));
    // Copies in a row, and both ways while others compute.
    for stage in [Stage::CopyOut, Stage::CopyIn] {
        let copies = measured.copies.iter().filter(|t| t.stage == stage);
        assert!(copies.clone().count() >= 2, "{:?}", measured.copies);
        assert!(copies.clone().all(|t| t.span >= Span::from_ms(1)));
    }
    let shares: Vec<f64> = measured.paces.iter().map(busy).collect();
    assert_eq!(shares.len(), 3);
    assert!(
        shares[0] > shares[1] && shares[1] > shares[2] && shares[2] < 0.5,
        "{shares:?}"
    );
    let [together] = measured.together[..] else {
        panic!("{:?}", measured.together);
    };
    assert!(together.pieces >= 8 && together.forward_rate > 0.0 && together.train_rate > 0.0);
    assert_eq!(measured.steps_beside.len(), 2);
    let step = Span::from_ms(1);
    assert!(measured.steps_beside.iter().all(|&span| span >= step));
    assert!(told.get() > 0);
    assert!(
        measured.side_by_side.iter().all(|s| s.to > s.from) && measured.side_by_side.len() >= 8
    );
    // A forward and a training, twice for each microbatch and way.
    assert_eq!(measured.beside_copies.len(), 2 * 2 * 3 * 2);
    let of = |stage, copies| {
        let all = measured.beside_copies.iter();
        all.filter(move |b| (b.stage, b.copies) == (stage, copies))
            .count()
    };
    assert_eq!(of(Stage::Train, Stage::CopyIn), 6);
    let took = |b: &BesideCopies| b.alone.min(b.beside) >= Span::from_ms(2);
    assert!(measured.beside_copies.iter().all(took));
}

#[test]
fn a_stretch_of_a_run_is_watched_under_the_sizes_it_has() {
    let stop = AtomicBool::new(false);
    for in_hand in [1, 3] {
        // Microbatch 2, which takes 6 ms, counts as one of the size of 0.
        let asked = Request {
            sample: vec![MicrobatchId(0)],
            order: vec![(MicrobatchId(2), MicrobatchId(0))],
            repeats: 1,
            in_hand,
            window: Span::from_ms(30),
            ..request()
        };
        let measured = measure(&emulated(), &policy(), &asked, &|| (), &stop).unwrap();
        let forwards = measured.alone.iter().filter(|t| t.stage == Stage::Forward);
        let slow = forwards.clone().filter(|t| t.span >= Span::from_ms(6));
        assert!(slow.count() >= 2, "{measured:?}");
        assert!(
            forwards
                .clone()
                .all(|t| t.microbatch == Some(MicrobatchId(0)))
        );
    }
}

#[test]
fn a_copy_is_not_charged_for_the_one_before_it() {
    let stop = AtomicBool::new(false);
    let ms = |each: u64| vec![Span::from_ms(each); 3];
    let slow_copies = ServiceTimes {
        forward: ms(4),
        stage: ms(20),
        fetch: ms(1),
        train: ms(2),
        apply: Span::from_ms(1),
    };
    let asked = Request {
        in_hand: 3,
        copies_only: true,
        window: Span::from_ms(200),
        ..request()
    };
    let backend = Arc::new(Emulated::new(emulation(slow_copies)).unwrap());
    let measured = measure(&backend, &policy(), &asked, &|| (), &stop).unwrap();
    let out = measured.copies.iter().filter(|t| t.stage == Stage::CopyOut);
    let fastest = out.map(|t| t.span).min().expect("copies were watched");
    // Targets are ahead, so that every copy waits for most of the one before it.
    assert!(fastest < Span::from_ms(30), "{fastest:?}");
}

#[test]
fn copies_are_watched_one_way_and_while_others_go_the_other() {
    let stop = AtomicBool::new(false);
    let ms = |each: u64| vec![Span::from_ms(each); 3];
    let copies = ServiceTimes {
        forward: ms(1),
        stage: ms(12),
        fetch: ms(10),
        train: ms(1),
        apply: Span::from_ms(1),
    };
    let interfering = Emulation {
        sharing: LinkSharing::EachWay,
        both_ways_rate: 0.5,
        ..emulation(copies)
    };
    let asked = Request {
        in_hand: 4,
        copies_only: true,
        window: Span::from_ms(150),
        ..request()
    };
    let backend = Arc::new(Emulated::new(interfering).unwrap());
    let measured = measure(&backend, &policy(), &asked, &|| (), &stop).unwrap();
    let share = |c: &&Copied| c.both_ways.as_ns() as f64 / c.span.as_ns() as f64;
    let out = measured.copies.iter().filter(|t| t.stage == Stage::CopyOut);
    let (alone, beside): (Vec<&Copied>, Vec<_>) = out.partition(|c| share(c) < 0.1);
    assert!(alone.len() >= 3 && beside.len() >= 3, "{measured:?}");
    // Fully beside others they take twice as long.
    let spans = |copies: Vec<&Copied>| copies.iter().map(|c| c.span).min();
    assert!(spans(alone) < spans(beside), "{measured:?}");
}

#[test]
fn a_step_of_two_drafters_is_told_from_one_of_one() {
    let stop = AtomicBool::new(false);
    let two = Policy {
        drafters: 2,
        ..policy()
    };
    let measured = measure(&emulated(), &two, &request(), &|| (), &stop).unwrap();
    let of = |stage| measured.alone.iter().filter(move |t| t.stage == stage);
    assert_eq!(of(Stage::Apply).count(), 2);
    assert_eq!(of(Stage::ApplyTogether).count(), 2);
    let one = measure(&emulated(), &policy(), &request(), &|| (), &stop).unwrap();
    assert!(one.alone.iter().all(|t| t.stage != Stage::ApplyTogether));
}

#[test]
fn copies_alone_leave_compute_out_and_local_has_none() {
    let stop = AtomicBool::new(false);
    let asked = Request {
        copies_only: true,
        ..request()
    };
    let measured = measure(&emulated(), &policy(), &asked, &|| (), &stop).unwrap();
    assert!(measured.together.is_empty() && measured.steps_beside.is_empty());
    let is_copy = |t: &Copied| matches!(t.stage, Stage::CopyOut | Stage::CopyIn);
    assert!(measured.alone.is_empty() && measured.paces.is_empty());
    assert!(!measured.copies.is_empty() && measured.copies.iter().all(is_copy));
    let local = Policy {
        transport: Transport::Local,
        ..policy()
    };
    let measured = measure(&emulated(), &local, &asked, &|| (), &stop).unwrap();
    assert_eq!(measured, Measured::default());
}

#[test]
fn it_stops_when_asked_and_names_a_worker_that_fails() {
    let stop = AtomicBool::new(true);
    let stopped = measure(&emulated(), &policy(), &request(), &|| (), &stop);
    assert_eq!(stopped, Err(CalibrateError::Stopped));
    let beyond = Request {
        sample: vec![MicrobatchId(3)],
        ..request()
    };
    let stop = AtomicBool::new(false);
    let error = measure(&emulated(), &policy(), &beyond, &|| (), &stop).unwrap_err();
    assert!(
        error.to_string().starts_with("target t0: it panicked: "),
        "{error}"
    );
}
