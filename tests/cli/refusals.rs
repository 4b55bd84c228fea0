//! Each mistake gives its own message and exit code, and what was written before stays as it was.

use super::desk::{COMPOSED, Desk, Ran, SCENARIO};

/// Runs `sim` and expects it to refuse with `code` before it touches an output folder that holds results.
fn refused(desk: &Desk, args: &str, code: i32) -> Ran {
    desk.write("out/results.csv", "older results\n");
    desk.write("out/best.toml", "older policy\n");
    let before = desk.files("out");
    let ran = desk.run(&format!("sim {args} --out out")).exits(code);
    assert_eq!(desk.files("out"), before);
    assert_eq!(ran.out, "");
    for line in ran.err.lines() {
        assert!(line.starts_with("dflash: "), "{line}");
    }
    ran
}

/// As [`refused`], and `check` says the same of the same file.
fn mistake(scenario: &str, parts: &[&str]) {
    let desk = Desk::new();
    desk.write("s.toml", scenario);
    let ran = refused(&desk, "s.toml", 2).complains(parts);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    desk.run("check s.toml").exits(2).complains(parts);
}

fn policy(lines: &str) -> String {
    format!("{SCENARIO}{COMPOSED}{lines}")
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_one() {
    let scenario = policy("").replace("grad_accum = 2", "grad_acum = 2");
    let desk = Desk::new();
    desk.write("s.toml", &scenario);
    refused(&desk, "s.toml", 2).complains(&[
        "s.toml: training.grad_acum: unknown key, did you mean \"grad_accum\"?",
        "line 11",
    ]);
    mistake(
        &policy("depth_totl = 12\n"),
        &["s.toml: policy[0].depth_totl: unknown key, did you mean \"depth_total\"?"],
    );
}

#[test]
fn a_negative_depth_is_refused() {
    mistake(
        &policy("depth_total = -1\n"),
        &["s.toml: policy[0].depth_total: ", "-1", "at least 1"],
    );
}

#[test]
fn a_depth_of_zero_is_refused() {
    mistake(
        &policy("depth_total = 0\n"),
        &["s.toml: policy[0].depth_total: 0 slots let nothing pass; set at least 1"],
    );
}

#[test]
fn overlapping_bucket_edges_are_refused() {
    mistake(
        &policy("").replace("[128, 256, 384, 512]", "[128, 256, 256, 512]"),
        &["s.toml: workload.buckets.edges[2]: 256 must be above 256"],
    );
}

#[test]
fn empty_bucket_edges_are_refused() {
    mistake(
        &policy("").replace("[128, 256, 384, 512]", "[]"),
        &["s.toml: workload.buckets.edges: 0 edges must be 1 to 255"],
    );
}

#[test]
fn a_cap_smaller_than_one_microbatch_is_refused_with_the_size_it_needs() {
    mistake(
        &policy("bytes_total = 1000\n"),
        &[
            "s.toml: policy[0].bytes_total: 1000 bytes",
            "smaller than the largest microbatch",
            "raise it to at least that",
        ],
    );
}

#[test]
fn a_total_depth_below_what_round_robin_visits_is_warned_of() {
    let bucketed = COMPOSED
        .replace("composed", "bucketed")
        .replace("mix_step_min = 3", "depth_total = 3");
    Desk::with(&bucketed)
        .run("check s.toml")
        .exits(0)
        .says(&["depth_total", "3 slots in all are fewer than the 4 buckets"]);
}

#[test]
fn a_total_depth_below_one_dealt_window_is_refused() {
    let pool = COMPOSED
        .replace("composed", "pool")
        .replace("mix_step_min = 3", "depth_total = 3");
    mistake(
        &format!("{SCENARIO}{pool}"),
        &[
            "depth_total: 3 slots never hold a whole window of 4",
            "at least 4",
        ],
    );
}

#[test]
fn a_range_in_a_policy_file_is_refused() {
    let desk = Desk::with(COMPOSED);
    desk.run("sim s.toml --no-figures --out first").exits(0);
    let best = desk.read("first/best.toml");
    desk.write(
        "p.toml",
        best.replace("depth_total = 12", "depth_total = [8, 12]"),
    );
    refused(&desk, "p.toml", 2)
        .complains(&["p.toml: policy.depth_total: [8, 12] is a range; a policy is concrete"]);
    desk.run("check p.toml").exits(2);
}

#[test]
fn a_missing_file_is_named() {
    refused(&Desk::new(), "gone.toml", 2).complains(&["gone.toml: no such file; check the path"]);
}

#[test]
fn a_file_that_is_not_utf_8_is_refused_with_the_place() {
    let desk = Desk::new();
    desk.write("s.toml", b"name = \"ok\"\nquestion = \"\xff\"\n");
    refused(&desk, "s.toml", 2).complains(&["s.toml: is not UTF-8 (line 2, column 13)"]);
}

#[test]
fn a_sequence_longer_than_the_last_edge_is_refused_with_the_way_out() {
    mistake(
        &policy("").replace("[128, 256, 384, 512]", "[128, 256, 384]"),
        &[
            "s.toml: workload: ",
            "are longer than the last bucket edge of 384 tokens",
            "over_long = \"skip\"",
        ],
    );
}

#[test]
fn a_split_of_more_workers_than_gpus_is_refused() {
    mistake(
        &policy("").replace("targets = 2", "targets = 3"),
        &[
            "s.toml: policy[0].targets: 3 target + 2 drafter workers need 5 GPUs, hardware.gpus is 4; lower the split",
        ],
    );
}

#[test]
fn an_unknown_preset_is_refused_with_the_list() {
    mistake(
        &policy("").replace("\"composed\"", "\"composd\""),
        &[
            "s.toml: policy[0].preset: \"composd\" is no preset",
            "composed",
            "staged-fifo",
        ],
    );
}

#[test]
fn a_flag_that_sets_nothing_is_refused() {
    let desk = Desk::with(COMPOSED);
    refused(&desk, "s.toml --set training.grad_accum", 2)
        .complains(&["--set training.grad_accum: no value; write it as in training.grad_accum=4"]);
    refused(&desk, "s.toml --set training.grad_acum=4", 2)
        .complains(&["--set training.grad_acum=4", "did you mean \"grad_accum\"?"]);
    refused(&desk, "s.toml --set training.grad_accum=many", 2)
        .complains(&["--set training.grad_accum=many: training.grad_accum: \"many\""]);
}

#[test]
fn an_explosion_of_ranges_is_counted_and_never_made() {
    let desk = Desk::with(&COMPOSED.replace(
        "mix_step_min = 3",
        "depth_total = { from = 1, to = 1000000000, step = 1 }\nmix_step_min = [1, 2, 3]",
    ));
    refused(&desk, "s.toml", 2).complains(&["3000000000 points, at most 100000 are allowed"]);
    let desk = Desk::with(&COMPOSED.replace("mix_step_min = 3", "mix_step_min = [1, 2, 3]"));
    refused(&desk, "s.toml --max-points 2", 2)
        .complains(&["3 points, at most 2 are allowed", "--max-points"]);
}

#[test]
fn an_output_path_that_is_a_file_is_refused_and_kept() {
    let desk = Desk::with(COMPOSED);
    desk.write("results", "mine");
    desk.run("sim s.toml --out results")
        .exits(4)
        .complains(&["results: is not a directory; give --out another one"]);
    assert_eq!(desk.read("results"), "mine");
}
