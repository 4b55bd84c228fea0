//! `dflash inspect`.

use super::desk::Desk;
use super::exec::tiny;

/// A desk with a trained drafter below `run/`.
fn trained() -> Desk {
    let desk = tiny();
    desk.run("exec --policy sim/best.toml --backend cpu --out run")
        .exits(0);
    desk
}

#[test]
fn a_drafter_trained_here_loads_and_broken_ones_are_refused_with_the_reason() {
    let desk = trained();
    desk.run("inspect run").exits(0).says(&[
        "every file is as it was written at step ",
        "14 by name and shape (3 + 11 a layer)",
        "vLLM loads it",
        "SGLang loads it",
    ]);
    let step = format!(
        "run/checkpoint/{}",
        desk.read("run/checkpoint/latest").trim()
    );
    let lines = desk
        .run(&format!("inspect {step} --json --engine vllm"))
        .exits(0);
    for line in lines.out.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("a check is JSON");
        assert_ne!(line["severity"], "refused");
    }
    assert!(
        lines
            .out
            .ends_with("{\"engine\":\"vLLM\",\"loads\":true}\n")
    );

    let config = desk.read(&format!("{step}/config.json"));
    let model = std::fs::read(desk.path(&format!("{step}/model.safetensors"))).unwrap();
    let broken = |name: &str, config: &str| {
        desk.write(&format!("{name}/config.json"), config);
        desk.write(&format!("{name}/model.safetensors"), &model);
    };
    broken("gelu", &config.replace("silu", "gelu"));
    desk.run("inspect gelu")
        .exits(1)
        .says(&["refused", "hidden_act", "only silu is supported"])
        .complains(&["gelu: vLLM and SGLang would not load it, for 1 reason above"]);
    broken(
        "wide",
        &config.replace("\"vocab_size\": 2", "\"vocab_size\": 3"),
    );
    desk.write(
        "target/config.json",
        r#"{"hidden_size": 16, "vocab_size": 2, "num_hidden_layers": 3}"#,
    );
    desk.run("inspect wide --target target --engine sglang")
        .exits(1)
        .says(&[
            "vocab_size of the target",
            "the target 2",
            "SGLang would not load it",
        ]);
    desk.write("cut/config.json", &config);
    desk.write("cut/model.safetensors", &model[..model.len() / 2]);
    desk.run("inspect cut")
        .exits(1)
        .says(&["model.safetensors", "is cut short or has bytes too many"]);
}

#[test]
fn what_is_no_drafter_is_told_so() {
    let desk = Desk::new();
    desk.run("inspect gone")
        .exits(2)
        .complains(&["gone: no such folder; name the folder that holds config.json"]);
    desk.write("empty/readme", "");
    desk.run("inspect empty")
        .exits(2)
        .complains(&["empty: holds neither config.json nor checkpoints"]);
    desk.run("inspect empty --target empty")
        .exits(3)
        .complains(&[
            "empty/config.json: cannot be read",
            "name the target's folder",
        ]);
}
