//! Slots: who holds how many, and when.

use crate::common::{Driver, End, Times, Work};
use shared::core::{Action, Core, Event};
use shared::id::{Bytes, MicrobatchId};
use shared::policy::{Admission, Placement, Policy, Queue, Release, Take, Transport, preset};

/// Five targets, two slow drafters, slots scarce, released once trained.
fn crowded(admission: Admission) -> Policy {
    Policy {
        targets: 5,
        drafters: 2,
        queue: Queue::Fifo,
        admission,
        release: Release::Trained,
        depth_total: Some(3),
        prefetch: 0,
        ..preset("bucketed").expect("it exists")
    }
}

fn slow_drafters() -> Times {
    Times {
        train: 500,
        spread: 40,
        ..Times::STEADY
    }
}

fn run(policy: &Policy, work: &Work, times: Times, watch: fn(&Core)) -> Driver {
    let mut driver = Driver::new(work.core(policy), times).watched(watch);
    assert_eq!(driver.run(), End::Done);
    driver
}

#[test]
fn reserve_never_lets_more_hidden_states_exist_than_there_are_slots() {
    let policy = crowded(Admission::Reserve);
    let driver = run(&policy, &Work::round(40, 3, 2), slow_drafters(), |core| {
        let hs = &core.state().hs;
        assert!(hs.slots.count <= 3);
        assert_eq!(
            hs.alive, hs.slots,
            "what exists has a slot, from forward to training"
        );
    });
    assert_eq!(driver.metrics().peaks.alive, 3);
}

#[test]
fn block_lets_every_target_hold_one_beside_the_slots() {
    let policy = crowded(Admission::Block);
    let driver = run(&policy, &Work::round(40, 3, 2), slow_drafters(), |core| {
        assert!(core.state().hs.slots.count <= 3);
    });
    let peaks = driver.metrics().peaks;
    assert_eq!(
        (peaks.slots, peaks.alive),
        (3, 3 + 5),
        "N + K exist, K in slots"
    );
}

#[test]
fn bytes_are_capped_like_slots() {
    for admission in [Admission::Block, Admission::Reserve] {
        let policy = Policy {
            depth_total: None,
            bytes_total: Some(Bytes(7)),
            ..crowded(admission)
        };
        // Microbatches of 1 to 4 bytes.
        let driver = run(&policy, &Work::round(40, 4, 2), slow_drafters(), |core| {
            assert!(core.state().hs.slots.bytes <= Bytes(7));
        });
        let peaks = driver.metrics().peaks;
        assert!(
            peaks.slot_bytes >= Bytes(6) && peaks.slots >= 3,
            "{peaks:?}"
        );
    }
}

#[test]
fn each_bucket_has_its_own_cap() {
    for admission in [Admission::Block, Admission::Reserve] {
        let policy = Policy {
            depth_total: None,
            depth_per_bucket: Some(2),
            bytes_per_bucket: Some(Bytes(3)),
            queue: Queue::Bucketed,
            ..crowded(admission)
        };
        let driver = run(&policy, &Work::round(40, 3, 2), slow_drafters(), |core| {
            let of = core.state().hs.by_bucket.iter();
            assert!(
                of.clone()
                    .all(|used| used.count <= 2 && used.bytes <= Bytes(3))
            );
            // Two of one byte, one of two bytes, one of three.
            assert!(of.map(|used| used.count).eq(of_most(core)));
        });
        assert_eq!(driver.metrics().peaks.slots, 4);
    }
}

/// What is in use, bounded by what fits: equal unless a bucket holds more than fits.
fn of_most(core: &Core) -> impl Iterator<Item = u32> {
    let of = core.state().hs.by_bucket.iter().map(|used| used.count);
    of.zip([2, 1, 1]).map(|(used, most)| used.min(most))
}

#[test]
fn each_drafter_has_its_own_cap() {
    for admission in [Admission::Block, Admission::Reserve] {
        let policy = Policy {
            depth_total: None,
            depth_per_drafter: Some(2),
            queue: Queue::PerDrafter,
            placement: Placement::Drafter,
            ..crowded(admission)
        };
        let driver = run(&policy, &Work::round(40, 3, 2), slow_drafters(), |core| {
            assert!(
                core.state()
                    .hs
                    .by_drafter
                    .iter()
                    .all(|used| used.count <= 2)
            );
        });
        assert_eq!(driver.metrics().peaks.slots, 4);
    }
}

#[test]
fn a_queue_shared_by_drafters_has_room_for_so_many_each() {
    let policy = Policy {
        depth_total: None,
        depth_per_drafter: Some(4),
        ..crowded(Admission::Block)
    };
    let driver = run(&policy, &Work::round(60, 3, 2), slow_drafters(), |core| {
        assert!(core.state().hs.slots.count <= 8);
    });
    assert_eq!(driver.metrics().peaks.slots, 8);
}

#[test]
fn a_slot_is_given_back_when_taken_when_fetched_or_when_trained() {
    let released = |release| {
        let policy = Policy {
            release,
            placement: Placement::Target,
            transport: Transport::P2p,
            ..crowded(Admission::Block)
        };
        let mut driver = Driver::new(Work::new(&[0], 1).core(&policy), Times::STEADY);
        assert_eq!(driver.run(), End::Done);
        let mut core = Work::new(&[0], 1).core(&policy);
        let mut when = Vec::new();
        let mut had = false;
        shared::record::replay(&mut core, &driver.records, |_, event, core| {
            let has = core.state().lives[MicrobatchId(0)].has_slot();
            if had && !has {
                when.push(*event);
            }
            had = has;
        })
        .expect("it replays");
        when
    };
    assert_eq!(
        released(Release::Taken),
        [],
        "granted and given back within one event"
    );
    assert!(matches!(
        released(Release::Fetched)[..],
        [Event::FetchEnded { .. }]
    ));
    assert!(matches!(
        released(Release::Trained)[..],
        [Event::TrainEnded { .. }]
    ));
}

/// The microbatches in the order in which drafters took them, and that in which they arrived.
fn taken_and_arrived(driver: &Driver) -> (Vec<u32>, Vec<u32>) {
    let records = driver.records.iter();
    let taken = records
        .clone()
        .flat_map(|r| &r.actions)
        .filter_map(|a| match a {
            Action::Fetch { microbatch, .. } => Some(microbatch.0),
            _ => None,
        });
    let arrived = records.filter_map(|r| match r.event {
        Event::ForwardEnded { microbatch, .. } => Some(microbatch.0),
        _ => None,
    });
    (taken.collect(), arrived.collect())
}

#[test]
fn a_lane_is_first_in_first_out() {
    let roomy = |queue| Policy {
        queue,
        take: Take::Longest,
        depth_total: Some(100),
        ..crowded(Admission::Block)
    };
    let work = Work::round(40, 3, 2);
    let driver = run(&roomy(Queue::Fifo), &work, slow_drafters(), |_| {});
    let (taken, arrived) = taken_and_arrived(&driver);
    assert_eq!(taken, arrived);
    assert!(
        !arrived.is_sorted(),
        "targets finish in another order than they begin"
    );

    let driver = run(&roomy(Queue::Bucketed), &work, slow_drafters(), |_| {});
    let (taken, arrived) = taken_and_arrived(&driver);
    assert_ne!(taken, arrived);
    for bucket in 0..3 {
        let of = |ids: &[u32]| -> Vec<u32> {
            ids.iter().copied().filter(|id| id % 3 == bucket).collect()
        };
        assert_eq!(of(&taken), of(&arrived), "bucket {bucket}");
    }
}
