//! `dflash trace`, and `trace.json.gz` of `dflash sim`.

use super::desk::{COMPOSED, Desk};

#[test]
fn a_recorded_simulation_gives_the_file_that_it_wrote_itself() {
    let desk = Desk::with(COMPOSED);
    desk.run("sim s.toml --trace --no-figures --out out")
        .exits(0);
    desk.run("trace out --out again.json.gz").exits(0).says(&[
        "again.json.gz: ",
        " records, ",
        " steps, ",
    ]);
    let [written, again] =
        ["out/trace.json.gz", "again.json.gz"].map(|name| std::fs::read(desk.path(name)).unwrap());
    assert!(written == again);
    assert_eq!(written[..2], [0x1f, 0x8b], "gzip");
}

#[test]
fn an_executed_run_gives_one_too() {
    let desk = Desk::with(COMPOSED);
    desk.run("sim s.toml --no-figures --out a").exits(0);
    desk.run(
        "exec --policy a/best.toml --backend emulated --speedup 200 --byte-scale 1e-6 --out run",
    )
    .exits(0);
    desk.run("trace run/trace.txt")
        .exits(0)
        .says(&["trace.json.gz"]);
    assert!(desk.path("run/trace.json.gz").is_file());
}

#[test]
fn what_is_no_whole_trace_is_refused() {
    let desk = Desk::with(COMPOSED);
    desk.run("trace s.toml").exits(3).complains(&["s.toml"]);
    desk.run("trace missing")
        .exits(3)
        .complains(&["missing: cannot be read"]);
    desk.run("sim s.toml --trace --no-figures --out out")
        .exits(0);
    let trace = desk.read("out/trace.txt");
    desk.write("cut.txt", &trace[..trace.len() / 2]);
    desk.run("trace cut.txt").exits(3);
    assert!(!desk.path("trace.json.gz").exists());
}
