//! `dflash prepare`, and what reads its stores.

use super::desk::{Desk, Ran};
use super::exec::{checkpoint, record, tiny};

/// Runs the tiny policy on the CPU with these flags.
fn trained(desk: &Desk, out: &str, flags: &str) -> Ran {
    desk.run(&format!(
        "exec --policy sim/best.toml --backend cpu --out {out} {flags}"
    ))
}

#[test]
fn training_from_a_store_gives_the_bytes_that_training_from_text_gives() {
    let desk = tiny();
    desk.run("prepare sim/best.toml --out store")
        .exits(0)
        .says(&["data: 3 files, ", "store store is written: ", " samples, "]);
    trained(&desk, "text-run", "").exits(0);
    trained(&desk, "store-run", "--set exec.data.store=store").exits(0);
    // A store may also be the one input.
    let paths = format!("exec.data.paths=[\"{}\"]", desk.path("store").display());
    desk.run_args(&[
        "exec",
        "--policy",
        "sim/best.toml",
        "--backend",
        "cpu",
        "--out",
        "path-run",
        "--set",
        &paths,
    ])
    .exits(0);
    let weights = |run| checkpoint(&desk, run, "model.safetensors");
    assert!(
        weights("text-run") == weights("store-run"),
        "other weights from the store"
    );
    assert!(
        weights("text-run") == weights("path-run"),
        "other weights from the path"
    );
}

#[test]
fn a_store_is_made_once_and_made_anew_when_something_changed() {
    let desk = tiny();
    let prepare = "prepare s.toml --set exec.data.store=store";
    desk.run(prepare).exits(0).says(&["store is written"]);
    let before = desk.files("store");
    desk.run(prepare).exits(0).says(&["store is up to date"]);
    assert_eq!(desk.files("store"), before);
    desk.run(&format!("{prepare} --verify"))
        .exits(0)
        .says(&["store is whole"]);
    desk.run(&format!("{prepare} --force"))
        .exits(0)
        .says(&["store is written"]);
    desk.write("text/d.jsonl", record("one more text"));
    trained(&desk, "run", "--set exec.data.store=store")
        .exits(2)
        .complains(&[
            "store: the source ",
            "text/d.jsonl is new: run `dflash prepare` again",
        ]);
    desk.run(prepare)
        .exits(0)
        .says(&["store is written"])
        .complains(&["making it anew: ", "text/d.jsonl is new"]);
    trained(
        &desk,
        "run",
        "--set exec.data.store=store --set exec.data.min_loss_tokens=3",
    )
    .exits(2)
    .complains(&["made with exec.data.min_loss_tokens = 2, now it is 3"]);
}

#[test]
fn a_damaged_store_is_refused_and_named() {
    let desk = tiny();
    let prepare = "prepare s.toml --out store";
    desk.run(prepare).exits(0);
    let mut tokens = std::fs::read(desk.path("store/tokens.bin")).unwrap();
    *tokens.last_mut().unwrap() ^= 1;
    desk.write("store/tokens.bin", &tokens);
    desk.run(&format!("{prepare} --verify"))
        .exits(3)
        .complains(&["store/tokens.bin: crc32 ", "run `dflash prepare --force`"]);
    desk.write("store/tokens.bin", &tokens[..100]);
    trained(&desk, "run", "--set exec.data.store=store")
        .exits(3)
        .complains(&["store/tokens.bin: 100 bytes, "]);
    desk.run(&format!("{prepare} --force")).exits(0);
    desk.run(&format!("{prepare} --verify")).exits(0);
}

