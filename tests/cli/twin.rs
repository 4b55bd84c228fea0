//! `dflash calibrate` and `dflash twin`, on the backend that only waits.

use super::desk::Desk;

/// Few, short microbatches on one device that both workers share.
const SHARED: &str = r#"
[[policy]]
preset = "staged-fifo"
split = "1+1"
depth_per_drafter = 2
"#;

const SETS: &str = "--backend emulated --set workload.samples=60 --set hardware.gpus=1 --set hardware.sharing={} --set costs.spread=0 --repeats 1 --per-bucket 2 --window-ms 1";

#[test]
fn a_calibration_is_laid_over_its_scenario() {
    let desk = Desk::with(SHARED);
    desk.run(&format!("calibrate s.toml --out c {SETS}"))
        .exits(0)
        .says(&[
            "fit of target forward: ",
            "fit of drafter train: ",
            "link host-pageable: ",
            "1 forwards + 1 trainings on one device: ",
            "wrote c/costs.toml (",
        ]);
    let costs = desk.read("c/costs.toml");
    assert!(costs.contains("[[hardware.sharing.rates]]") && costs.contains("table = []"));
    assert!(
        desk.read("c/calibration.csv")
            .starts_with("stage,transport,bucket,")
    );
    desk.run("sim s.toml c/costs.toml --no-figures --out o --set hardware.gpus=1")
        .exits(0);
}

#[test]
fn a_twin_is_predicted_then_run_and_can_be_compared_again() {
    let desk = Desk::with(SHARED);
    desk.run(&format!(
        "twin s.toml --out t --runs 1 --no-calibration --tolerance 1000 {SETS}"
    ))
    .exits(0)
    .says(&["staged-fifo", "each policy ran once", "within tolerance: "]);
    for file in [
        "t/staged-fifo/policy.toml",
        "t/staged-fifo/sim/trace.txt",
        "t/staged-fifo/exec-1/trace.txt",
        "t/stages.csv",
        "t/runs.csv",
        "t/twin.svg",
    ] {
        assert!(desk.path(file).is_file(), "{file}");
    }
    assert_eq!(desk.rows("t/twin.csv").len(), 1);
    desk.run("replay t/staged-fifo/exec-1/trace.txt").exits(0);
    desk.run("twin --out t --tolerance 1000").exits(0);
    desk.run("twin --out t --tolerance 0")
        .exits(1)
        .complains(&["out of tolerance: "]);
}

#[test]
fn a_twin_of_nothing_is_refused() {
    let desk = Desk::with(SHARED);
    desk.run("twin")
        .exits(2)
        .complains(&["--out: name the folder"]);
    desk.run("twin --out .")
        .exits(3)
        .complains(&["holds no policy that was predicted and run"]);
    desk.run("calibrate s.toml --backend cpu")
        .exits(2)
        .complains(&["it has no [exec] section"]);
}
