//! The sections of a scenario through the strict reader: what users see when they write one wrong.

use super::load::testing::{loaded, loaded_with};
use super::{Kind, POINTS_MAX};
use serde::Deserialize;
use sim::spec::{Costs, Fault, Hardware, Model, Problem, Search, Training, Workload};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    #[serde(default)]
    kind: Kind,
    workload: Workload,
    training: Training,
    model: Model,
    hardware: Hardware,
    costs: Costs,
    #[serde(default)]
    fault: Vec<Fault>,
    #[serde(default)]
    search: Search,
    policy: toml::Table,
}

impl Scenario {
    fn problems(&self) -> Vec<Problem> {
        let faults = self.fault.iter().enumerate();
        [
            self.workload.validate("workload"),
            self.training.validate("training"),
            self.model.validate("model"),
            self.hardware.validate("hardware"),
            self.costs.validate("costs"),
            self.search.validate("search"),
        ]
        .into_iter()
        .chain(faults.map(|(row, fault)| fault.validate(&format!("fault[{row}]"))))
        .flatten()
        .collect()
    }
}

const SCENARIO: &str = r#"kind = "scenario"
[workload]
samples = 20000
lengths = { lognormal = { median = 1200, sigma = 0.9, min = 16, max = 8192 } }
buckets = { optimal = 6 }
[training]
grad_accum = 4
token_budget = 49152
batch_max = 64
[model]
captured_layers = 5
hidden_size = 5120
last_hidden = true
target_weights = "54 GB"
[hardware]
gpus = 8
gpu_memory = "141 GB"
host_memory = "2 TB"
host_pinned = { bandwidth = "25 GB/s", shared = true }
[costs]
target = { per_token_us = 40 }
drafter = { table = [ { base_ms = 3 }, { base_ms = 5 } ] }
step_ms = 35
[[fault]]
worker = "t1"
kind = { slow = { factor = 2 } }
at_s = 10
[search]
hs_bytes_max = "36 GB"
[sweep]
"hardware.host_pinned.bandwidth" = ["25 GB/s", "50 GB/s"]
[[policy]]
preset = ["composed", "bucketed"]
depth_total = { from = 4, to = 16, step = 4 }
"#;

fn refused(sets: &[&str]) -> String {
    let loaded = loaded_with(&[SCENARIO], sets).unwrap();
    let point = loaded.expand(POINTS_MAX).unwrap().point(0);
    let parsed = loaded.parse_point::<Scenario>(&point);
    let checked = parsed.and_then(|scenario| loaded.check_point(&point, scenario.problems()));
    checked.unwrap_err().to_string()
}

#[test]
fn a_whole_scenario_expands_and_reads() {
    let loaded = loaded(SCENARIO);
    let points = loaded.expand(POINTS_MAX).unwrap();
    assert_eq!(points.len(), 16);
    for (index, point) in points.iter().enumerate() {
        let scenario = loaded.parse_point::<Scenario>(&point).unwrap();
        assert_eq!(scenario.kind, Kind::Scenario);
        assert_eq!(loaded.check_point(&point, scenario.problems()), Ok(()));
        let bandwidth = scenario.hardware.host_pinned.unwrap().bandwidth;
        let swept = if index < 8 { 25e9 } else { 50e9 };
        assert_eq!(bandwidth.bytes_per_s(), swept);
        assert_eq!(scenario.policy.len(), 2);
    }
}

#[test]
fn mistakes_in_sections_name_their_line_and_the_way_out() {
    for (set, message) in [
        (
            "hardware.gpu_memory=141 Gb",
            "hardware.gpu_memory: \"141 Gb\" has the unknown unit \"Gb\"; use one of TiB, GiB, MiB, KiB, TB, GB, MB, kB, KB, B",
        ),
        (
            "costs.target={ table = [{}], base_ms = 1 }",
            "costs.target: a cost is either a table or one formula; move the coefficients into the table's rows",
        ),
        (
            "fault[0].worker=gpu1",
            "fault[0].worker: \"gpu1\" names no worker; write \"t1\" for target worker 1 or \"d0\" for drafter worker 0",
        ),
        (
            "fault[0].kind=dead",
            "fault[0].kind: unknown value \"dead\"; known here: \"slow\", \"lost\", \"joined\"",
        ),
        (
            "workload.over_long=skp",
            "workload.over_long: unknown value \"skp\", did you mean \"skip\"?",
        ),
        (
            "costs.spread=nan",
            "costs.spread: NaN must be finite and at least 0; write 0 for constant service times",
        ),
        (
            "training.token_budget={ from = 1, to = 4, step = 1 }",
            "training.token_budget: { from = 1, step = 1, to = 4 } is not accepted; write a whole number from 0 to 4294967295, or its range in [sweep]",
        ),
        (
            "costs.drafter.table[1].base=4",
            "costs.drafter.table[1].base: unknown key, did you mean \"base_ms\"?",
        ),
    ] {
        assert_eq!(refused(&[set]), format!("--set {set}: {message}"));
    }
}

#[test]
fn problems_of_swept_values_are_reported_in_the_sweep() {
    let text = SCENARIO.replace(
        "\"hardware.host_pinned.bandwidth\" = [\"25 GB/s\", \"50 GB/s\"]",
        "\"hardware.host_pinned.latency_ms\" = [-1, 1]",
    );
    let loaded = loaded(&text);
    let point = loaded.expand(POINTS_MAX).unwrap().point(0);
    let scenario = loaded.parse_point::<Scenario>(&point).unwrap();
    assert_eq!(
        loaded
            .check_point(&point, scenario.problems())
            .unwrap_err()
            .to_string(),
        "s.toml: sweep.\"hardware.host_pinned.latency_ms\": -1 must be finite and at least 0; write 0 for a link without latency (line 31)"
    );
}

#[test]
fn damaged_files_are_refused_in_single_lines_and_never_panic() {
    let mut state = 1_u64;
    let mut draw = |below: usize| {
        // Knuth's MMIX generator: good enough to pick places and bytes.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut refused = [0; 3];
    for _ in 0..600 {
        let mut bytes = SCENARIO.as_bytes().to_vec();
        for _ in 0..=draw(3) {
            let (at, length) = (draw(bytes.len()), draw(6));
            let end = (at + length).min(bytes.len());
            let alphabet = b"0-9.\"'[]{}=,\n ae_+";
            let patch: Vec<u8> = (0..draw(3)).map(|_| alphabet[draw(18)]).collect();
            bytes.splice(at..end, patch);
        }
        let text = String::from_utf8(bytes).unwrap();
        let (stage, errors) = match loaded_with(&[&text], &[]) {
            Err(errors) => (0, errors),
            Ok(loaded) => match loaded.expand(POINTS_MAX) {
                Err(errors) => (1, errors),
                Ok(points) => match loaded.parse_point::<Scenario>(&points.point(points.len() - 1))
                {
                    Err(errors) => (2, errors),
                    Ok(_) => continue,
                },
            },
        };
        refused[stage] += 1;
        for error in errors.iter() {
            let line = error.to_string();
            assert!(
                !line.contains('\n') && line.len() > 10,
                "{line:?} from {text}"
            );
        }
    }
    assert!(refused.iter().all(|count| *count > 0), "{refused:?}");
}
