//! `dflash sim`.

use super::desk::{COMPOSED, Desk};

#[test]
fn the_answer_names_the_best_policy_and_is_written() {
    let desk = Desk::with(&format!(
        "{COMPOSED}\n[[policy]]\npreset = \"bucketed\"\ntargets = 2\ndrafters = 2\n"
    ));
    desk.run("sim s.toml --set search.mix_step_min=3 --no-figures --out out")
        .exits(0)
        .says(&[
            "Best policy: composed with 2 targets and 2 drafters",
            "of the bound",
            "results in out",
        ]);
    let rows = desk.rows("out/results.csv");
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row["outcome"] == "done"));
    for row in &rows {
        let number = |column: &str| row[column].parse::<f64>().unwrap();
        let accounted = number("samples_trained")
            + number("samples_dropped")
            + number("samples_over_long")
            + number("samples_failed");
        assert_eq!(number("samples_planned"), accounted);
        assert!(number("bound_share") <= 1.0);
    }
}

#[test]
fn workers_of_one_gpu_are_limited_by_it_and_must_fit_it_together() {
    let desk = Desk::with(COMPOSED);
    let one = "--set hardware.gpus=1 --set hardware.sharing={} --no-figures";
    desk.run(&format!("sim s.toml {one} --out out"))
        .exits(0)
        .says(&["The GPUs that targets and drafters share limit it"]);
    assert_eq!(desk.rows("out/results.csv")[0]["bottleneck"], "device");
    let weights = "--set model.target_weights=60000000000 --set model.drafter_state=60000000000";
    let memory = "--set hardware.gpu_memory=100000000000";
    desk.run(&format!(
        "sim s.toml {weights} {memory} --no-figures --out apart"
    ))
    .exits(0);
    desk.run(&format!(
        "sim s.toml {one} {weights} {memory} --out together"
    ))
    .exits(1)
    .says(&["GPU of t0, t1, d0, d1 needs"]);
}

#[test]
fn a_second_run_writes_the_same_bytes() {
    let desk = Desk::with(COMPOSED);
    desk.run("sim s.toml --trace --no-figures --out a").exits(0);
    desk.run("sim s.toml --trace --no-figures --out b").exits(0);
    for name in ["results.csv", "best.toml", "trace.txt"] {
        let [a, b] = ["a", "b"].map(|out| desk.read(&format!("{out}/{name}")));
        assert!(a == b, "{name} differs");
    }
}

#[test]
fn the_best_policy_predicts_itself_again() {
    let desk = Desk::with(COMPOSED);
    desk.run("sim s.toml --trace --no-figures --out a").exits(0);
    desk.run("sim a/best.toml --trace --no-figures --out b")
        .exits(0)
        .says(&["Best policy: composed with 2 targets and 2 drafters"]);
    assert_eq!(desk.read("a/best.toml"), desk.read("b/best.toml"));
    // The headers differ in what the file that was read expected; the decisions do not.
    let decisions = |out: &str| {
        let trace = desk.read(&format!("{out}/trace.txt"));
        let records = trace.split_once("\nrecords\n").unwrap().1;
        records.rsplit_once("end ").unwrap().0.to_owned()
    };
    assert!(decisions("a") == decisions("b"));
}

#[test]
fn a_policy_file_finds_the_lengths_of_its_scenario() {
    let desk = Desk::with(COMPOSED);
    let lengths: Vec<_> = (0..200).map(|i| (16 + i * 37 % 497).to_string()).collect();
    desk.write("lengths.csv", lengths.join("\n"));
    let scenario = desk.read("s.toml").replace(
        "{ uniform = { min = 16, max = 512 } }",
        "{ file = \"lengths.csv\" }",
    );
    desk.write("s.toml", scenario.replace("samples = 600", ""));
    desk.run("sim s.toml --no-figures --out deep/a").exits(0);
    desk.run("sim deep/a/best.toml --no-figures --out b")
        .exits(0);
    assert_eq!(desk.read("deep/a/best.toml"), desk.read("b/best.toml"));
}

#[test]
fn over_long_samples_are_counted_when_they_may_be_skipped() {
    let desk = Desk::with(COMPOSED);
    let scenario = desk.read("s.toml").replace(
        "buckets = { edges = [128, 256, 384, 512] }",
        "buckets = { edges = [128, 256, 384] }\nover_long = \"skip\"",
    );
    desk.write("s.toml", scenario);
    desk.run("sim s.toml --no-figures --out out").exits(0);
    let row = &desk.rows("out/results.csv")[0];
    let count = |column: &str| row[column].parse::<u64>().unwrap();
    assert!(count("samples_over_long") > 0);
    assert_eq!(
        count("samples_trained") + count("samples_over_long"),
        count("samples_planned")
    );
    assert_eq!(count("samples_planned"), 600);
    desk.run("check s.toml").exits(0).says(&[&format!(
        "{} longer than the last edge",
        row["samples_over_long"]
    )]);
}

