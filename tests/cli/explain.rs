//! `dflash explain`.

use super::desk::{COMPOSED, Desk};

/// A desk with the small scenario simulated: a good policy, and one that copies through the host while workers stand still.
fn simulated() -> Desk {
    let desk = Desk::with(&format!(
        "{COMPOSED}\n[[policy]]\npreset = \"staged-fifo\"\ntargets = 2\ndrafters = 2\n"
    ));
    let scenario = desk.read("s.toml").replace("\"2 GB/s\"", "\"10 MB/s\"");
    desk.write("s.toml", scenario);
    desk.run("sim s.toml --set search.mix_step_min=3 --no-figures --out out")
        .exits(0);
    desk
}

#[test]
fn the_first_cause_is_named_with_the_key_that_decides() {
    let desk = simulated();
    let ran = desk
        .run("explain out/best.toml out/policies/staged-fifo.toml --out why")
        .exits(0)
        .says(&[
            "A is composed (out/best.toml), B is staged-fifo",
            "A is faster: ",
            "First cause: the ",
            "stand still while hidden states are copied",
            "s longer for each million tokens: ",
            "What decides, all else equal: with B's overlap, placement and transport",
            "results in why",
        ]);
    for line in ran.out.lines().filter(|line| !line.starts_with("results")) {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let page = desk.read("why/explanation.html");
    assert!(page.contains("dflash explain: composed and staged-fifo"));
    assert!(page.contains("<svg"));
}

#[test]
fn the_order_of_the_two_does_not_matter() {
    let desk = simulated();
    desk.run("explain out/policies/staged-fifo.toml out/best.toml")
        .exits(0)
        .says(&[
            "B is faster: ",
            "% less.",
            "First cause: the ",
            "What decides, all else equal: with A's ",
        ]);
}

#[test]
fn differences_of_parts_add_up_to_the_difference_of_the_whole() {
    let desk = simulated();
    desk.run("explain out/best.toml out/policies/staged-fifo.toml --out why")
        .exits(0);
    let rows = desk.rows("why/explanation.csv");
    let sum = |stage: &str, column: &str| {
        let own = rows.iter().filter(|row| row["stage"] == stage);
        own.map(|row| row[column].parse::<f64>().unwrap())
            .sum::<f64>()
    };
    for column in ["a_s_per_mtok", "b_s_per_mtok", "difference_s_per_mtok"] {
        let [targets, drafters] = ["targets", "drafters"].map(|stage| sum(stage, column));
        assert!(
            (targets - drafters).abs() < 1e-4,
            "{column}: {targets} {drafters}"
        );
        assert!(targets > 0.0, "{column}");
    }
}

#[test]
fn a_policy_against_itself_is_a_tie_without_a_cause() {
    let desk = simulated();
    let ran = desk
        .run("explain out/best.toml out/best.toml")
        .exits(0)
        .says(&["Neither is faster", "a tie"]);
    assert!(!ran.out.contains("First cause"), "{ran:#?}");
}

#[test]
fn only_one_point_over_the_same_work_can_be_explained() {
    let desk = simulated();
    desk.run("explain s.toml out/best.toml")
        .exits(2)
        .complains(&["s.toml: holds 2 points", "name a policy file"]);
    let other = desk.read("out/best.toml").replace("seed = 3", "seed = 4");
    desk.write("other.toml", other);
    desk.run("explain out/best.toml other.toml")
        .exits(2)
        .complains(&["out/best.toml and other.toml: seed differs"]);
    desk.run("explain out/best.toml other.toml --set seed=5")
        .exits(0);
}
