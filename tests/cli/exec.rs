//! `dflash exec`.

use super::desk::{COMPOSED, Desk, Ran, SCENARIO};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// Sequences for a drafter that trains in a second: a few files, a few bytes a sequence.
const TINY: &str = r#"
name = "tiny"
seed = 5

[workload]
lengths = "data"
buckets = { edges = [16, 32, 48, 64] }

[training]
grad_accum = 2
token_budget = 128
batch_max = 4

[model]
bytes_per_token = 128
target_weights = "1 MB"
drafter_state = "1 MB"

[hardware]
gpus = 5
gpu_memory = "1 GB"
host_memory = "4 GB"
host_pageable = { bandwidth = "2 GB/s" }
p2p = { bandwidth = "2 GB/s" }

[costs]
target = { per_token_us = 100.0 }
drafter = { per_token_us = 100.0 }
step_ms = 1.0

[search]
replications = 2

[exec.data]
paths = ["text"]
max_len = 64

[exec.target]
hidden_size = 16
layers = 3
attention_heads = 2
key_value_heads = 1
head_dim = 8
intermediate_size = 32
target_layer_ids = [0, 1]
initializer_range = 0.3

[exec.drafter]
layers = 1
attention_heads = 2
key_value_heads = 1
head_dim = 8
intermediate_size = 32
block_size = 4
anchors = 4
initializer_range = 0.05

[exec.optimizer]
learning_rate = 2e-2

[[policy]]
preset = "composed"
targets = 2
drafters = 2
mix_step_min = 2
"#;

/// A sequence of `tokens` bytes that a small drafter learns something of.
pub(super) fn sequence(tokens: usize) -> String {
    "the drafter drafts what the target takes. "
        .chars()
        .cycle()
        .take(tokens)
        .collect()
}

/// A line of JSONL.
pub(super) fn record(text: &str) -> String {
    format!("{}\n", serde_json::json!({ "text": text }))
}

/// A desk with data in `text/` and the tiny scenario, and `sim/best.toml` for it.
pub(crate) fn tiny() -> Desk {
    let desk = Desk::new();
    desk.write("text/a.txt", sequence(40));
    desk.write("text/deep/b.txt", sequence(150));
    let lines = (0..360).map(|i| record(&sequence(8 + i * 29 % 53)));
    desk.write("text/c.jsonl", lines.collect::<String>());
    desk.write("s.toml", TINY);
    desk.run("sim s.toml --trace --no-figures --out sim")
        .exits(0);
    desk
}

/// A desk with `sim/best.toml` for 5 + 3 workers without data or a model, and the simulation's trace.
fn eight() -> Desk {
    let desk = Desk::new();
    let scenario = SCENARIO.replace("gpus = 4", "gpus = 8");
    let policy = COMPOSED
        .replace("targets = 2", "targets = 5")
        .replace("drafters = 2", "drafters = 3");
    desk.write("s.toml", format!("{scenario}{policy}"));
    desk.run("sim s.toml --trace --no-figures --out sim")
        .exits(0);
    desk
}

/// Lines of a run's metrics.jsonl.
pub(crate) fn steps(desk: &Desk, out: &str) -> Vec<serde_json::Value> {
    desk.read(&format!("{out}/metrics.jsonl"))
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of metrics is JSON"))
        .collect()
}

#[test]
fn an_emulated_run_is_recorded_and_replays() {
    let desk = eight();
    desk.run("exec --policy sim/best.toml --backend emulated --out run")
        .exits(0)
        .says(&["measured ", "predicted ", "results in run"])
        .complains(&["small: composed on 5 target + 3 drafter workers (emulated)"]);
    let row = &desk.rows("sim/results.csv")[0];
    assert_eq!(steps(&desk, "run").len().to_string(), row["steps"]);
    for figure in ["timeline.svg", "utilisation.svg", "mixing.svg"] {
        assert!(desk.read(&format!("run/{figure}")).contains("<svg"));
    }
    assert!(desk.read("run/report.html").contains("<svg"));
    desk.run("replay run/trace.txt")
        .exits(0)
        .says(&["replays: ", &format!("{} steps", row["steps"])]);
    desk.run("replay run/trace.txt --policy sim/best.toml")
        .exits(0);
    desk.run("replay run/trace.txt --seed 4")
        .exits(1)
        .complains(&["run/trace.txt: diverges at record ", "recorded: "]);
    let trace = desk.read("run/trace.txt");
    desk.write("e.txt", trace.replacen("Forward t0 m", "Forward t1 m", 1));
    desk.run("replay e.txt")
        .exits(3)
        .complains(&["e.txt: the trace was edited or damaged"]);
}

