//! Every knob turns something: each key of a scenario and of a policy, changed alone, changes what is simulated.
//!
//! A key that is parsed and then ignored misleads without a sign. The keys are those that the file formats themselves name, so that a
//! new one without a line here fails the test.

use crate::base::{resolved, scenario, simulate};
use shared::policy::Overrides;
use sim::spec::{Costs, Fault, Hardware, Link, Model, Sharing, Training, Workload};
use std::collections::BTreeSet;
use toml::{Table, Value};

/// What a knob changes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Changes {
    /// What happens, event by event.
    Trace,
    /// What is said of the same events: memory by place, whether it suffices.
    Verdict,
    /// Nothing: it is a label.
    Nothing,
}
use Changes::{Nothing, Trace, Verdict};

/// A knob: its path, what must be set for it to matter, its two values, and what the second changes. Settings are lines of TOML.
type Knob = (
    &'static str,
    &'static [&'static str],
    [&'static str; 2],
    Changes,
);

const COMPOSED: [&str; 3] = [
    "policy.preset = 'composed'",
    "policy.mix_step_min = 0",
    "policy.placement = 'drafter'",
];

const PINNED: [&str; 3] = [
    "policy.placement = 'host'",
    "policy.transport = 'host-pinned'",
    "hardware.host_pinned.bandwidth = '0.2 GB/s'",
];

const PINNED_SHARED: [&str; 4] = [
    PINNED[0],
    PINNED[1],
    PINNED[2],
    "hardware.host_pinned.shared = true",
];

