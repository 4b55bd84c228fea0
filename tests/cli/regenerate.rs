//! `dflash regenerate`.

use super::desk::Desk;
use super::exec::tiny;
use serde_json::Value;

/// A tiny desk with prompts in `p.jsonl`.
fn asked() -> Desk {
    let desk = tiny();
    let prompts = ["what", "is", "this", "the drafter", "what"];
    let lines = prompts.map(|prompt| format!("{}\n", serde_json::json!({ "prompt": prompt })));
    desk.write("p.jsonl", lines.concat());
    desk
}

fn rows(desk: &Desk, file: &str) -> Vec<Value> {
    let text = desk.read(file);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

const LINE: &str = "regenerate --policy sim/best.toml --prompts p.jsonl --max-new-tokens 12";

#[test]
fn answers_become_conversations_that_exec_trains_on() {
    let desk = asked();
    desk.run(&format!("{LINE} --out a.jsonl")).exits(0).says(&[
        "Answered 4 prompts with ",
        "1 prompts were repeated and are left out",
        "exec.data.paths = [\"a.jsonl\"] trains on them",
    ]);
    let found = rows(&desk, "a.jsonl");
    assert!(!found.is_empty());
    for row in &found {
        assert_eq!(row["messages"][0]["role"], "user");
        assert_eq!(row["messages"][1]["role"], "assistant");
        assert!(row["tokens"].as_u64().unwrap() <= 12);
    }
    desk.run("exec --policy sim/best.toml --backend cpu --out run --set exec.data.paths=[\"a.jsonl\",\"text\"]")
        .exits(0);
}

#[test]
fn what_is_answered_is_not_done_again_and_a_cut_line_is_repaired() {
    let desk = asked();
    desk.run(&format!("{LINE} --out a.jsonl")).exits(0);
    let whole = desk.read("a.jsonl");
    let kept = whole.lines().count() - 1;
    desk.write("a.jsonl", &whole[..whole.len() - 5]);
    desk.run(&format!("{LINE} --out a.jsonl"))
        .exits(0)
        .says(&[&format!("{kept} were answered before")])
        .complains(&["a.jsonl: its last line was cut after "]);
    assert_eq!(desk.read("a.jsonl"), whole);
    desk.run(&format!("{LINE} --temperature 1 --out a.jsonl"))
        .exits(2)
        .complains(&[
            "a.jsonl:1: was made with target ",
            "give the same flags, or --out another file",
        ]);
    assert_eq!(desk.read("a.jsonl"), whole);
}

#[test]
fn seeds_decide_and_batches_do_not() {
    let desk = asked();
    for (out, flags) in [
        ("a", "--seed 1 --batch 1"),
        ("b", "--seed 1 --batch 3"),
        ("c", "--seed 2"),
    ] {
        desk.run(&format!(
            "{LINE} --temperature 1 {flags} --with-tokens --out {out}.jsonl"
        ))
        .exits(0);
    }
    let tokens = |out: &str| {
        let mut found: Vec<_> = rows(&desk, &format!("{out}.jsonl"))
            .into_iter()
            .map(|row| (row["id"].to_string(), row["input_ids"].to_string()))
            .collect();
        found.sort();
        found
    };
    assert_eq!(tokens("a"), tokens("b"));
    assert_ne!(tokens("a"), tokens("c"));
}

#[test]
fn a_target_can_write_its_own_prompts() {
    let desk = asked();
    // A random target says little that is text; what it writes is counted, whatever it is.
    desk.run("regenerate --policy sim/best.toml --self-prompt 2 --max-new-tokens 8 --out s.jsonl")
        .exits(0)
        .says(&["The target wrote ", " user turn"]);
}

#[test]
fn mistakes_are_named_with_the_way_out() {
    let desk = asked();
    let refused = |args: &str, code: i32, parts: &[&str]| {
        desk.run(&format!("regenerate --policy sim/best.toml {args}"))
            .exits(code)
            .complains(parts);
        assert!(!desk.path("a.jsonl").exists(), "{args}");
    };
    refused(
        "--prompts gone.jsonl --out a.jsonl",
        2,
        &["gone.jsonl: cannot be read: "],
    );
    refused(
        "--prompts p.jsonl --temperature -1 --out a.jsonl",
        2,
        &["--temperature -1: must be finite and at least 0"],
    );
    refused(
        "--prompts p.jsonl --batch 0 --out a.jsonl",
        2,
        &["--batch 0: must be at least 1"],
    );
    desk.write("t.jsonl", "{\"text\": \"bare text\"}\n");
    refused(
        "--prompts t.jsonl --out a.jsonl",
        3,
        &[
            "t.jsonl: prompt ",
            "is bare text or tokens, which have no turn to answer",
        ],
    );
    refused("--out a.jsonl", 2, &["--prompts <FILE>"]);
    desk.write("mine.jsonl", "{\"text\": \"mine\"}\n");
    desk.run("regenerate --policy sim/best.toml --prompts p.jsonl --out mine.jsonl")
        .exits(3)
        .complains(&[
            "mine.jsonl:1: is no answer of `dflash regenerate`",
            "give --out another file",
        ]);
    assert_eq!(desk.read("mine.jsonl"), "{\"text\": \"mine\"}\n");
}