#[test]
fn a_run_compares_with_its_simulation_stage_by_stage() {
    let desk = eight();
    desk.run("exec --policy sim/best.toml --backend emulated --out run")
        .exits(0);
    // How close they come depends on what else this machine does; how close they must come is no matter here.
    desk.run("compare sim/trace.txt run/trace.txt --tolerance 1000")
        .exits(0)
        .says(&[
            "target forward",
            "drafter train",
            "optimizer step",
            "throughput",
            "decisions: ",
            "within tolerance: ",
        ]);
}

/// Names of the tensors in a safetensors file.
fn tensors(bytes: &[u8]) -> BTreeSet<String> {
    let (size, rest) = bytes.split_at(8);
    let size = u64::from_le_bytes(size.try_into().unwrap()) as usize;
    let header: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&rest[..size]).unwrap();
    let names = header.into_iter().map(|(name, _)| name);
    names.filter(|name| name != "__metadata__").collect()
}

/// What the checkpoint of a run holds in the file `name`.
pub(crate) fn checkpoint(desk: &Desk, out: &str, name: &str) -> Vec<u8> {
    let latest = desk.read(&format!("{out}/checkpoint/latest"));
    let path = desk.path(&format!("{out}/checkpoint/{}/{name}", latest.trim()));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn training_on_the_cpu_learns_and_leaves_a_drafter_that_serving_engines_load() {
    let desk = tiny();
    desk.run("exec --policy sim/best.toml --backend cpu --out run --set workload.epochs=3")
        .exits(0)
        .says(&["loss ", "checkpoint run/checkpoint/step-", "measured "]);
    let expected = [
        "fc.weight",
        "hidden_norm.weight",
        "norm.weight",
        "layers.0.input_layernorm.weight",
        "layers.0.self_attn.q_proj.weight",
        "layers.0.self_attn.k_proj.weight",
        "layers.0.self_attn.v_proj.weight",
        "layers.0.self_attn.o_proj.weight",
        "layers.0.self_attn.q_norm.weight",
        "layers.0.self_attn.k_norm.weight",
        "layers.0.post_attention_layernorm.weight",
        "layers.0.mlp.gate_proj.weight",
        "layers.0.mlp.up_proj.weight",
        "layers.0.mlp.down_proj.weight",
    ];
    let expected: BTreeSet<String> = expected.map(String::from).into();
    let model = checkpoint(&desk, "run", "model.safetensors");
    assert_eq!(tensors(&model), expected);
    let masters = tensors(&checkpoint(&desk, "run", "trainer.safetensors"));
    for name in &expected {
        assert!(masters.contains(&format!("weight.{name}")), "{masters:?}");
    }
    let config = checkpoint(&desk, "run", "config.json");
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["architectures"][0], "DFlashDraftModel");
    assert_eq!(
        config["dflash_config"]["target_layer_ids"],
        serde_json::json!([0, 1])
    );
    let losses: Vec<f64> = steps(&desk, "run")
        .iter()
        .map(|step| step["loss"].as_f64().expect("each step has a loss"))
        .collect();
    let third = losses.len() / 3;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (first, last) = (
        mean(&losses[..third]),
        mean(&losses[losses.len() - third..]),
    );
    assert!(last < 0.8 * first, "{first} {last} {losses:?}");
    let latest = desk.read("run/checkpoint/latest");
    assert_eq!(latest.trim(), format!("step-{}", losses.len()));
    desk.run("replay run/trace.txt").exits(0);
}

