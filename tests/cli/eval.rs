//! `dflash eval`.

use super::desk::Desk;
use super::exec::{record, sequence, tiny};
use serde_json::Value;
use std::fmt::Write as _;

/// A tiny desk with a trained drafter in `run/` and prompts in `p.jsonl`.
fn trained() -> Desk {
    let desk = tiny();
    desk.run("exec --policy sim/best.toml --backend cpu --out run")
        .exits(0);
    let mut prompts = String::new();
    for i in 0..6 {
        let text = sequence(12 + 5 * i);
        writeln!(
            prompts,
            "{}",
            serde_json::json!({"id": format!("p{i}"), "text": text})
        )
        .unwrap();
    }
    desk.write("p.jsonl", prompts);
    desk
}

fn numbers(desk: &Desk, out: &str) -> Value {
    serde_json::from_str(&desk.read(&format!("{out}/eval.json"))).unwrap()
}

#[test]
fn a_drafter_is_measured_beside_its_baselines_and_answers_stay_the_targets_own() {
    let desk = trained();
    desk.write(
        "held.jsonl",
        record(&sequence(30)).repeat(3) + &record(&sequence(60)),
    );
    desk.run("eval --policy sim/best.toml --checkpoint run --prompts p.jsonl --max-new-tokens 24 --edges 32,40 --loss-on held.jsonl --verify all --out e")
        .exits(0)
        .says(&[
            "Acceptance length: ",
            " untrained, ",
            " from n-grams and 1 for the target alone",
            "all 6 answers (144 tokens) are the target's own, token by token",
            "By length of prompt and answer: ",
            "Loss on held-out samples: ",
            "results in e",
        ])
        .complains(&["6 prompts of p.jsonl, answers of at most 24 tokens, 3 drafts a round"]);
    let found = numbers(&desk, "e");
    let drafters = found["drafters"].as_array().unwrap();
    let kinds: Vec<_> = drafters
        .iter()
        .map(|d| d["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["trained", "untrained", "n-gram"]);
    for drafter in drafters {
        assert_eq!(drafter["verified_by"], "target");
        assert_eq!(drafter["identical_answers"], 6);
        let gained = drafter["tokens_gained"].as_u64().unwrap();
        let rounds = drafter["rounds"].as_u64().unwrap();
        assert_eq!(
            gained - rounds,
            drafter["drafts_accepted"].as_u64().unwrap()
        );
        assert_eq!(drafter["slots"].as_array().unwrap().len(), 3);
    }
    assert_eq!(found["prompts"]["answer_tokens"], 144);
    assert_eq!(found["acceptance"][0]["group"], "all");
    assert_eq!(found["loss"][0]["group"], "all");
    assert_eq!(found["loss"][1]["group"], "≤ 32");
    let rows = desk.rows("e/prompts.csv");
    assert_eq!(rows.len(), 18);
    assert!(rows.iter().all(|row| row["identical"] == "true"));
    assert!(desk.read("e/acceptance.svg").contains("<svg"));
    assert!(
        desk.read("e/report.html")
            .contains("Rounds accepted up to each slot")
    );
}

#[test]
fn recorded_answers_give_the_counts_of_real_decoding() {
    let desk = trained();
    for verify in ["all", "none"] {
        desk.run(&format!(
            "eval --policy sim/best.toml --checkpoint run/checkpoint --prompts p.jsonl --max-new-tokens 20 --verify {verify} --out {verify}"
        ))
        .exits(0);
    }
    let (all, none) = (numbers(&desk, "all"), numbers(&desk, "none"));
    for drafter in 0..3 {
        for key in ["rounds", "slots", "drafts_offered", "drafts_accepted"] {
            assert_eq!(
                all["drafters"][drafter][key], none["drafters"][drafter][key],
                "{key}"
            );
        }
    }
    assert_eq!(none["drafters"][0]["identical_answers"], Value::Null);
}

#[test]
fn several_checkpoints_are_drawn_over_training() {
    let desk = trained();
    let latest = desk.read("run/checkpoint/latest");
    let newest = format!("run/checkpoint/{}", latest.trim());
    for file in ["config.json", "model.safetensors"] {
        let bytes = std::fs::read(desk.path(&format!("{newest}/{file}"))).unwrap();
        desk.write(&format!("many/step-1/{file}"), &bytes);
        desk.write(&format!("many/step-20/{file}"), &bytes);
    }
    desk.run("eval --policy sim/best.toml --checkpoint many --prompts p.jsonl --max-new-tokens 12 --out e")
        .exits(0)
        .says(&["with the drafter of step 20", "Over training, by step: "]);
    let found = numbers(&desk, "e");
    assert_eq!(found["drafters"][0]["step"], 1);
    assert_eq!(found["drafters"][0]["verified_by"], "recorded answers");
    assert_eq!(found["drafters"][1]["verified_by"], "target");
    assert!(
        desk.read("e/acceptance.svg")
            .contains("Acceptance length over training")
    );
    // The section's own drafter is the default.
    desk.run("eval --policy sim/best.toml --set exec.drafter.path=many/step-20 --prompts p.jsonl --max-new-tokens 4 --out f")
        .exits(0)
        .says(&["with the drafter of step 20"]);
}

#[test]
fn samples_that_training_left_out_can_be_prompts() {
    let desk = trained();
    desk.run("eval --policy sim/best.toml --checkpoint run --held-out --set exec.data.samples_max=40 --set exec.data.paths=[\"text/c.jsonl\"] --max-new-tokens 4 --prompts-max 3 --out e")
        .exits(0)
        .complains(&["samples held out of exec.data"]);
    refused(&desk, "--checkpoint run --held-out", 2).complains(&[
        "--held-out: of ",
        "set exec.data.samples_max as in training",
    ]);
}

/// Runs `eval` with the policy of `sim/` and expects it to refuse before it writes.
fn refused(desk: &Desk, args: &str, code: i32) -> super::desk::Ran {
    let ran = desk
        .run(&format!("eval --policy sim/best.toml {args} --out out"))
        .exits(code);
    assert!(!desk.path("out").exists());
    assert_eq!(ran.out, "");
    ran
}

#[test]
fn mistakes_are_named_with_the_way_out() {
    let desk = trained();
    let with = |args: &str| format!("--checkpoint run --prompts p.jsonl {args}");
    refused(&desk, "--prompts p.jsonl", 2).complains(&[
        "no drafter to evaluate; give --checkpoint",
        "exec.drafter.path",
    ]);
    refused(&desk, "--checkpoint gone --prompts p.jsonl", 2)
        .complains(&["--checkpoint: gone: no such folder; check the path"]);
    refused(&desk, "--checkpoint text --prompts p.jsonl", 2)
        .complains(&["--checkpoint: text: holds neither config.json nor step-N folders"]);
    refused(&desk, "--checkpoint run --prompts gone.jsonl", 2)
        .complains(&["gone.jsonl: cannot be read: ", "check the path"]);
    refused(&desk, &with("--max-new-tokens 0"), 2)
        .complains(&["--max-new-tokens 0: must be at least 1"]);
    refused(&desk, &with("--edges 64,32"), 2).complains(&["--edges: 32 must be above 64"]);
    refused(&desk, &with("--prompt-tokens-max 2"), 3)
        .complains(&["p.jsonl: no prompts: 6 lines, 6 of them longer than 2 tokens"]);
    desk.write("bad.jsonl", "{\"prompt\": \"a\"}\n{\"question\": \"b\"}\n");
    refused(&desk, "--checkpoint run --prompts bad.jsonl", 3)
        .complains(&["bad.jsonl:2: has the keys question; a prompt needs messages"]);
    desk.write(
        "wild.jsonl",
        "{\"id\": \"w\", \"input_ids\": [1, 2, 9999, 4, 5, 6]}\n",
    );
    refused(&desk, "--checkpoint run --prompts wild.jsonl", 3)
        .complains(&["prompt w: token 9999 is outside the target's vocabulary of 272"]);
}

#[test]
fn the_drafter_of_another_target_is_refused() {
    let desk = trained();
    refused(
        &desk,
        "--checkpoint run --prompts p.jsonl --set exec.target.hidden_size=32",
        3,
    )
    .complains(&["hidden_size = 16: the target has 32; use the drafter of this target"]);
    refused(
        &desk,
        "--checkpoint run --prompts p.jsonl --set exec.target.layers=5",
        3,
    )
    .complains(&["num_target_layers = 3: the target has 5; use the drafter of this target"]);
}

#[test]
fn a_file_without_models_is_refused() {
    let desk = Desk::with(super::desk::COMPOSED);
    desk.write("p.jsonl", "{\"text\": \"abcdef\"}\n");
    desk.run("eval --policy s.toml --checkpoint . --prompts p.jsonl")
        .exits(2)
        .complains(&["s.toml: has no [exec] section, so it names no target and no tokenizer"]);
}
