//! `dflash validate`, and `dflash check` of the committed scenarios that it must warn of or refuse.

use super::desk::Desk;

/// A committed scenario.
fn scenario(name: &str) -> String {
    format!("{}/scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn cases_without_chance_are_exact_and_those_with_it_lie_in_their_intervals() {
    let desk = Desk::new();
    desk.run("validate --cases deterministic_line,pipeline_of_peers")
        .exits(0)
        .says(&[
            "makespan_ns            exact   228992358205  simulated   228992358205  without chance",
            "N=5 S1=55860; M=3 S2=34000",
            "11 of 11 values hold",
        ]);
    // The two ways of blocking are told apart by their throughput.
    desk.run("validate --cases tandem_finite_BAS,tandem_finite_BBS --shorter 4 --csv values.csv")
        .exits(0)
        .says(&[
            "admission = block: a target asks for its slot after the forward",
            "exact      0.6666667",
            "admission = reserve: a target asks for its slot before the forward",
            "exact      0.5000000",
            "every law holds on every run",
            "Little's law",
        ]);
    let csv = desk.read("values.csv");
    assert!(csv.starts_with("case,parameters,how,metric,exact,simulated,low,high,width,verdict"));
    assert_eq!(csv.lines().count(), 12);
}

#[test]
fn every_line_of_json_is_an_object_and_the_last_sums_up() {
    let ran = Desk::new()
        .run("validate --cases saturation_bound --json")
        .exits(0);
    let lines: Vec<serde_json::Value> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["verdict"], "holds");
    assert_eq!(lines[2]["values"], 2);
    assert_eq!(lines[2]["hold"], 2);
    assert_eq!(lines[2]["out_of_scope"][0]["case"], "jackson_open");
}

#[test]
fn a_case_that_is_none_is_refused() {
    Desk::new()
        .run("validate --cases MM2")
        .exits(2)
        .complains(&["--cases MM2: is no case; choose of MM1, "]);
}

#[test]
fn check_warns_of_a_watermark_without_room_to_work_ahead() {
    Desk::new()
        .run(&format!("check {}", scenario("published/watermark")))
        .exits(0)
        .says(&[
            "policy[0].gate_high",
            "96 samples in flight leave 24 to work ahead: a step takes 32 and consumers may hold 40 beside it",
            "set at least 104",
        ]);
}

#[test]
fn check_refuses_capacities_that_no_worker_can_use() {
    Desk::new()
        .run(&format!("check {}", scenario("refused/zero-capacity")))
        .exits(2)
        .complains(&[
            "2 samples in flight never complete a step of 4, training.grad_accum 1",
            "1 slots never hold a whole window of 2 (grad_accum 1 x 2 drafters)",
        ]);
}
