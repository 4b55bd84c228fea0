//! Scenario files, as far as tests need them: single points, no ranges.

use serde::Deserialize;
use shared::draw::Seed;
use shared::policy::{Overrides, Policy, RunFacts};
use sim::spec::{Costs, Fault, Hardware, Lengths, Model, Search, Training, Workload};
use sim::{Point, Resolved, Row, sweep};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use toml::{Table, Value};

/// A scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) question: String,
    seed: u64,
    #[serde(default)]
    sweep: Table,
    pub(crate) workload: Workload,
    training: Training,
    model: Model,
    hardware: Hardware,
    pub(crate) costs: Costs,
    #[serde(default)]
    fault: Vec<Fault>,
    pub(crate) search: Search,
    policy: Vec<Table>,
}

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios");

/// The file `name`.toml of the folder of scenarios.
pub(crate) fn scenario(name: &str) -> Scenario {
    let path = PathBuf::from(FOLDER).join(name).with_extension("toml");
    let text = std::fs::read_to_string(&path).expect("the scenario is there");
    let scenario: Scenario =
        toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(
        Some(scenario.name.as_str()),
        path.file_stem().and_then(|s| s.to_str())
    );
    scenario
}

impl Scenario {
    /// What is wrong with its sections, one line each.
    pub(crate) fn problems(&self) -> Vec<String> {
        let sections = [
            self.workload.validate("workload"),
            self.training.validate("training"),
            self.model.validate("model"),
            self.hardware.validate("hardware"),
            self.costs.validate("costs"),
            self.search.validate("search"),
        ];
        let faults = self.fault.iter().flat_map(|f| f.validate("fault"));
        let found = sections.into_iter().flatten().chain(faults);
        found
            .map(|problem| format!("{}: {problem:?}", self.name))
            .collect()
    }

    /// The policies, each at the first value of its ranges, in the order of the file.
    pub(crate) fn policies(&self) -> Vec<Policy> {
        self.policy.iter().map(first_policy).collect()
    }

    /// The policy that is shown under `name`.
    pub(crate) fn policy(&self, name: &str) -> Policy {
        let named = self.policies().into_iter().find(|p| p.name == name);
        named.unwrap_or_else(|| panic!("{}: no policy {name:?}", self.name))
    }

    /// What the scenario ranges over besides policies.
    pub(crate) fn swept(&self) -> &Table {
        &self.sweep
    }

    /// The lengths of its samples; none where microbatches are given. (tokens)
    pub(crate) fn lengths(&self) -> Vec<u32> {
        if let Lengths::File(file) = &self.workload.lengths {
            let text = std::fs::read_to_string(PathBuf::from(FOLDER).join(file));
            let text = text.expect("the lengths are there");
            return text.lines().map(|l| l.parse().expect("a length")).collect();
        }
        sim::draw_lengths(&self.workload, Seed(self.seed)).unwrap_or_default()
    }

    /// One policy's point.
    pub(crate) fn resolved(&self, policy: &Policy) -> Resolved {
        Resolved {
            seed: Seed(self.seed),
            workload: self.workload.clone(),
            training: self.training.clone(),
            model: self.model.clone(),
            hardware: self.hardware.clone(),
            costs: self.costs.clone(),
            faults: self.fault.clone(),
            policy: policy.clone(),
        }
    }

    /// What a check of its policies must know of the work.
    pub(crate) fn facts(&self) -> RunFacts {
        let resolved = self.resolved(&self.policies()[0]);
        sim::prepare(&resolved, &self.lengths())
            .expect("work")
            .facts
    }

    /// Runs these policies, as often as `replications` says.
    pub(crate) fn run(&self, policies: &[Policy], replications: u32) -> Vec<Row> {
        let points = self.points(policies);
        sweep(&points, replications, &AtomicBool::new(false), &|_| {})
    }

    /// These policies as points.
    pub(crate) fn points(&self, policies: &[Policy]) -> Vec<Point> {
        let lengths = Arc::new(self.lengths());
        let point = |policy: &Policy| Point {
            lengths: Arc::clone(&lengths),
            resolved: self.resolved(policy),
        };
        policies.iter().map(point).collect()
    }
}

/// N targets and M drafters instead of a policy's own.
pub(crate) fn split(policy: &Policy, targets: u16, drafters: u16) -> Policy {
    Policy {
        targets,
        drafters,
        ..policy.clone()
    }
}

fn first_policy(entry: &Table) -> Policy {
    let mut said = Table::new();
    for (key, value) in entry {
        let value = first(value);
        match (key.as_str(), value.as_str()) {
            ("split", Some(split)) => {
                let (targets, drafters) = split.split_once('+').expect("written N+M");
                let count = |n: &str| Value::Integer(n.parse().expect("a number of workers"));
                said.insert("targets".into(), count(targets));
                said.insert("drafters".into(), count(drafters));
            }
            _ => {
                said.insert(key.clone(), value);
            }
        }
    }
    let said: Overrides = said.try_into().expect("a policy's choices");
    said.resolve().expect("a preset")
}

fn first(value: &Value) -> Value {
    match value {
        Value::Array(values) => values[0].clone(),
        other => other.clone(),
    }
}
