//! Splits of real 8-GPU boxes whose throughput others published: the simulator must land near them and rank them alike.

#[expect(dead_code, reason = "these tests need no part of it but runs")]
mod scenario;

use scenario::{Scenario, scenario, split};
use serde::Deserialize;
use shared::core::Activity;
use shared::policy::{Policy, check};
use sim::Row;
use toml::Table;

#[derive(Deserialize)]
struct Published {
    case: Vec<Case>,
}

/// One published rig. Fields beyond these are for readers.
#[derive(Deserialize)]
struct Case {
    name: String,
    #[serde(default)]
    tolerance: f64,
    batch: Option<u32>,
    grad_accum: Option<u32>,
    bytes_per_sample: Option<f64>,
    rows: Vec<Table>,
}

fn case(name: &str) -> Case {
    let published: Published =
        toml::from_str(include_str!("data/published-splits.toml")).expect("cases");
    published
        .case
        .into_iter()
        .find(|case| case.name == name)
        .expect("a published case")
}

fn number(row: &Table, key: &str) -> f64 {
    let value = &row[key];
    value
        .as_float()
        .or_else(|| value.as_integer().map(|i| i as f64))
        .expect("a number")
}

fn samples_per_s(row: &Row) -> f64 {
    let outcome = row.outcome.as_ref().expect("the split can run");
    assert!(outcome.overflow.is_empty(), "{:?}", outcome.overflow);
    outcome.metrics.samples_per_s()
}

/// Published and simulated samples per second by split.
fn compare(name: &str) {
    let case = case(name);
    let scenario: Scenario = scenario(&format!("published/{name}-split"));
    let preset = scenario.policies().remove(0);
    let policies: Vec<Policy> = case
        .rows
        .iter()
        .map(|row| {
            split(
                &preset,
                number(row, "targets") as u16,
                number(row, "drafters") as u16,
            )
        })
        .collect();
    let rows = scenario.run(&policies, 1);
    let mut pairs: Vec<(f64, f64)> = case
        .rows
        .iter()
        .zip(&rows)
        .map(|(published, simulated)| (number(published, "measured"), samples_per_s(simulated)))
        .collect();
    for (measured, simulated) in &pairs {
        let off = simulated / measured - 1.0;
        assert!(
            off.abs() <= case.tolerance,
            "{name}: measured {measured}, simulated {simulated:.2}"
        );
    }
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(
        pairs.is_sorted_by(|a, b| a.1 < b.1),
        "{name}: ranked otherwise: {pairs:?}"
    );
    // The scenario describes the published rig: the batch, and one step's microbatches.
    let outcome = rows[0].outcome.as_ref().expect("it ran");
    assert_eq!(
        outcome.metrics.samples,
        u64::from(outcome.metrics.microbatches) * u64::from(case.batch.expect("a batch"))
    );
    let drafters = u32::from(policies[0].drafters);
    let per_step = outcome.metrics.microbatches.div_ceil(outcome.metrics.steps);
    assert_eq!(per_step, case.grad_accum.expect("given") * drafters);
    if let Some(bytes) = case.bytes_per_sample {
        let each = outcome.metrics.peaks.slot_bytes.0 as f64
            / f64::from(outcome.metrics.peaks.slots)
            / 2.0;
        assert!((each / bytes - 1.0).abs() < 0.01, "{each} bytes a sample");
    }
}

#[test]
fn a_27b_target_on_h200() {
    compare("h200-27b");
}

#[test]
fn an_8b_target_on_h200() {
    compare("h200-8b");
}

#[test]
fn marks_close_to_what_consumers_hold_cost_throughput() {
    let case = case("watermark");
    let scenario = scenario("published/watermark");
    let policies = scenario.policies();
    for (policy, row) in policies.iter().zip(&case.rows) {
        assert_eq!(policy.gate_high.map(f64::from), Some(number(row, "high")));
        assert_eq!(policy.gate_low.map(f64::from), Some(number(row, "low")));
    }
    let rows = scenario.run(&policies, 1);
    let rates: Vec<f64> = rows.iter().map(samples_per_s).collect();
    let paused = |row: &Row| {
        let outcome = row.outcome.as_ref().expect("it ran");
        outcome.metrics.target_share(Activity::Blocked)
    };
    let ungated = rates[3];
    assert!(
        rates[..3].iter().all(|&rate| rate <= ungated * 1.001),
        "no gate is faster than none: {rates:?}"
    );
    let shares: Vec<f64> = rows.iter().map(paused).collect();
    assert!(
        shares[1..].iter().all(|&share| share + 0.05 < shares[0]),
        "targets pause for longest under the tightest gate: {shares:?}"
    );
    // What makes the tight gate slow is known before the run, and of the tight gate alone.
    let facts = scenario.facts();
    let warns = |policy: &Policy| {
        check(policy, &facts).iter().any(|found| {
            found.key == "gate_high" && found.message.contains("leave 24 to work ahead")
        })
    };
    let warned: Vec<bool> = policies.iter().map(warns).collect();
    assert_eq!(warned, [true, false, false, false]);
    assert!(
        rates[0] < 0.85 * rates[1] && rates[0] < 0.85 * rates[2],
        "{rates:?}"
    );
    assert!((rates[1] / rates[2] - 1.0).abs() < 0.01, "{rates:?}");
}
