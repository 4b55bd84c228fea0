//! `dflash check`.

use super::desk::{COMPOSED, Desk};

#[test]
fn one_policy_fills_one_screen() {
    let ran = Desk::with(COMPOSED).run("check s.toml").exits(0).says(&[
        "small: policy \"composed\", 2 targets + 2 drafters on 4 GPUs, seed 3",
        "600 samples in ",
        "of 4 buckets in a full step",
        "bound ",
        "each drafter GPU",
        "valid, and fits into memory at worst",
    ]);
    assert_eq!(ran.err, "");
    assert!(ran.out.lines().count() <= 24, "{}", ran.out);
    assert!(
        ran.out.lines().all(|l| l.chars().count() <= 110),
        "{}",
        ran.out
    );
}

#[test]
fn a_check_writes_nothing() {
    let desk = Desk::with(COMPOSED);
    let before = desk.files("");
    desk.run("check s.toml").exits(0);
    assert_eq!(desk.files(""), before);
}

#[test]
fn the_numbers_checked_are_those_simulated() {
    let desk = Desk::with(COMPOSED);
    desk.run("sim s.toml --no-figures --out out").exits(0);
    let row = &desk.rows("out/results.csv")[0];
    let bound: f64 = row["bound_tok_s"].parse().unwrap();
    let tv: f64 = row["mix_tv_max"].parse().unwrap();
    desk.run("check out/best.toml").exits(0).says(&[
        &format!("bound    {bound:.0} tok/s"),
        &format!("{tv:.3} worst"),
        &format!("at least {} of 4 buckets", row["buckets_per_step_min"]),
        &format!("{} microbatches", row["microbatches"]),
    ]);
}

#[test]
fn a_policy_that_exceeds_memory_at_worst_is_infeasible() {
    let desk = Desk::with(COMPOSED);
    desk.run("check s.toml --set hardware.gpu_memory=700_000_000")
        .exits(1)
        .complains(&["infeasible: policy \"composed\": GPU of t0 to t1 needs "]);
    desk.run("check s.toml --set hardware.host_memory=1")
        .exits(0);
    let staged = COMPOSED.replace("composed", "staged-fifo");
    Desk::with(&staged.replace("mix_step_min = 3", ""))
        .run("check s.toml --set hardware.host_memory=1000000")
        .exits(1)
        .complains(&["infeasible: policy \"staged-fifo\": host needs "]);
}

#[test]
fn all_findings_of_a_policy_are_shown_at_once() {
    Desk::with(&format!(
        "{COMPOSED}depth_total = 0\nprefetch = 1\noverlap = false\n"
    ))
    .run("check s.toml")
    .exits(2)
    .complains(&["policy[0].depth_total: 0 slots", "policy[0].prefetch: 1 "]);
}

#[test]
fn few_slots_are_a_warning() {
    Desk::with(&format!("{COMPOSED}depth_total = 3\n"))
        .run("check s.toml")
        .exits(0)
        .says(&["warning: s.toml: policy[0].depth_total: 3 slots in all cannot keep 2 targets"]);
}

#[test]
fn a_policy_without_caps_is_a_warning() {
    let watermark = COMPOSED.replace("composed", "watermark").replace(
        "mix_step_min = 3",
        "gate_high = \"none\"\ngate_low = \"none\"",
    );
    Desk::with(&watermark)
        .run("check s.toml")
        .exits(0)
        .says(&["no cap bounds hidden states", "no cap on all slots"]);
}

#[test]
fn many_points_take_a_line_a_policy() {
    let ranges = "depth_total = { from = 4, to = 40, step = 1 }\n";
    let ran = Desk::with(&format!(
        "{COMPOSED}{ranges}\n[[policy]]\npreset = \"bucketed\"\n"
    ))
    .run("check s.toml --set hardware.gpus=8")
    .exits(0)
    .says(&["38 points of 2 policies", "4..40"]);
    assert!(ran.out.lines().count() < 8, "{}", ran.out);
}
