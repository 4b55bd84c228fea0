//! The committed scenarios: all parse and run, and say what their comments claim.

#[expect(dead_code, reason = "these tests need no part of it but runs")]
mod scenario;

use scenario::{Scenario, scenario, split};
use shared::id::Bytes;
use shared::policy::Policy;
use sim::spec::Lengths;
use sim::{End, Outcome, Row, Verdict};

const ALL: [&str; 13] = [
    "reference",
    "depth",
    "split",
    "transport",
    "rare-bucket",
    "long-tail",
    "deadlock",
    "length-groups",
    "halted-drafter",
    "ack-stall",
    "published/h200-27b-split",
    "published/h200-8b-split",
    "published/watermark",
];

/// A scenario with fewer samples: some hundred steps.
fn shorter(name: &str) -> Scenario {
    let mut scenario = scenario(name);
    if let Lengths::Microbatches { count, .. } = &mut scenario.workload.lengths {
        *count = (*count).min(2_400);
    } else if scenario.workload.samples > 0 {
        scenario.workload.samples = scenario.workload.samples.min(60_000);
    }
    scenario
}

fn run(scenario: &Scenario, policies: &[Policy]) -> Vec<Row> {
    scenario.run(policies, 1)
}

fn outcome(row: &Row) -> &Outcome {
    row.outcome.as_ref().unwrap_or_else(|e| panic!("{e}"))
}

fn speed(row: &Row) -> f64 {
    outcome(row).metrics.tokens_per_s()
}

fn bound_share(row: &Row) -> f64 {
    outcome(row).metrics.run_tokens_per_s() / outcome(row).bound.tokens_per_s()
}

#[test]
fn every_scenario_parses_runs_and_stays_under_its_bound() {
    for name in ALL {
        let scenario = shorter(name);
        assert_eq!(scenario.problems(), [""; 0]);
        assert!(scenario.question.ends_with('?'), "{name} asks a question");
        for row in run(&scenario, &scenario.policies()) {
            let outcome = outcome(&row);
            let share = bound_share(&row);
            assert!(share > 0.0 && share <= 1.0, "{name}: {share} of the bound");
            assert!(
                outcome.metrics.ledger.balances(),
                "{name}: {:?}",
                outcome.metrics.ledger
            );
            assert!(outcome.metrics.mix.steps > 0);
            let kept = outcome.metrics.step_mixes.len() + outcome.metrics.applied.len();
            assert_eq!(kept, 0, "{name}: a row does not grow with its run");
        }
    }
}

#[test]
fn no_scenario_is_forgotten() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios");
    let mut found = Vec::new();
    for part in ["", "published/"] {
        for entry in std::fs::read_dir(format!("{folder}/{part}")).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|e| e == "toml") {
                let stem = path.file_stem().expect("a name").to_string_lossy();
                found.push(format!("{part}{stem}"));
            }
        }
    }
    // Their lengths are those of data that the verbs of their names find.
    found.retain(|name| !["quickstart", "twin", "multi-gpu"].contains(&name.as_str()));
    found.sort_unstable();
    let mut known = ALL.to_vec();
    known.sort_unstable();
    assert_eq!(found, known);
}

#[test]
fn the_reference_run_is_reproduced_and_composed_steps_reach_the_bound() {
    let scenario = scenario("reference");
    let rows = run(&scenario, &scenario.policies());
    let (staged, composed) = (&rows[0], &rows[3]);
    assert!(
        (speed(staged) / 12_000.0 - 1.0).abs() < 0.05,
        "{}",
        speed(staged)
    );
    let peaks = &outcome(staged).metrics.peaks;
    assert_eq!(peaks.slots, 60);
    assert!(
        (peaks.slot_bytes.0 as f64 / 180e9 - 1.0).abs() < 0.02,
        "{}",
        peaks.slot_bytes
    );
    let host = outcome(staged).memory.host.total().0 as f64;
    assert!((host / 257e9 - 1.0).abs() < 0.02, "{host}");

    assert!(speed(composed) >= 21_500.0, "{}", speed(composed));
    assert!(bound_share(composed) >= 0.995, "{}", bound_share(composed));
    let metrics = &outcome(composed).metrics;
    assert!(metrics.peaks.alive <= 12, "in flight included");
    assert!(metrics.peaks.alive_bytes <= Bytes(37_000_000_000));
    assert!(metrics.mix.distinct_min >= 5);
    assert!(metrics.mix.tv_max <= 0.2, "{}", metrics.mix.tv_max);
    // The others mix by luck.
    for row in &rows[..3] {
        assert!(outcome(row).metrics.mix.distinct_min < 5);
    }
}

#[test]
fn a_composed_queue_is_deep_enough_at_one_steps_microbatches() {
    let mut scenario = shorter("depth");
    assert!(
        scenario.swept().contains_key("costs"),
        "the spread is swept"
    );
    let composed = scenario.policy("composed");
    let deep = |depth| Policy {
        depth_total: Some(depth),
        ..composed.clone()
    };
    for (spread, enough) in [(0.1, 12), (0.3, 16)] {
        scenario.costs.spread = spread;
        let rows = run(&scenario, &[deep(6), deep(enough), deep(36)]);
        let flat = speed(&rows[2]);
        assert!(speed(&rows[0]) < 0.8 * flat, "six slots starve somebody");
        assert!(
            speed(&rows[1]) > 0.995 * flat,
            "{spread}: {} of {flat}",
            speed(&rows[1])
        );
    }
}

