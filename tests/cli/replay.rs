//! `dflash replay`.

use super::desk::{COMPOSED, Desk};
use shared::core::Event;
use shared::id::DrafterId;
use shared::record::{Encoder, Record, Trace, parse};

fn traced() -> Desk {
    let desk = Desk::with(COMPOSED);
    desk.run("sim s.toml --trace --no-figures --out out")
        .exits(0);
    desk
}

#[test]
fn a_trace_replays_with_its_digest_and_throughput() {
    let desk = traced();
    let trace = desk.read("out/trace.txt");
    let digest = trace.trim_end().rsplit(' ').next().unwrap();
    let row = &desk.rows("out/results.csv")[0];
    let steps = format!("{} steps", row["steps"]);
    let ran =
        desk.run("replay out/trace.txt")
            .exits(0)
            .says(&["replays: ", digest, &steps, "tok/s"]);
    assert_eq!(ran.out.lines().count(), 1);
    desk.run("replay out/trace.txt --policy out/best.toml")
        .exits(0);
}

#[test]
fn metrics_computed_from_records_are_those_of_the_simulation() {
    let desk = traced();
    let row = &desk.rows("out/results.csv")[0];
    let ran = desk.run("replay out/trace.txt --metrics=json").exits(0);
    let metrics: Vec<serde_json::Value> = ran
        .out
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for column in [
        "throughput_run_tok_s",
        "hs_slots_peak",
        "mix_tv_max",
        "padding",
        "samples_trained",
        "steps",
        "drafter_barrier",
    ] {
        let found = metrics.iter().find(|m| m["metric"] == column).unwrap();
        let value = found["value"].as_f64().unwrap();
        let expected: f64 = row[column].parse().unwrap();
        assert!(
            (value - expected).abs() <= 1e-3,
            "{column}: {value} {expected}"
        );
    }
    desk.run("replay out/trace.txt --metrics")
        .exits(0)
        .says(&["throughput_tok_s", "target_blocked"]);
}

#[test]
fn another_seed_diverges_and_the_first_divergence_is_named() {
    let desk = traced();
    desk.run("replay out/trace.txt --seed 4")
        .exits(1)
        .complains(&[
            "out/trace.txt: diverges at record 0, 0 s into the run",
            "recorded: 0 started | Forward t0 m0",
            "other work: m0 is bucket",
        ]);
}

#[test]
fn another_depth_diverges_where_it_first_matters() {
    let desk = traced();
    let best = desk.read("out/best.toml");
    desk.write(
        "p.toml",
        best.replace("depth_total = 12", "depth_total = 3"),
    );
    desk.run("replay out/trace.txt --policy p.toml")
        .exits(1)
        .complains(&["diverges at record ", "recorded: ", "replayed: "]);
}

#[test]
fn a_policy_with_fewer_workers_or_another_plan_diverges_and_never_panics() {
    let desk = traced();
    let best = desk.read("out/best.toml");
    for (from, to) in [
        ("targets = 2", "targets = 1"),
        ("drafters = 2", "drafters = 1"),
        ("token_budget = 4096", "token_budget = 1024"),
        ("token_budget = 4096", "token_budget = 65536"),
        ("batch_max = 16", "batch_max = 1"),
        ("epochs = 1", "epochs = 3"),
        ("grad_accum = 2", "grad_accum = 40"),
    ] {
        assert!(best.contains(from), "{from}");
        let other = best.replacen(from, to, 1);
        desk.write(
            "p.toml",
            other.replace("mix_step_min = 3", "mix_step_min = 1"),
        );
        desk.run("replay out/trace.txt --policy p.toml")
            .exits(1)
            .complains(&["diverges at record "]);
    }
}