const KNOBS: &[Knob] = &[
    ("seed", &[], ["1", "2"], Trace),
    // [workload]
    ("workload.samples", &[], ["240", "300"], Trace),
    ("workload.epochs", &[], ["1", "2"], Trace),
    (
        "workload.lengths",
        &[],
        [
            "{ uniform = { min = 10, max = 900 } }",
            "{ uniform = { min = 10, max = 800 } }",
        ],
        Trace,
    ),
    (
        "workload.lengths",
        &[],
        [
            "{ constant = 300 }",
            "{ mixture = [{ share = 1.0, tokens = 310 }] }",
        ],
        Trace,
    ),
    (
        "workload.lengths.lognormal.median",
        &[],
        ["300.0", "350.0"],
        Trace,
    ),
    (
        "workload.lengths.lognormal.sigma",
        &[],
        ["0.8", "0.5"],
        Trace,
    ),
    ("workload.lengths.lognormal.min", &[], ["10", "150"], Trace),
    ("workload.lengths.lognormal.max", &[], ["900", "500"], Trace),
    (
        "workload.buckets",
        &[],
        ["{ quantile = 3 }", "{ optimal = 3 }"],
        Trace,
    ),
    (
        "workload.over_long",
        &["workload.buckets = { edges = [200, 400] }"],
        ["'refuse'", "'skip'"],
        Trace,
    ),
    // [training]
    ("training.grad_accum", &[], ["2", "3"], Trace),
    ("training.token_budget", &[], ["3600", "1800"], Trace),
    ("training.batch_max", &[], ["8", "4"], Trace),
    // [model]
    ("model.captured_layers", &[], ["5", "6"], Trace),
    ("model.hidden_size", &[], ["1000", "2000"], Trace),
    ("model.last_hidden", &[], ["false", "true"], Trace),
    ("model.element_bytes", &[], ["2", "4"], Trace),
    (
        "model.bytes_per_token",
        &["model.captured_layers", "model.hidden_size"],
        ["10000", "20000"],
        Trace,
    ),
    ("model.target_weights", &[], ["'1 GB'", "'2 GB'"], Verdict),
    (
        "model.target_activations",
        &[],
        ["'1 GB'", "'2 GB'"],
        Verdict,
    ),
    ("model.drafter_state", &[], ["'1 GB'", "'2 GB'"], Verdict),
    (
        "model.drafter_activations",
        &[],
        ["'1 GB'", "'2 GB'"],
        Verdict,
    ),
    ("model.process_overhead", &[], ["'1 GB'", "'2 GB'"], Verdict),
    ("model.host_base", &[], ["'1 GB'", "'2 GB'"], Verdict),
    // [hardware]
    (
        "hardware.description",
        &[],
        ["'a box'", "'a shed'"],
        Nothing,
    ),
    ("hardware.gpus", &[], ["8", "4"], Trace),
    (
        "hardware.gpu_memory",
        &["model.target_weights = '1 GB'"],
        ["'80 GB'", "'1 MB'"],
        Verdict,
    ),
    (
        "hardware.host_memory",
        &["model.host_base = '1 GB'"],
        ["'500 GB'", "'1 MB'"],
        Verdict,
    ),
    (
        "hardware.host_pageable.bandwidth",
        &[
            "policy.placement = 'host'",
            "policy.transport = 'host-pageable'",
        ],
        ["'1 GB/s'", "'0.5 GB/s'"],
        Trace,
    ),
    (
        "hardware.host_pinned.bandwidth",
        &[
            "policy.placement = 'host'",
            "policy.transport = 'host-pinned'",
        ],
        ["'2 GB/s'", "'1 GB/s'"],
        Trace,
    ),
    (
        "hardware.p2p.bandwidth",
        &[],
        ["'4 GB/s'", "'1 GB/s'"],
        Trace,
    ),
    (
        "hardware.host_pinned.bandwidth_in",
        &PINNED,
        ["'2 GB/s'", "'1 GB/s'"],
        Trace,
    ),
    // Nothing travels by it: a measurement that a box keeps.
    (
        "hardware.local",
        &["policy.transport = 'local'"],
        ["{ bandwidth = '4 GB/s' }", "{ bandwidth = '1 GB/s' }"],
        Nothing,
    ),
    (
        "hardware.sharing.kernel_ratio",
        &[
            "hardware.gpus = 1",
            "hardware.sharing.rates = [{ forwards = 1, trains = 1, forward_rate = 0.5, train_rate = 0.4 }]",
            "policy.targets = 1",
            "policy.drafters = 1",
        ],
        ["0.5", "2.0"],
        Trace,
    ),
    (
        "hardware.sharing.step_rate",
        &[
            "hardware.gpus = 1",
            "hardware.sharing.rates = [{ forwards = 1, trains = 1, forward_rate = 0.5, train_rate = 0.4 }]",
            "policy.targets = 1",
            "policy.drafters = 1",
        ],
        ["0.2", "1.0"],
        Trace,
    ),
    (
        "hardware.rests.forward",
        &PINNED,
        [
            "{ exponent = 0.1, busy = 1.0, speed_max = 1.5 }",
            "{ exponent = 0.5, busy = 1.0, speed_max = 1.5 }",
        ],
        Trace,
    ),
    (
        "hardware.rests.train",
        &PINNED,
        [
            "{ exponent = 0.1, busy = 1.0, speed_max = 1.5 }",
            "{ exponent = 0.1, busy = 0.8, speed_max = 1.5 }",
        ],
        Trace,
    ),
    (
        "hardware.host_pinned.compute_rate",
        &[
            "hardware.gpus = 1",
            "hardware.sharing.rates = []",
            "policy.placement = 'host'",
            "policy.transport = 'host-pinned'",
        ],
        ["1.0", "0.5"],
        Trace,
    ),
    (
        "hardware.sharing.rates",
        &["hardware.gpus = 1"],
        [
            "[{ forwards = 3, trains = 0, forward_rate = 0.3 }]",
            "[{ forwards = 3, trains = 0, forward_rate = 0.4 }]",
        ],
        Trace,
    ),
    (
        "hardware.host_pinned.latency_ms",
        &PINNED,
        ["0.0", "1.0"],
        Trace,
    ),
    (
        "hardware.host_pinned.shared",
        &PINNED,
        ["false", "true"],
        Trace,
    ),
    (
        "hardware.host_pinned.duplex",
        &PINNED_SHARED,
        ["true", "false"],
        Trace,
    ),
    (
        "hardware.host_pinned.both_ways_rate",
        &PINNED_SHARED,
        ["1.0", "0.6"],
        Trace,
    ),
    // [costs]
    ("costs.target.base_ms", &[], ["0.0", "1.0"], Trace),
    ("costs.target.per_token_us", &[], ["10.0", "11.0"], Trace),
    ("costs.target.per_sample_ms", &[], ["0.0", "0.5"], Trace),
    ("costs.target.per_token2_ns", &[], ["0.0", "5.0"], Trace),
    (
        "costs.target",
        &[],
        [
            "{ per_token_us = 10.0 }",
            "{ table = [{ base_ms = 9.0 }, { base_ms = 10.0 }, { base_ms = 20.0 }] }",
        ],
        Trace,
    ),
    (
        "costs.drafter",
        &[],
        ["{ per_token_us = 6.0 }", "{ per_token_us = 7.0 }"],
        Trace,
    ),
    ("costs.step_ms", &[], ["5.0", "6.0"], Trace),
    ("costs.all_reduce_ms", &[], ["0.0", "1.0"], Trace),
    ("costs.spread", &[], ["0.1", "0.2"], Trace),
    (
        "costs.distribution",
        &[],
        ["'lognormal'", "'exponential'"],
        Trace,
    ),
    // [[fault]]
    (
        "fault.worker",
        &["fault.kind = { slow = { factor = 2.0 } }"],
        ["'t0'", "'d0'"],
        Trace,
    ),
    (
        "fault.kind",
        &[],
        ["{ slow = { factor = 1.0 } }", "{ slow = { factor = 2.0 } }"],
        Trace,
    ),
    (
        "fault.kind",
        &[],
        ["{ slow = { factor = 1.0 } }", "'lost'"],
        Trace,
    ),
    (
        "fault.at_s",
        &["fault.kind = 'lost'"],
        ["0.05", "0.1"],
        Trace,
    ),
    (
        "fault.until_s",
        &["fault.kind = { slow = { factor = 2.0 } }"],
        ["0.1", "0.2"],
        Trace,
    ),
    // [[policy]]
    ("policy.preset", &[], ["'bucketed'", "'staged-fifo'"], Trace),
    ("policy.name", &[], ["'a'", "'b'"], Nothing),
    ("policy.targets", &[], ["3", "4"], Trace),
    ("policy.drafters", &[], ["2", "3"], Trace),
    (
        "policy.input",
        &[],
        ["'shared'", "'fixed-round-robin'"],
        Trace,
    ),
    ("policy.queue", &[], ["'bucketed'", "'fifo'"], Trace),
    (
        "policy.take",
        &["costs.drafter.per_token_us = 12.0"],
        ["'round-robin'", "'longest'"],
        Trace,
    ),
    ("policy.admission", &[], ["'block'", "'reserve'"], Trace),
    (
        "policy.release",
        &["policy.depth_total = 3"],
        ["'taken'", "'trained'"],
        Trace,
    ),
    (
        "policy.depth_total",
        &["costs.drafter.per_token_us = 12.0"],
        ["3", "4"],
        Trace,
    ),
    (
        "policy.depth_per_bucket",
        &["costs.drafter.per_token_us = 12.0"],
        ["2", "3"],
        Trace,
    ),
    (
        "policy.depth_per_drafter",
        &["costs.drafter.per_token_us = 12.0"],
        ["1", "2"],
        Trace,
    ),
    (
        "policy.bytes_total",
        &["costs.drafter.per_token_us = 12.0"],
        ["80000000", "120000000"],
        Trace,
    ),
    (
        "policy.bytes_per_bucket",
        &["costs.drafter.per_token_us = 12.0"],
        ["60000000", "90000000"],
        Trace,
    ),
    (
        "policy.bytes_per_drafter",
        &["costs.drafter.per_token_us = 12.0"],
        ["40000000", "60000000"],
        Trace,
    ),
    (
        "policy.placement",
        &["policy.preset = 'drafter-queues'"],
        ["'drafter'", "'target'"],
        Trace,
    ),
    (
        "policy.transport",
        &["policy.placement = 'host'"],
        ["'host-pageable'", "'host-pinned'"],
        Trace,
    ),
    ("policy.overlap", &[], ["true", "false"], Trace),
    (
        "policy.copies_beside",
        &[
            "policy.preset = 'drafter-queues'",
            "hardware.p2p.bandwidth = '0.2 GB/s'",
        ],
        ["1", "0"],
        Trace,
    ),
    ("policy.prefetch", &[], ["1", "0"], Trace),
    ("policy.assignment", &[], ["'fixed'", "'shared'"], Trace),
    ("policy.barrier", &[], ["'all'", "'none'"], Trace),
    (
        "policy.tail",
        &["training.grad_accum = 9"],
        ["'short'", "'drop'"],
        Trace,
    ),
    ("policy.fill", &COMPOSED, ["'even'", "'random'"], Trace),
    (
        "policy.mix_step_min",
        &[
            "policy.preset = 'composed'",
            "policy.placement = 'drafter'",
            "workload.buckets = { edges = [60, 300, 900] }",
        ],
        ["0", "3"],
        Trace,
    ),
    (
        "policy.mix_window_min",
        &[
            "policy.mix_enforce = 'take'",
            "costs.drafter.per_token_us = 12.0",
        ],
        ["0", "2"],
        Trace,
    ),
    (
        "policy.mix_enforce",
        &[
            "policy.mix_window_min = 2",
            "costs.drafter.per_token_us = 12.0",
        ],
        ["'record'", "'take'"],
        Trace,
    ),
    (
        "policy.gate_high",
        &["policy.gate_low = 30"],
        ["60", "80"],
        Trace,
    ),
    (
        "policy.gate_low",
        &["policy.gate_high = 60"],
        ["30", "45"],
        Trace,
    ),
    (
        "policy.gate_lag",
        &["policy.gate_high = 80", "policy.gate_low = 60"],
        ["0", "1"],
        Trace,
    ),
    (
        "policy.poll_ns",
        &["policy.preset = 'pool'", "policy.depth_total = 12"],
        ["0", "20000000"],
        Trace,
    ),
    (
        "policy.retry_max",
        &["fault.kind = 'lost'"],
        ["0", "2"],
        Trace,
    ),
];

