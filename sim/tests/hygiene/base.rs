//! One small scenario, and settings by which it is changed.

use shared::core::{Action, Core, Event};
use shared::draw::Seed;
use shared::metrics::Detail;
use shared::policy::Overrides;
use shared::record::Encoder;
use shared::time::Time;
use sim::{Nobody, Outcome, Resolved, draw_lengths, prepare, run};
use toml::{Table, Value};

/// Forty microbatches of three buckets on three targets and two drafters, hidden states from device to device.
const BASE: &str = r#"
seed = 1
[workload]
samples = 240
lengths = { lognormal = { median = 300.0, sigma = 0.8, min = 10, max = 900 } }
buckets = { edges = [200, 400, 900] }
[training]
grad_accum = 2
token_budget = 3600
batch_max = 8
[model]
captured_layers = 5
hidden_size = 1000
[hardware]
gpus = 8
gpu_memory = "80 GB"
host_memory = "500 GB"
host_pageable = { bandwidth = "1 GB/s" }
host_pinned = { bandwidth = "2 GB/s" }
p2p = { bandwidth = "4 GB/s" }
[costs]
target = { per_token_us = 10.0 }
drafter = { per_token_us = 6.0 }
step_ms = 5.0
spread = 0.1
[fault]
worker = "t0"
kind = { slow = { factor = 1.0 } }
at_s = 0.05
[policy]
preset = "bucketed"
targets = 3
drafters = 2
depth_total = 6
"#;

/// A scenario of one point as a table.
pub(crate) fn scenario(settings: &[String]) -> Table {
    let mut scenario: Table = BASE.parse().expect("the base");
    for setting in settings {
        match setting.split_once(" = ") {
            Some((path, value)) => {
                let line: Table = format!("value = {value}").parse().expect("a value");
                set(&mut scenario, path, Some(line["value"].clone()));
            }
            None => set(&mut scenario, setting, None),
        }
    }
    scenario
}

fn set(table: &mut Table, path: &str, value: Option<Value>) {
    match (path.split_once('.'), value) {
        (Some((first, rest)), value) => {
            let inner = table.entry(first).or_insert_with(|| Table::new().into());
            set(inner.as_table_mut().expect("a section"), rest, value);
        }
        (None, Some(value)) => {
            table.insert(path.into(), value);
        }
        (None, None) => {
            table.remove(path);
        }
    }
}

/// The point that a table describes.
pub(crate) fn resolved(mut scenario: Table) -> Resolved {
    let seed = scenario["seed"].as_integer().expect("a seed") as u64;
    let mut section = |key: &str| scenario.remove(key).expect("a section");
    let said: Overrides = read(section("policy"));
    Resolved {
        seed: Seed(seed),
        workload: read(section("workload")),
        training: read(section("training")),
        model: read(section("model")),
        hardware: read(section("hardware")),
        costs: read(section("costs")),
        faults: vec![read(section("fault"))],
        policy: said.resolve().expect("a preset"),
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    let text = value.to_string();
    value.try_into().unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The base with these settings.
pub(crate) fn point(settings: &[&str]) -> Resolved {
    let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
    resolved(scenario(&settings))
}

/// What a simulation says: its trace, or why there is none, and what is made of it.
pub(crate) fn simulate(point: &Resolved) -> (String, String) {
    simulate_slowly(point, |_| {})
}

/// The same, where the host does `work` at every record.
pub(crate) fn simulate_slowly(point: &Resolved, mut work: impl FnMut(&str)) -> (String, String) {
    let lengths = draw_lengths(&point.workload, point.seed).expect("drawn lengths");
    let mut encoder = Encoder::default();
    let mut trace = String::new();
    let mut observe = |at: Time, event: &Event, actions: &[Action], _: &Core| {
        encoder.record(&mut trace, at, event, actions);
        work(&trace);
    };
    let ran = prepare(point, &lengths)
        .and_then(|work| run(point, &work, Detail::default(), &mut observe));
    match ran {
        Ok(outcome) => {
            let verdict = format!("{:?} {:?}", outcome.memory, outcome.overflow);
            (trace, verdict)
        }
        Err(refusal) => (refusal.to_string(), String::new()),
    }
}

/// All that a simulation says.
pub(crate) fn outcome(point: &Resolved) -> Outcome {
    let lengths = draw_lengths(&point.workload, point.seed).expect("drawn lengths");
    let work = prepare(point, &lengths).expect("work");
    run(point, &work, Detail::default(), &mut Nobody).expect("it runs")
}
