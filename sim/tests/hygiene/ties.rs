//! Work that takes no time, and events at one instant.

use crate::base::{outcome, point, simulate};
use shared::policy::PRESETS;
use sim::End;

const STEADY: [&str; 4] = [
    "costs.target = { base_ms = 10.0 }",
    "costs.drafter = { base_ms = 10.0 }",
    "costs.step_ms = 10.0",
    "costs.spread = 0.0",
];

const NO_TIME: [&str; 4] = [
    "costs.target = { base_ms = 0.0 }",
    "costs.drafter = { base_ms = 0.0 }",
    "costs.step_ms = 0.0",
    "costs.spread = 0.0",
];

#[test]
fn work_that_takes_no_time_is_still_done() {
    let own = PRESETS.map(|name| (name, None));
    let still = ["bucketed", "composed", "drafter-queues"].map(|name| (name, Some("local")));
    for (name, transport) in own.into_iter().chain(still) {
        let preset = format!("policy.preset = '{name}'");
        let transport = transport.map(|way| format!("policy.transport = '{way}'"));
        let mut settings = [&NO_TIME[..], &[&preset, "policy.mix_step_min = 0"]].concat();
        settings.extend(transport.as_deref());
        let outcome = outcome(&point(&settings));
        assert_eq!(outcome.end, End::Done, "{settings:?}");
        let ledger = &outcome.metrics.ledger;
        assert_eq!((ledger.trained, ledger.planned), (240, 240), "{settings:?}");
    }
}

/// The classes of workers in the order in which events of one instant are told.
fn rank(event: &str) -> usize {
    let order = ["started", "forward", "stage", "fetch", "train", "applied"];
    let kind = event.split(' ').next().unwrap_or_default();
    let rank = order.iter().position(|&known| known == kind);
    rank.unwrap_or_else(|| panic!("an event of another kind: {event}"))
}

#[test]
fn events_of_one_instant_come_by_worker_whoever_began_first() {
    let settings = [
        &STEADY[..],
        &["policy.transport = 'local'", "policy.depth_total = 30"],
    ];
    let (trace, _) = simulate(&point(&settings.concat()));
    let events: Vec<(&str, &str)> = trace
        .lines()
        .filter_map(|line| line.split(" |").next()?.split_once(' '))
        .collect();
    let (mut ties, mut last) = (0, events[0]);
    for &next in &events[1..] {
        if next.0 == last.0 {
            ties += 1;
            let of = |(_, event): (&str, &str)| {
                let worker = event.split(' ').nth(1).unwrap_or_default().to_owned();
                (rank(event), worker)
            };
            assert!(of(last) < of(next), "{last:?} before {next:?}");
        }
        last = next;
    }
    assert!(ties > 50, "{ties} ties");
}

#[test]
fn ties_fall_alike_every_time() {
    for name in PRESETS {
        let preset = format!("policy.preset = '{name}'");
        let settings = [&STEADY[..], &[&preset, "policy.mix_step_min = 0"]];
        let point = point(&settings.concat());
        assert_eq!(simulate(&point), simulate(&point), "{name}");
    }
}