#[test]
fn every_knob_changes_what_it_should_and_two_runs_of_one_setting_agree() {
    let mut failures = Vec::new();
    for &(path, with, values, changes) in KNOBS {
        let [(trace, verdict), (other_trace, other_verdict)] = values.map(|value| {
            let settings: Vec<String> = with.iter().map(ToString::to_string).collect();
            let knob = format!("{path} = {value}");
            let settings = [settings, vec![knob]].concat();
            let said = simulate(&resolved(scenario(&settings)));
            assert!(
                said == simulate(&resolved(scenario(&settings))),
                "{path} = {value}: a run differs from itself"
            );
            said
        });
        let found = match (trace != other_trace, verdict != other_verdict) {
            (true, _) => Trace,
            (false, true) => Verdict,
            (false, false) => Nothing,
        };
        if found != changes {
            failures.push(format!(
                "{path} {values:?} changes {found:?}, not {changes:?}: {}",
                trace.lines().next().unwrap_or("")
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The keys that a section knows, as its refusal of an unknown one lists them.
fn keys<T: serde::de::DeserializeOwned>(section: &str) -> Vec<String> {
    let unknown = Table::from_iter([("?".to_owned(), Value::Boolean(true))]);
    let refusal = Value::Table(unknown)
        .try_into::<T>()
        .err()
        .expect("no such key");
    let text = refusal.to_string();
    let (_, known) = text.split_once("expected ").expect("the known keys");
    let quoted = known.split('`').skip(1).step_by(2);
    quoted.map(|key| format!("{section}.{key}")).collect()
}

#[test]
fn no_knob_is_forgotten() {
    let known: BTreeSet<String> = [
        keys::<Workload>("workload"),
        keys::<Training>("training"),
        keys::<Model>("model"),
        keys::<Hardware>("hardware"),
        keys::<Link>("hardware.host_pinned"),
        keys::<Sharing>("hardware.sharing"),
        keys::<Costs>("costs"),
        keys::<sim::spec::StageCost>("costs.target"),
        keys::<Fault>("fault"),
        keys::<Overrides>("policy"),
    ]
    .concat()
    .into_iter()
    .collect();
    assert!(known.len() > 70, "{} keys", known.len());
    let turned = |key: &String| {
        KNOBS.iter().any(|&(path, ..)| {
            let is_it = |path: &str| path == key || path.starts_with(&format!("{key}."));
            is_it(path) || key == "costs.target.table" && path == "costs.target"
        })
    };
    let forgotten: Vec<_> = known.iter().filter(|key| !turned(key)).collect();
    assert!(forgotten.is_empty(), "no line for {forgotten:?}");
}
