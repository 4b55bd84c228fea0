//! `dflash compare`.

use super::desk::{COMPOSED, Desk};

/// Traces of one plan: as predicted, with targets a tenth slower, and of another seed.
fn traced() -> Desk {
    let desk = Desk::with(COMPOSED);
    for (out, set) in [
        ("a", "seed=3"),
        ("slower", "costs.target.per_token_us=110.0"),
        ("other", "seed=4"),
    ] {
        desk.run(&format!(
            "sim s.toml --trace --no-figures --out {out} --set {set}"
        ))
        .exits(0);
    }
    desk
}

#[test]
fn equal_runs_agree_in_every_line() {
    let ran = traced()
        .run("compare a/trace.txt a/trace.txt")
        .exits(0)
        .says(&[
            "target forward",
            "drafter train",
            "optimizer step",
            "throughput",
            "decisions: all ",
            "within tolerance: ",
        ]);
    assert!(ran.out.lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn a_slower_target_is_out_of_tolerance_and_shows_in_its_stage() {
    let desk = traced();
    let ran = desk
        .run("compare a/trace.txt slower/trace.txt --out cmp")
        .exits(1)
        .complains(&["out of tolerance: simulated ", "3 % are allowed"])
        .says(&["decisions: the first ", "-9.09 %", "results in cmp"]);
    let trains = ran.out.lines().filter(|l| l.starts_with("drafter train"));
    assert!(trains.clone().count() == 4);
    for line in trains {
        assert!(line.ends_with("+0.00 %"), "{line}");
    }
    let csv = desk.read("cmp/comparison.csv");
    assert!(csv.starts_with("quantity,bucket,unit,"), "{csv}");
    assert!(csv.contains("target forward,<=512,ms,"), "{csv}");
    assert!(desk.read("cmp/prediction.svg").contains("drafter train"));
    desk.run("compare a/trace.txt slower/trace.txt --tolerance 15")
        .exits(0);
}

#[test]
fn runs_of_different_plans_are_refused() {
    traced()
        .run("compare a/trace.txt other/trace.txt")
        .exits(2)
        .complains(&["their plans differ"]);
}

#[test]
fn an_edited_trace_is_refused_on_either_side() {
    let desk = traced();
    let trace = desk.read("a/trace.txt");
    desk.write("e.txt", trace.replacen("Forward t0 m0", "Forward t0 m1", 1));
    for line in ["compare e.txt a/trace.txt", "compare a/trace.txt e.txt"] {
        desk.run(line)
            .exits(3)
            .complains(&["e.txt: the trace was edited"]);
    }
}

#[test]
fn a_tolerance_that_is_no_share_is_refused() {
    let desk = traced();
    for tolerance in ["-1", "nan"] {
        desk.run(&format!(
            "compare a/trace.txt a/trace.txt --tolerance={tolerance}"
        ))
        .exits(2)
        .complains(&["--tolerance", "at least 0"]);
    }
}
