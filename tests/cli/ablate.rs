//! `dflash ablate`.

use super::desk::Desk;
use super::exec::{record, sequence, tiny};

/// A tiny desk with prompts in `p.jsonl` and samples to measure the loss on in `held.jsonl`.
fn ready() -> Desk {
    let desk = tiny();
    let prompt =
        |i: usize| serde_json::json!({"id": format!("p{i}"), "text": sequence(12 + 9 * i)});
    let prompts: String = (0..3).map(|i| prompt(i).to_string() + "\n").collect();
    desk.write("p.jsonl", prompts);
    let lengths = [14, 22, 30, 44, 58];
    let held: String = lengths.into_iter().map(|n| record(&sequence(n))).collect();
    desk.write("held.jsonl", held);
    desk
}

const CALL: &str = "ablate --policy sim/best.toml --vary exec.optimizer.learning_rate=0.02,0.0000001 --seeds 1,2 \
    --prompts p.jsonl --max-new-tokens 8 --loss-on held.jsonl --backend cpu --out a";

#[test]
fn the_better_value_of_a_key_is_found_and_finished_runs_are_not_made_again() {
    let desk = ready();
    desk.run(CALL)
        .exits(0)
        .says(&["report a/report.html"])
        .complains(&[
            "run 1 of 4: 0.02, seed 1",
            "run 4 of 4: 0.0000001, seed 2",
            "evaluating 4 drafters",
        ]);
    let rows = desk.rows("a/ablation.csv");
    let losses = |value: &str, group: &str| -> Vec<f64> {
        let mine = rows.iter().filter(|row| {
            row["value"] == value && row["group"] == group && row["quantity"] == "held_out_loss"
        });
        mine.map(|row| row["result"].parse().unwrap()).collect()
    };
    let (learns, stands) = (losses("0.02", "all"), losses("0.0000001", "all"));
    assert_eq!([learns.len(), stands.len()], [2, 2]);
    // Equal seeds begin with equal weights: each pair is told apart by what was learned.
    assert!(
        learns.iter().zip(&stands).all(|(a, b)| a + 0.1 < *b),
        "{learns:?} {stands:?}"
    );
    let groups = rows.iter().filter(|row| row["quantity"] == "held_out_loss");
    let groups: std::collections::BTreeSet<_> = groups.map(|row| &row["group"]).collect();
    assert!(
        groups.len() > 2,
        "the loss stands by length too: {groups:?}"
    );
    for value in ["0.02", "0.0000001"] {
        for seed in [1, 2] {
            let run = format!("a/runs/{value}/seed-{seed}/metrics.jsonl");
            assert!(desk.read(&run).lines().count() > 1);
        }
    }
    let report = desk.read("a/report.md");
    assert!(report.contains(&format!("dflash {}", CALL.replace(" --out a", ""))));
    assert!(desk.read("a/ablation.svg").contains("<svg"));

    let lost = desk.path("a/runs/0.02/seed-2");
    std::fs::remove_file(lost.join("arguments.txt")).unwrap();
    let again = desk.run(CALL).exits(0).complains(&[
        "run 1 of 4: 0.02, seed 1, made before",
        "run 4 of 4: 0.0000001, seed 2, made before",
        "evaluating 4 drafters",
    ]);
    assert!(
        !again.err.contains("0.02, seed 2, made before"),
        "{again:?}"
    );
    assert_eq!(
        desk.rows("a/ablation.csv"),
        rows,
        "a run repeats to the bit"
    );
}

#[test]
fn what_cannot_be_compared_is_refused_before_anything_is_trained() {
    let desk = ready();
    for (change, to, complaint) in [
        (
            "--seeds 1,2",
            "--seeds 1",
            "gives no spread to judge a difference by",
        ),
        ("p.jsonl", "gone.jsonl", "gone.jsonl: no such file"),
        ("=0.02,0.0000001", "=0.02", "--vary"),
    ] {
        desk.run(&CALL.replace(change, to))
            .exits(2)
            .complains(&[complaint]);
        assert!(!desk.path("a/runs").exists());
    }
}

#[test]
fn a_run_that_fails_is_told_and_those_before_it_stay() {
    let desk = ready();
    let call = CALL.replace("0.02,0.0000001", "0.02,-1");
    let failed = desk.run(&call);
    assert_ne!(failed.code, 0);
    let failed = failed.complains(&["exec.optimizer.learning_rate"]);
    assert!(!failed.out.contains("report"), "{failed:?}");
    assert!(desk.path("a/runs/0.02/seed-1/arguments.txt").exists());
}