#[test]
fn every_loss_and_sliding_layers_train_on_the_cpu() {
    let desk = tiny();
    let mut drafters = BTreeSet::new();
    for (out, set) in [
        ("entropy", "exec.loss.kind=cross-entropy"),
        ("pace", "exec.loss.kind=d-pace"),
        (
            "distilled",
            "exec.loss.kind=distillation --set model.bytes_per_token=192",
        ),
        (
            "sliding",
            "exec.drafter.sliding_window=8 --set exec.drafter.full_layers=0",
        ),
    ] {
        desk.run(&format!(
            "exec --policy sim/best.toml --backend cpu --out {out} --set {set}"
        ))
        .exits(0)
        .says(&["loss "]);
        drafters.insert(checkpoint(&desk, out, "model.safetensors"));
    }
    assert_eq!(drafters.len(), 4, "each trains another drafter");
    let config = checkpoint(&desk, "sliding", "config.json");
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["layer_types"][0], "sliding_attention");
    assert_eq!(
        (&config["sliding_window"], &config["is_causal"]),
        (&8.into(), &true.into())
    );
    // The last hidden state counts in what is handed over.
    refused(&desk, "--backend cpu --set exec.loss.kind=distillation", 2).complains(&[
        "2 layers and the last hidden state x 16 features",
        "set model.bytes_per_token = 192",
    ]);
}

#[test]
fn weights_depend_on_the_plan_alone() {
    let desk = tiny();
    for (out, set) in [
        ("a", "policy.targets=2"),
        ("b", "policy.targets=2"),
        ("c", "policy.targets=3"),
        ("d", "policy.depth_total=5"),
        ("other", "exec.optimizer.learning_rate=1e-2"),
    ] {
        desk.run(&format!(
            "exec --policy sim/best.toml --backend cpu --out {out} --set {set}"
        ))
        .exits(0);
    }
    for name in ["model.safetensors", "trainer.safetensors"] {
        let [a, b, c, d, other] =
            ["a", "b", "c", "d", "other"].map(|out| checkpoint(&desk, out, name));
        assert!(a == b, "{name} differs between two runs");
        assert!(a == c, "{name} depends on the number of targets");
        assert!(a == d, "{name} depends on the depth");
        assert!(a != other, "{name} does not depend on the learning rate");
    }
}

#[test]
fn an_earlier_checkpoint_is_moved_aside() {
    let desk = tiny();
    let line = "exec --policy sim/best.toml --backend cpu --out run";
    desk.run(line).exits(0);
    let before = checkpoint(&desk, "run", "model.safetensors");
    desk.run(&format!("{line} --set seed=6"))
        .exits(0)
        .complains(&["an earlier checkpoint was moved to run/checkpoint.1"]);
    let latest = desk.read("run/checkpoint.1/latest");
    let moved = desk.path(&format!(
        "run/checkpoint.1/{}/model.safetensors",
        latest.trim()
    ));
    assert!(std::fs::read(moved).unwrap() == before);
    assert!(checkpoint(&desk, "run", "model.safetensors") != before);
}

#[test]
fn paths_in_the_policy_file_hold_wherever_it_lies() {
    let desk = tiny();
    desk.run("sim s.toml --no-figures --out deep/er/sim")
        .exits(0);
    let best = desk.read("deep/er/sim/best.toml");
    let text = desk.path("text");
    assert!(
        best.contains(&format!("{:?}", text.to_str().unwrap())),
        "{best}"
    );
    desk.run("sim deep/er/sim/best.toml --no-figures --out again")
        .exits(0);
    assert_eq!(best, desk.read("again/best.toml"));
    desk.write("deep/more/one.jsonl", record(&sequence(20)).repeat(16));
    // A path in a policy file written by hand is relative to that file.
    let own = best.replace(&format!("{:?}", text.to_str().unwrap()), "\"more\"");
    desk.write("deep/p.toml", own);
    desk.run("exec --policy deep/p.toml --backend cpu --out run --set policy.mix_step_min=1")
        .exits(0)
        .complains(&["warning: the lengths are not those the policy was searched on"]);
}