#[test]
fn a_slow_transport_is_not_mended_by_depth() {
    let scenario = shorter("depth");
    let staged = scenario.policy("staged-fifo");
    let deep = |depth| Policy {
        depth_total: Some(depth),
        ..staged.clone()
    };
    let rows = run(&scenario, &[deep(12), deep(60)]);
    assert!((speed(&rows[1]) / speed(&rows[0]) - 1.0).abs() < 0.02);
}

#[test]
fn five_targets_and_three_drafters_are_the_best_split() {
    let scenario = shorter("split");
    let composed = scenario.policy("composed");
    let splits: Vec<Policy> = (1..8).map(|n| split(&composed, n, 8 - n)).collect();
    let rows = run(&scenario, &splits);
    let best = (0..7).max_by(|&a, &b| speed(&rows[a]).total_cmp(&speed(&rows[b])));
    assert_eq!(best, Some(4), "5+3");
    for row in &rows {
        assert!(outcome(row).metrics.mix.distinct_min >= 4);
    }
}

#[test]
fn copies_that_run_beside_compute_are_free_but_pageable_ones_are_not() {
    let scenario = shorter("transport");
    let by_name = |name| speed(&run(&scenario, &[scenario.policy(name)])[0]);
    let (p2p, pinned) = (by_name("p2p, overlap"), by_name("pinned, overlap"));
    assert!((pinned / p2p - 1.0).abs() < 0.005);
    assert!(by_name("pinned") < pinned);
    assert!(by_name("pageable") < 0.6 * p2p);
    let ahead = Policy {
        prefetch: 2,
        ..scenario.policy("pageable, overlap")
    };
    let ahead = speed(&run(&scenario, &[ahead])[0]);
    assert!(
        ahead > 1.5 * by_name("pageable") && ahead < 0.95 * p2p,
        "{ahead} of {p2p}"
    );
}

#[test]
fn a_rare_bucket_is_trained_in_full_and_excuses_no_step() {
    let scenario = scenario("rare-bucket");
    let composed = scenario.policy("composed");
    let asked = |distinct| Policy {
        mix_step_min: distinct,
        ..composed.clone()
    };
    let rows = run(&scenario, &[asked(5), asked(6)]);
    let five = &outcome(&rows[0]).metrics;
    assert_eq!(five.mix.exceptions, 0);
    assert!(five.mix.distinct_min >= 5);
    assert_eq!(five.ledger.trained, five.ledger.planned);
    let six = &outcome(&rows[1]).metrics;
    assert!(
        six.mix.exceptions > six.steps * 9 / 10,
        "the data cannot give six"
    );
    assert!((speed(&rows[1]) / speed(&rows[0]) - 1.0).abs() < 0.01);
}

#[test]
fn a_cap_on_bytes_protects_the_host_and_a_cap_on_items_does_not() {
    let scenario = scenario("long-tail");
    let policies = scenario.policies();
    let rows = run(&scenario, &policies);
    assert_eq!(rows[0].verdict(), Verdict::Infeasible, "64 slots");
    assert!(outcome(&rows[0]).overflow.iter().any(|o| o.place == "host"));
    for (row, policy) in rows.iter().zip(&policies).skip(1) {
        assert_eq!(row.verdict(), Verdict::Done);
        let peak = outcome(row).metrics.peaks.alive_bytes;
        assert!(Some(peak) <= policy.bytes_total, "{peak}");
    }
    assert!(
        speed(&rows[1]) > 0.97 * speed(&rows[0]),
        "the cap costs next to nothing"
    );

    let tight = Policy {
        bytes_total: Some(Bytes(5_000_000_000)),
        ..policies[1].clone()
    };
    let refused = run(&scenario, &[tight])[0]
        .outcome
        .as_ref()
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("bytes_total") && refused.contains("6710886400"),
        "{refused}"
    );
}

#[test]
fn a_rule_on_taking_deadlocks_and_a_plan_keeps_a_stronger_one() {
    let scenario = scenario("deadlock");
    let rows = run(&scenario, &scenario.policies());
    assert_eq!(rows[0].verdict(), Verdict::Done);
    let End::Deadlock(stall) = &outcome(&rows[1]).end else {
        panic!("the rule on taking hangs");
    };
    let text = stall.to_string();
    assert!(
        text.contains("12 slots are in use") && text.contains("the rule asks for 3"),
        "{text}"
    );
    assert_eq!(rows[2].verdict(), Verdict::Done);
    assert!(outcome(&rows[2]).metrics.mix.distinct_min >= 5);
    assert!(
        speed(&rows[2]) > 0.99 * speed(&rows[0]),
        "the guarantee costs nothing"
    );
}