/// A trace with a right fingerprint whose records were changed.
fn forged(trace: &Trace, change: impl FnOnce(&mut Vec<Record>)) -> String {
    let mut records = trace.records.clone();
    change(&mut records);
    let mut encoder = Encoder::default();
    let mut text = encoder.header(&trace.header);
    for record in &records {
        encoder.record(&mut text, record.at, &record.event, &record.actions);
    }
    text + &encoder.end()
}

#[test]
fn a_forged_trace_diverges_and_never_panics() {
    let desk = traced();
    let trace = parse(&desk.read("out/trace.txt")).unwrap();
    desk.write("f.txt", forged(&trace, |_| {}));
    desk.run("replay f.txt").exits(0);
    let last = trace.records.len() - 1;
    for index in (0..last).step_by(7) {
        for forgery in [
            forged(&trace, |records| drop(records.remove(index))),
            forged(&trace, |records| {
                records.insert(index, records[index].clone())
            }),
            forged(&trace, |records| records.swap(index, index + 1)),
            forged(&trace, |records| {
                records[index].event = Event::DrafterLost(DrafterId(99));
            }),
            forged(&trace, |records| records[index].event = Event::WakeDue),
        ] {
            desk.write("f.txt", forgery);
            desk.run("replay f.txt")
                .exits(1)
                .complains(&["f.txt: diverges at record "]);
        }
    }
    desk.write("f.txt", forged(&trace, |records| records.truncate(last)));
    desk.run("replay f.txt")
        .exits(0)
        .says(&["the records end before the run does"]);
}

#[test]
fn a_trace_of_another_plan_is_refused_with_both_hashes() {
    let desk = traced();
    let mut trace = parse(&desk.read("out/trace.txt")).unwrap();
    let hash = "0123456789abcdef".to_owned();
    trace.header.facts.insert("plan".into(), hash);
    desk.write("f.txt", forged(&trace, |_| {}));
    desk.run("replay f.txt")
        .exits(1)
        .complains(&["builds another plan", "recorded 0123456789abcdef"]);
    trace.header.config.push_str("unheard_of = 1\n");
    desk.write("f.txt", forged(&trace, |_| {}));
    desk.run("replay f.txt")
        .exits(3)
        .complains(&["its header describes no run", "unheard_of"]);
}

#[test]
fn a_scenario_in_place_of_a_policy_is_refused() {
    traced()
        .run("replay out/trace.txt --policy s.toml")
        .exits(2)
        .complains(&["s.toml: is a scenario", "name a policy file"]);
}

#[test]
fn an_edited_trace_is_refused() {
    let desk = traced();
    let trace = desk.read("out/trace.txt");
    desk.write("e.txt", trace.replacen("Forward t0 m0", "Forward t0 m1", 1));
    desk.run("replay e.txt")
        .exits(3)
        .complains(&["e.txt: the trace was edited or damaged"]);
    desk.write("e.txt", trace.replacen(" done", " dona", 1));
    desk.run("replay e.txt")
        .exits(3)
        .complains(&["e.txt: line ", "cannot be read"]);
    desk.write("e.txt", format!("{trace}0 started\n"));
    desk.run("replay e.txt").exits(3);
}

#[test]
fn a_cut_trace_is_refused() {
    let desk = traced();
    let trace = desk.read("out/trace.txt");
    desk.write("c.txt", &trace[..trace.len() / 2]);
    let ran = desk.run("replay c.txt").exits(3);
    assert!(
        ran.err.contains("ends without its last line") || ran.err.contains("cannot be read"),
        "{ran:?}"
    );
}

#[test]
fn what_is_no_trace_is_refused() {
    let desk = traced();
    desk.run("replay s.toml")
        .exits(3)
        .complains(&["s.toml: line 1: not a dflash trace"]);
    desk.run("replay gone.txt")
        .exits(3)
        .complains(&["gone.txt: cannot be read: "]);
    desk.write("b.txt", b"\xff\xfe");
    desk.run("replay b.txt")
        .exits(3)
        .complains(&["b.txt: is not UTF-8"]);
}