#[test]
fn a_flag_sets_a_key_of_the_policy_file() {
    let desk = eight();
    desk.run("exec --policy sim/best.toml --backend emulated --out run --set policy.targets=2 --set policy.drafters=1 --set policy.mix_step_min=2")
        .exits(0)
        .complains(&[
            "composed on 2 target + 1 drafter workers",
            "warning: the plan is not the one the policy was searched on",
        ]);
    assert!(desk.read("run/trace.txt").contains("targets = 2"));
    refused(&desk, "--backend emulated --set policy.target=2", 2)
        .complains(&["--set policy.target=2", "did you mean \"targets\"?"]);
}

/// Runs `exec` with the policy of `sim/` unless `args` name one, and expects it to refuse with `code` before it touches an output
/// folder that holds a run.
fn refused(desk: &Desk, args: &str, code: i32) -> Ran {
    desk.write("out/trace.txt", "older trace\n");
    desk.write("out/checkpoint/latest", "step-7\n");
    let before = desk.files("out");
    let policy = if args.contains("--policy") {
        ""
    } else {
        "--policy sim/best.toml"
    };
    let ran = desk
        .run(&format!("exec {policy} {args} --out out"))
        .exits(code);
    assert_eq!(desk.files("out"), before);
    assert_eq!(ran.out, "");
    let lines = ran.err.lines();
    let errors: Vec<_> = lines
        .filter(|line| !line.starts_with("warning: "))
        .collect();
    assert!(
        errors.len() == 1 && errors[0].starts_with("dflash: "),
        "{ran:#?}"
    );
    ran
}

#[test]
fn a_scenario_is_refused_with_the_verb_that_takes_it() {
    refused(&eight(), "--policy s.toml --backend emulated", 2)
        .complains(&["s.toml: is a scenario", "run `dflash sim s.toml`"]);
}

#[test]
fn a_policy_without_data_and_model_is_refused_with_the_backend_that_runs_it() {
    let desk = eight();
    for backend in ["cpu", "auto"] {
        refused(&desk, &format!("--backend {backend}"), 2).complains(&[
            "policy \"small\" cannot run on the CPU: it has no [exec] section",
            "`--backend emulated` runs its dispatch here",
        ]);
    }
}

#[test]
fn without_a_driver_the_cuda_backend_says_what_is_missing() {
    if std::path::Path::new("/dev/nvidiactl").exists() {
        return;
    }
    refused(&tiny(), "--backend cuda", 5).complains(&[
        "--backend cuda: no NVIDIA driver is installed here",
        "use --backend cpu",
    ]);
}

#[test]
fn invented_lengths_are_refused_on_real_data() {
    refused(
        &tiny(),
        "--backend cpu --set workload.samples=100 --set workload.lengths={uniform={min=16,max=64}}",
        2,
    )
    .complains(&[
        "workload.lengths describes lengths that no data has",
        "set workload.lengths = \"data\"",
    ]);
}

#[test]
fn a_target_that_memory_cannot_hold_is_refused_with_the_backend_that_runs_it() {
    let large = "--set exec.target.hidden_size=5120 --set exec.target.layers=6400 --set exec.target.intermediate_size=17408 \
                 --set exec.target.attention_heads=24 --set exec.target.key_value_heads=4 --set exec.target.head_dim=256";
    let desk = tiny();
    refused(&desk, &format!("--backend cpu {large}"), 2).complains(&[
        "policy \"tiny\" cannot run on the CPU: its models need about ",
        " of memory are free",
        "`--backend emulated` runs its dispatch here",
    ]);
    refused(
        &desk,
        "--backend cpu --set exec.target.hidden_size=4000000000000 --set exec.target.layers=4000000000000",
        2,
    )
    .complains(&["its models need about "]);
}

#[test]
fn hidden_states_of_another_size_are_refused_with_the_right_one() {
    refused(
        &tiny(),
        "--backend cpu --set exec.target.target_layer_ids=[1]",
        2,
    )
    .complains(&[
        "model.bytes_per_token: 128 bytes, but exec.target hands over 1 layers x 16 features x 4 bytes = 64",
        "set model.bytes_per_token = 64",
    ]);
}

