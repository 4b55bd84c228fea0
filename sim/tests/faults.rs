//! Lost, slow and returning workers in the simulator: every sample is still trained exactly once.

use shared::core::{Action, Core, Event, check};
use shared::metrics::Detail;
use shared::policy::{PRESETS, preset};
use shared::time::Time;
use sim::spec::{Costs, Fault, Hardware, Model, Training, Workload};
use sim::{End, Resolved, draw_lengths, prepare, run};

fn resolved(name: &str, faults: &str) -> Resolved {
    #[derive(serde::Deserialize)]
    struct File {
        workload: Workload,
        training: Training,
        model: Model,
        hardware: Hardware,
        costs: Costs,
        #[serde(default)]
        fault: Vec<Fault>,
    }
    let text = format!(
        r#"
        workload = {{ samples = 600, lengths = {{ uniform = {{ min = 10, max = 400 }} }}, buckets = {{ edges = [100, 200, 400] }} }}
        training = {{ grad_accum = 2, token_budget = 1600, batch_max = 8 }}
        model = {{ bytes_per_token = 1000 }}
        hardware = {{ description = "", gpus = 8, gpu_memory = "1 GB", host_memory = "1 GB", host_pageable = {{ bandwidth = "4 MB/s", shared = true }}, p2p = {{ bandwidth = "40 MB/s" }} }}
        costs = {{ target = {{ per_token_us = 600.0 }}, drafter = {{ per_token_us = 400.0 }}, step_ms = 50.0, spread = 0.2 }}
        {faults}
        "#
    );
    let file: File = toml::from_str(&text).expect("the scenario parses");
    let mut policy = preset(name).expect("a preset");
    policy.mix_step_min = policy.mix_step_min.min(3);
    policy.gate_high = policy.gate_high.map(|_| 400);
    policy.gate_low = policy.gate_low.map(|_| 200);
    Resolved {
        seed: shared::draw::Seed(5),
        workload: file.workload,
        training: file.training,
        model: file.model,
        hardware: file.hardware,
        costs: file.costs,
        faults: file.fault,
        policy,
    }
}

fn train(point: &Resolved) -> sim::Outcome {
    let lengths = draw_lengths(&point.workload, point.seed).expect("lengths are drawn");
    let work = prepare(point, &lengths).expect("there is work");
    let mut watch = |_: Time, _: &Event, _: &[Action], core: &Core| {
        check(core).expect("the invariants hold");
    };
    run(point, &work, Detail::default(), &mut watch).expect("the point can run")
}

#[test]
fn lost_workers_cost_time_and_no_sample() {
    let faults = r#"
        fault = [
            { worker = "t1", kind = "lost", at_s = 3.0, until_s = 9.0 },
            { worker = "t4", kind = "lost", at_s = 4.5 },
            { worker = "d0", kind = "lost", at_s = 5.2, until_s = 8.0 },
            { worker = "d2", kind = "lost", at_s = 11.0 },
        ]
    "#;
    for name in PRESETS {
        let whole = train(&resolved(name, ""));
        let hurt = train(&resolved(name, faults));
        assert_eq!(hurt.end, End::Done, "{name}");
        assert_eq!(hurt.metrics.samples, 600, "{name}");
        assert!(hurt.metrics.ledger.balances(), "{name}");
        assert!(hurt.metrics.makespan > whole.metrics.makespan, "{name}");
    }
}

#[test]
fn a_slow_target_costs_less_under_shared_input() {
    let slow = r#"fault = [{ worker = "t0", kind = { slow = { factor = 4.0 } }, at_s = 0.0 }]"#;
    let ratio = |name: &str| {
        let (whole, hurt) = (train(&resolved(name, "")), train(&resolved(name, slow)));
        hurt.metrics.makespan.as_ns() as f64 / whole.metrics.makespan.as_ns() as f64
    };
    // Others take over what a slow target leaves; fixed round robin waits for it.
    assert!(ratio("bucketed") < ratio("drafter-queues"));
}

#[test]
fn losing_all_targets_is_reported_as_a_stall() {
    let faults = (0..5).map(|t| format!(r#"{{ worker = "t{t}", kind = "lost", at_s = 2.0 }},"#));
    let faults = format!("fault = [{}]", faults.collect::<String>());
    let outcome = train(&resolved("composed", &faults));
    let End::Deadlock(stall) = outcome.end else {
        panic!("{:?}", outcome.end)
    };
    assert!(
        stall.to_string().contains("no target worker is left"),
        "{stall}"
    );
}