#[test]
fn prepare_needs_a_place_and_keeps_its_hands_off_other_folders() {
    let desk = tiny();
    desk.run("prepare s.toml")
        .exits(2)
        .complains(&["exec.data.store: is not set", "--out"]);
    desk.run("prepare s.toml --out text")
        .exits(2)
        .complains(&["text: holds other things than a token store: name another folder"]);
    assert!(desk.path("text/a.txt").exists());
    desk.run("prepare s.toml --out store").exits(0);
    desk.run_args(&[
        "prepare",
        "s.toml",
        "--out",
        "other",
        "--set",
        "exec.data.paths=[\"store\"]",
    ])
    .exits(2)
    .complains(&["store: a token store cannot be mixed with other inputs"]);
    trained(&desk, "run", "--set exec.data.store=gone")
        .exits(2)
        .complains(&["gone: no token store here: run `dflash prepare` first"]);
}

/// A desk whose data is one conversation, and a template in `t.jinja`.
fn chat(template: &str) -> Desk {
    let desk = tiny();
    let talk = serde_json::json!({"messages": [
        {"role": "user", "content": "what?"},
        {"role": "assistant", "content": "this and that"},
    ]});
    desk.write("talk.jsonl", format!("{talk}\n"));
    desk.write("t.jinja", template);
    desk
}

fn prepared(desk: &Desk, flags: &[&str]) -> Ran {
    let mut args = vec![
        "prepare",
        "s.toml",
        "--out",
        "store",
        "--set",
        "exec.data.paths=[\"talk.jsonl\"]",
    ];
    for flag in flags {
        args.extend(["--set", flag]);
    }
    desk.run_args(&args)
}

const PLAIN: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<end>{% endfor %}\
                     {% if add_generation_prompt %}[assistant]{% endif %}";

#[test]
fn a_template_from_a_file_or_inline_decides_what_bears_loss() {
    let desk = chat(PLAIN);
    // [user]what?<end>[assistant]this and that<end>
    let file = "exec.data.chat_template=t.jinja";
    prepared(&desk, &[file])
        .exits(0)
        .says(&["1 samples, 45 tokens, 18 with loss"]);
    prepared(&desk, &[file, "exec.data.loss_on=all"])
        .exits(0)
        .says(&["45 tokens, 45 with loss"]);
    let inline = "exec.data.chat_template=\"{{ messages[1].content }} {{ tone }}\"";
    let tone = "exec.data.template_values={ tone = \"!\" }";
    prepared(&desk, &[inline, tone, "exec.data.loss_on=all"])
        .exits(0)
        .says(&["15 tokens, 15 with loss"]);
}

#[test]
fn bad_templates_are_refused_with_their_place() {
    let desk = chat("{% for m in messages %}\n{{ m.content }");
    let file = "exec.data.chat_template=t.jinja";
    prepared(&desk, &[file]).exits(2).complains(&[
        "t.jinja: cannot be used as a chat template: the chat template fails in its line 2: syntax error: ",
    ]);
    desk.write("t.jinja", "{{ raise_exception('tell me more') }}");
    prepared(&desk, &[file]).exits(3).complains(&[
        "talk.jsonl:1: the chat template refuses the conversation: \"tell me more\"; fix the line",
    ]);
    prepared(&desk, &["exec.data.chat_template=gone.jinja"])
        .exits(2)
        .complains(&[
            "exec.data.chat_template: ",
            "gone.jinja: no such file or folder",
        ]);
    prepared(&desk, &["exec.data.loss_on=user"])
        .exits(2)
        .complains(&[
            "exec.data.loss_on: loss_on = \"user\": choose one of assistant last-assistant all",
        ]);
    assert!(!desk.path("store").exists());
}

#[test]
fn the_seed_of_the_samples_decides_which_are_taken() {
    let desk = tiny();
    let lengths = |flags: &str| {
        let args =
            format!("sim s.toml --no-figures --out sim --set exec.data.samples_max=40 {flags}");
        desk.run(&args).exits(0);
        let best: toml::Table = desk.read("sim/best.toml").parse().unwrap();
        best["provenance"]["lengths_hash"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let first = lengths("");
    assert_eq!(lengths("--set exec.data.samples_seed=0"), first);
    assert_ne!(lengths("--set exec.data.samples_seed=1"), first);
}