/// A rule on consumption that waits for buckets which the full queue cannot let in.
const DEADLOCK: &str = r#"
[[policy]]
preset = "bucketed"
targets = 2
drafters = 2
depth_total = 4
mix_window_min = 3
mix_enforce = "take"
"#;

#[test]
fn a_rule_bolted_onto_consumption_ends_in_a_deadlock_that_says_who_waits_for_what() {
    let desk = Desk::with(DEADLOCK);
    let scenario = desk
        .read("s.toml")
        .replace("grad_accum = 2", "grad_accum = 4")
        .replace("base_ms = 5.0, per_token_us = 80.0", "base_ms = 500.0");
    desk.write("s.toml", scenario);
    desk.run("check s.toml").exits(0).says(&["can deadlock"]);
    desk.run("sim s.toml --no-figures --out out")
        .exits(1)
        .says(&[
            "deadlock: bucketed: at ",
            "microbatches are undone",
            "waits for a drafter that may take it",
            "more distinct bucket(s)",
        ])
        .complains(&["no policy qualifies: of 1 points 1 end in deadlock"]);
    let row = &desk.rows("out/results.csv")[0];
    assert_eq!(row["outcome"], "deadlock");
    assert!(
        row["reason"].starts_with("deadlock at "),
        "{}",
        row["reason"]
    );
    assert!(!desk.path("out/best.toml").exists());
}

/// Two policies that are all but the same.
const CLOSE: &str = r#"
[[policy]]
preset = "composed"
targets = 2
drafters = 2
mix_step_min = 3
depth_total = [8, 12]
"#;

#[test]
fn a_ranking_that_the_runs_do_not_carry_is_refused_with_what_it_would_take() {
    let desk = Desk::with(CLOSE);
    desk.run("sim s.toml --replications 1 --no-figures --out out")
        .exits(1)
        .complains(&[
            "ranking refused: composed (depth_total = ",
            "after 1 replications",
            "write search.replications = 3",
        ]);
    assert!(!desk.path("out/best.toml").exists());
    assert_eq!(desk.rows("out/results.csv").len(), 2);
    desk.run("sim s.toml --replications 6 --no-figures --out out")
        .exits(0)
        .says(&["search: 2 points", "on fresh seeds"]);
    let rows = desk.rows("out/results.csv");
    let best = rows.iter().find(|row| row["standing"] == "best").unwrap();
    let fresh = best["fresh_tok_s"].parse::<f64>().unwrap();
    let text = desk.read("out/best.toml");
    assert!(
        text.contains(&format!("throughput_tok_s = {fresh}")),
        "{text}"
    );
    let other = rows.iter().find(|row| row["standing"] != "best").unwrap();
    assert!(["tie", "open", "slower"].contains(&other["standing"].as_str()));
    assert!(!other["behind_ci_low"].is_empty() || !best["behind_ci_low"].is_empty());
}

#[test]
fn a_search_by_halving_says_what_it_took() {
    let desk = Desk::with(&CLOSE.replace("[8, 12]", "{ from = 4, to = 24 }"));
    let run =
        "sim s.toml --no-figures --set workload.samples=60000 --set search.method=halving --out";
    desk.run(&format!("{run} a")).exits(0).says(&[
        "search: 21 points",
        " by 48 steps",
        "microbatches simulated",
    ]);
    desk.run(&format!("{run} b")).exits(0);
    for name in ["results.csv", "best.toml"] {
        let [a, b] = ["a", "b"].map(|out| desk.read(&format!("{out}/{name}")));
        assert!(a == b, "{name} differs");
    }
    let drawn = desk.run(&format!("{run} c --set search.candidates=8"));
    drawn.exits(0).says(&["search: 21 points"]);
}

#[test]
fn a_search_names_the_keys_that_do_not_fit() {
    let desk = Desk::with(COMPOSED);
    desk.run("sim s.toml --set search.objective=memory --out out")
        .exits(2)
        .complains(&[
            "search.objective: \"memory\" needs a least throughput; add throughput_min_tok_s",
        ]);
    desk.run("sim s.toml --set search.steps_first=30 --out out")
        .exits(2)
        .complains(&["search.steps_first: 30 belongs to method = \"halving\""]);
    desk.run("sim s.toml --set search.method=halve --out out")
        .exits(2)
        .complains(&["search.method", "halving"]);
    desk.run("sim s.toml --set search.confidence=1 --out out")
        .exits(2)
        .complains(&["search.confidence: 1 must be at least 0.5 and below 1"]);
}