#[test]
fn data_that_cannot_be_read_is_refused_with_its_place() {
    let desk = tiny();
    let good = record(&sequence(20));
    desk.write("text/d.jsonl", format!("{good}{good}{{\"text\": \"cut\n"));
    refused(&desk, "--backend cpu", 3).complains(&[
        "text/d.jsonl:3:",
        "not a valid record",
        "on_bad_line = \"skip\"",
    ]);
    desk.write(
        "text/d.jsonl",
        [good.as_bytes(), b"{\"text\": \"\xff\"}\n"].concat(),
    );
    refused(&desk, "--backend cpu", 3).complains(&["text/d.jsonl:2:", "not valid UTF-8"]);
    desk.write("text/d.jsonl", good);
    desk.run("exec --policy sim/best.toml --backend cpu --out run")
        .exits(0)
        .complains(&["warning: the lengths are not those"]);
}

#[test]
fn empty_data_is_refused_with_what_was_dropped() {
    let desk = tiny();
    refused(
        &desk,
        "--backend cpu --set exec.data.min_loss_tokens=64 --set exec.data.paths=[\"text/c.jsonl\"]",
        3,
    )
    .complains(&["no training samples left: ", "360", "lower min_loss_tokens"]);
    desk.write("none/empty.jsonl", "\n\n");
    refused(&desk, "--backend cpu --set exec.data.paths=[\"none\"]", 3)
        .complains(&["no training samples left: "]);
}

#[test]
fn a_sequence_longer_than_allowed_is_refused_or_skipped_and_counted() {
    let desk = tiny();
    let long = format!("{}{}", record(&sequence(20)), record(&sequence(200)));
    desk.write("text/long.jsonl", long);
    refused(&desk, "--backend cpu --set exec.data.over_long=reject", 3).complains(&[
        "text/long.jsonl:2: ",
        "more than max_len = 64",
        "raise max_len, or set over_long = \"truncate\" or \"skip\"",
    ]);
    desk.run("exec --policy sim/best.toml --backend cpu --out run")
        .exits(0)
        .complains(&["data: 4 files, ", ", 1 over max_len"]);
    refused(&desk, "--backend cpu --set exec.data.max_len=256", 2).complains(&[
        "longer than the last bucket edge of 64 tokens",
        "over_long = \"skip\"",
    ]);
}

#[test]
fn values_that_no_run_can_have_are_refused_with_their_key() {
    let desk = tiny();
    for (set, parts) in [
        (
            "exec.optimizer.learning_rate=-0.1",
            [
                "exec.optimizer.learning_rate: -0.1 must be from 0 to 10",
                "use ",
            ],
        ),
        (
            "exec.optimizer.learning_rate_min=1.0",
            [
                "exec.optimizer.learning_rate_min: 1 must be from 0 to 0.02",
                "learning_rate",
            ],
        ),
        (
            "exec.drafter.anchors=0",
            ["exec.drafter.anchors: 0 must be at least 1", "raise it"],
        ),
        (
            "exec.data.over_long=drop",
            ["exec.data.over_long: ", "truncate"],
        ),
        (
            "exec.data.paths=[\"gone\"]",
            ["gone: no such file or folder", "check the path"],
        ),
        (
            "exec.data.tokenizer=s.toml",
            ["s.toml: cannot be used as a tokenizer", "byte tokenizer"],
        ),
        (
            "exec.target.path=gone",
            ["exec.target.path: ", "gone: no such folder; check the path"],
        ),
        (
            "exec.target.path=t.gguf",
            [
                "exec.data.tokenizer = \"byte\": the target ",
                "t.gguf has a tokenizer of its own; set exec.data.tokenizer = ",
            ],
        ),
        (
            "exec.drafter.path=gone",
            [
                "exec.drafter.path: ",
                "gone: no such folder; check the path",
            ],
        ),
        (
            "exec.target.initializer_range=nan",
            ["exec.target.initializer_range: NaN must be finite", "use "],
        ),
        ("exec.loss.kind=focal", ["focal", "cross-entropy"]),
        (
            "exec.loss.alpha=2",
            ["exec.loss.alpha: 2 must be from 0 to 1", "0.5"],
        ),
        (
            "exec.drafter.sliding_window=3 --set exec.drafter.full_layers=0",
            ["exec.drafter.sliding_window: 3 must hold a block", "2048"],
        ),
        (
            "exec.target.layers=0",
            ["exec.target.layers: 0 must be at least 1", "raise it"],
        ),
        (
            "exec.drafter.key_value_heads=3",
            ["exec.drafter: ", "heads"],
        ),
    ] {
        refused(&desk, &format!("--backend cpu --set {set}"), 2).complains(&parts);
    }
    // The search refuses what the run would.
    desk.run("sim s.toml --out out --set exec.optimizer.learning_rate=-0.1")
        .exits(2)
        .complains(&["exec.optimizer.learning_rate: -0.1 must be from 0 to 10"]);
}

/// Starts `exec` with these arguments, and sends it one Ctrl-C once it says what it runs.
fn interrupted(desk: &Desk, args: &str) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dflash"))
        .args(["exec", "--policy", "sim/best.toml", "--out", "run"])
        .args(args.split_whitespace())
        .current_dir(desk.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut complaints = BufReader::new(child.stderr.take().unwrap());
    let mut err = String::new();
    while !err.contains(" drafter workers (") {
        let read = complaints.read_line(&mut err).unwrap();
        assert!(read > 0, "it ended before it ran: {err}");
    }
    interrupt(child.id());
    complaints.read_to_string(&mut err).unwrap();
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().expect("it exits by itself"),
        out: String::from_utf8(output.stdout).unwrap(),
        err,
    }
}

#[test]
fn an_interrupted_emulated_run_ends_after_its_step_and_replays() {
    let desk = eight();
    // At this pace the whole run would take minutes.
    interrupted(&desk, "--backend emulated --speedup 0.5")
        .exits(130)
        .says(&["results in run"])
        .complains(&["stopping; once more to stop at once", "stopped as asked"]);
    let row = &desk.rows("sim/results.csv")[0];
    let done = steps(&desk, "run").len();
    assert!(done < row["steps"].parse().unwrap(), "{done}");
    desk.run("replay run/trace.txt")
        .exits(0)
        .says(&[&format!("{done} steps")]);
}

#[test]
fn an_interrupted_training_run_keeps_its_drafter() {
    let desk = tiny();
    interrupted(&desk, "--backend cpu --set workload.epochs=1000")
        .exits(130)
        .says(&["checkpoint run/checkpoint/step-", "results in run"])
        .complains(&["stopped as asked"]);
    let done = steps(&desk, "run").len();
    let latest = desk.read("run/checkpoint/latest");
    assert_eq!(latest.trim(), format!("step-{done}"));
    assert_eq!(
        tensors(&checkpoint(&desk, "run", "model.safetensors")).len(),
        14
    );
    let run: serde_json::Value =
        serde_json::from_slice(&checkpoint(&desk, "run", "run.json")).unwrap();
    assert_eq!(run["complete"], false);
    desk.run("replay run/trace.txt").exits(0);
}

fn interrupt(process: u32) {
    let kill = Command::new("kill")
        .args(["-INT", &process.to_string()])
        .status();
    assert!(kill.expect("kill exists").success());
}

/// Whether the process handles Ctrl-C by now.
#[cfg(target_os = "linux")]
fn catches_interrupts(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.expect("Linux says so").trim(), 16).unwrap();
    caught & (1 << 1) != 0
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_search_keeps_what_is_done() {
    let desk = Desk::with(&format!(
        "{COMPOSED}depth_total = {{ from = 4, to = 4000, step = 1 }}\n"
    ));
    let child = Command::new(env!("CARGO_BIN_EXE_dflash"))
        .args(["sim", "s.toml", "--no-figures", "--out", "out"])
        .current_dir(desk.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    while !catches_interrupts(child.id()) {
        std::thread::yield_now();
    }
    interrupt(child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let rows = desk.rows("out/results.csv");
    assert!(rows.iter().all(|row| row["outcome"] == "done"));
    let told = format!("interrupted after {} of 3997 points", rows.len());
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains(&told), "{told:?} is not in {err:?}");
}
