//! Checkpoints during a run, runs that go on, and records that others read meanwhile.

use super::desk::Desk;
use super::exec::{checkpoint, steps, tiny};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

const EXEC: &str = "exec --policy sim/best.toml --backend cpu";

/// Names of the entries in a folder, in order.
fn names(desk: &Desk, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(desk.path(folder)).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn run_json(desk: &Desk, out: &str) -> serde_json::Value {
    serde_json::from_slice(&checkpoint(desk, out, "run.json")).unwrap()
}

#[test]
fn a_run_stopped_and_resumed_ends_in_the_same_bytes_as_one_that_was_not() {
    let desk = tiny();
    desk.run(&format!("{EXEC} --out whole")).exits(0);
    let planned = steps(&desk, "whole").len();
    desk.run(&format!("{EXEC} --out parts --stop-after-steps 5"))
        .exits(0)
        .says(&["stopped after the steps asked for"])
        .complains(&[
            "parts/checkpoint is kept; the same command with --resume goes on from there",
        ]);
    let first = run_json(&desk, "parts");
    assert_eq!(first["complete"], false);
    desk.run(&format!("{EXEC} --out parts --resume --stop-after-steps 4"))
        .exits(0)
        .complains(&["going on after step ", "microbatches are trained"]);
    desk.run(&format!("{EXEC} --out parts --resume")).exits(0);
    for file in ["model.safetensors", "trainer.safetensors", "config.json"] {
        assert!(
            checkpoint(&desk, "whole", file) == checkpoint(&desk, "parts", file),
            "{file} differs"
        );
    }
    // Every sample once, as the ledger says, and one line a step.
    let (whole, parts) = (run_json(&desk, "whole"), run_json(&desk, "parts"));
    for key in ["done", "samples_trained", "complete", "plan"] {
        assert_eq!(whole[key], parts[key], "{key}");
    }
    assert_eq!(parts["complete"], true);
    let numbers: Vec<u64> = steps(&desk, "parts")
        .iter()
        .map(|line| line["step"].as_u64().unwrap())
        .collect();
    assert!(numbers.into_iter().eq(1..=planned as u64));
    // Each part's trace replays on its own.
    for trace in ["trace.txt", "trace.txt.1", "trace.txt.2"] {
        desk.run(&format!("replay parts/{trace}")).exits(0);
    }
    desk.run(&format!("{EXEC} --out parts --resume"))
        .exits(0)
        .says(&["nothing is left to train: step "]);
}

#[test]
fn a_killed_run_goes_on_from_its_last_whole_checkpoint() {
    let desk = tiny();
    desk.run(&format!("{EXEC} --out whole")).exits(0);
    let every = "--set exec.checkpoint.every_steps=2 --set exec.checkpoint.keep=0";
    desk.run(&format!("{EXEC} --out run {every}")).exits(0);
    // As a kill leaves it: the newest step torn, a pointer not moved, records unfinished.
    let latest = desk.read("run/checkpoint/latest").trim().to_owned();
    let torn = desk.path(&format!("run/checkpoint/{latest}/trainer.safetensors"));
    let bytes = std::fs::read(&torn).unwrap();
    std::fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    std::fs::create_dir(desk.path("run/checkpoint/step-900.tmp")).unwrap();
    std::fs::remove_file(desk.path("run/checkpoint/latest")).unwrap();
    for record in ["trace.txt", "metrics.jsonl"] {
        let text = desk.read(&format!("run/{record}"));
        desk.write(&format!("run/{record}.partial"), &text[..text.len() - 30]);
        std::fs::remove_file(desk.path(&format!("run/{record}"))).unwrap();
    }
    desk.run("replay run/trace.txt.partial")
        .exits(3)
        .complains(&[
            "ends without its last line after ",
            "was killed or is still going on",
        ]);
    desk.run(&format!("{EXEC} --out run {every} --resume"))
        .exits(0)
        .complains(&[
            &format!("{latest}: damaged, the one before is taken: trainer.safetensors: "),
            "the part that an interrupted run left is kept as run/trace.txt.partial.1",
        ]);
    for file in ["model.safetensors", "trainer.safetensors"] {
        assert!(checkpoint(&desk, "whole", file) == checkpoint(&desk, "run", file));
    }
    assert_eq!(steps(&desk, "run").len(), steps(&desk, "whole").len());
    assert!(!names(&desk, "run/checkpoint").contains(&"step-900.tmp".to_owned()));
}

#[test]
fn a_policy_without_composed_steps_trains_what_is_left_and_nothing_twice() {
    let desk = tiny();
    let scenario = desk
        .read("s.toml")
        .replace("preset = \"composed\"", "preset = \"bucketed\"");
    desk.write("b.toml", scenario.replace("mix_step_min = 2", ""));
    desk.run("sim b.toml --no-figures --out b").exits(0);
    let exec = "exec --policy b/best.toml --backend cpu --out run";
    desk.run(&format!("{exec} --stop-after-steps 4")).exits(0);
    let before = run_json(&desk, "run")["samples_trained"].as_u64().unwrap();
    desk.run(&format!("{exec} --resume")).exits(0);
    let run = run_json(&desk, "run");
    assert!(before < run["samples_trained"].as_u64().unwrap());
    assert_eq!(run["microbatches_trained"], run["microbatches_planned"]);
    assert_eq!(run["complete"], true);
    desk.run("replay run/trace.txt").exits(0);
    // Drafters that are independent: the checkpoint says whose weights it holds, and is none to go on from.
    let apart = exec.replace("--out run", "--out apart --set policy.barrier=none");
    desk.run(&format!("{apart} --stop-after-steps 2")).exits(0);
    assert_eq!(run_json(&desk, "apart")["weights_of"], "drafter 0");
    desk.run(&format!("{apart} --resume"))
        .exits(2)
        .complains(&["under policy.barrier = \"none\" each drafter has weights of its own"]);
}

#[test]
fn a_run_killed_again_and_again_ends_in_the_same_bytes() {
    let desk = tiny();
    let args = format!("{EXEC} --set workload.epochs=6 --set exec.checkpoint.every_steps=1");
    desk.run(&format!("{args} --out whole")).exits(0);
    let mut resume = "";
    for lines in [3, 30, 60] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dflash"))
            .args(format!("{args} --out run {resume}").split_whitespace())
            .current_dir(desk.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let partial = desk.path("run/metrics.jsonl.partial");
        let written = || {
            std::fs::read_to_string(&partial)
                .unwrap_or_default()
                .lines()
                .count()
        };
        while written() < lines && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        assert!(
            !child.wait().unwrap().success(),
            "it was killed before its end"
        );
        resume = "--resume";
    }
    desk.run(&format!("{args} --out run --resume")).exits(0);
    for file in ["model.safetensors", "trainer.safetensors"] {
        assert!(
            checkpoint(&desk, "whole", file) == checkpoint(&desk, "run", file),
            "{file} differs"
        );
    }
    let (whole, run) = (run_json(&desk, "whole"), run_json(&desk, "run"));
    for key in ["done", "samples_trained", "complete"] {
        assert_eq!(whole[key], run[key], "{key}");
    }
    assert_eq!(steps(&desk, "run").len(), steps(&desk, "whole").len());
}

#[test]
fn what_cannot_be_resumed_is_refused_with_the_reason() {
    let desk = tiny();
    desk.run(&format!("{EXEC} --out gone --resume"))
        .exits(2)
        .complains(&["gone/checkpoint: holds no whole checkpoint to resume from; check --out"]);
    desk.run(&format!("{EXEC} --out run --stop-after-steps 2"))
        .exits(0);
    let before = desk.files("run");
    for (set, reason) in [
        (
            "exec.optimizer.learning_rate=1e-3",
            "was trained with exec.optimizer.learning_rate = 0.02, it is 0.001 now",
        ),
        ("seed=6", "was trained with seed = 5, it is 6 now"),
        ("training.grad_accum=1", "was trained by plan "),
    ] {
        desk.run(&format!("{EXEC} --out run --resume --set {set}"))
            .exits(2)
            .complains(&[reason, "start anew without --resume"]);
    }
    desk.run("exec --policy sim/best.toml --backend emulated --out run --resume")
        .exits(2)
        .complains(&["the emulated backend trains nothing"]);
    let lines = desk
        .read("text/c.jsonl")
        .replacen("the drafter", "the DRAFTER", 1);
    desk.write("text/c.jsonl", lines);
    desk.run(&format!("{EXEC} --out run --resume"))
        .exits(2)
        .complains(&["the samples are others than the checkpoint was trained on"]);
    assert_eq!(desk.files("run"), before);
}

#[test]
fn checkpoints_rotate_and_the_best_stays() {
    let desk = tiny();
    desk.run(&format!(
        "{EXEC} --out run --set exec.checkpoint.every_steps=3 --set exec.checkpoint.keep=2 --set exec.checkpoint.best=loss"
    ))
    .exits(0);
    let found = names(&desk, "run/checkpoint");
    let kept = found
        .iter()
        .filter(|name| name.starts_with("step-"))
        .count();
    assert!(kept == 2 || kept == 3, "{found:?}");
    let best = desk.read("run/checkpoint/best").trim().to_owned();
    assert!(
        found.contains(&best) && found.contains(&"latest".to_owned()),
        "{found:?}"
    );
    let told = steps(&desk, "run");
    let told = told
        .iter()
        .filter(|line| line["checkpoint_write_s"].as_f64().is_some());
    assert!(told.count() > 0);
    desk.run(&format!("inspect run/checkpoint/{best}")).exits(0);
    desk.run(&format!(
        "{EXEC} --out other --set exec.checkpoint.best=speed"
    ))
    .exits(2)
    .complains(&["exec.checkpoint.best: \"speed\" must be \"loss\", \"accepted_length\" or \"\""]);
}

/// What a server answers at `/metrics`.
fn scraped(address: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn a_run_can_be_watched_by_prometheus_and_tensorboard_while_it_goes_on() {
    let desk = tiny();
    let mut child = Command::new(env!("CARGO_BIN_EXE_dflash"))
        .args([
            "exec",
            "--policy",
            "sim/best.toml",
            "--backend",
            "cpu",
            "--out",
            "run",
        ])
        .args([
            "--set",
            "workload.epochs=1000",
            "--set",
            "exec.observe.prometheus=127.0.0.1:0",
        ])
        .args(["--set", "exec.observe.tensorboard=true"])
        .current_dir(desk.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut complaints = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    let address = loop {
        line.clear();
        let read = complaints.read_line(&mut line).unwrap();
        assert!(read > 0, "it ended before it told its address");
        let told = line
            .split_once("http://")
            .and_then(|(_, rest)| rest.split_once("/metrics"));
        if let Some((address, _)) = told {
            break address.to_owned();
        }
    };
    let text = loop {
        let text = scraped(&address).expect("it serves while it runs");
        let steps = text
            .lines()
            .find_map(|line| line.strip_prefix("dflash_steps_total "));
        if steps.is_some_and(|steps| steps.parse::<u64>().unwrap() > 1) {
            break text;
        }
    };
    for part in [
        "# TYPE dflash_samples_total counter",
        "# HELP dflash_tokens_total Tokens trained on",
        "dflash_microbatches{state=\"committed\"}",
        "dflash_target_time_ratio{activity=\"blocked\"}",
        "dflash_drafter_time_ratio{activity=\"starved\"}",
        "dflash_hs_bytes ",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    // The records are there to read while the run goes on, line by line.
    let live = desk.read("run/metrics.jsonl.partial");
    assert!(live.lines().count() > 1 && live.contains("\"loss\":"));
    assert!(!names(&desk, "run").contains(&"metrics.jsonl".to_owned()));
    let taken = format!("{EXEC} --out other --set exec.observe.prometheus={address}");
    desk.run(&taken).exits(2).complains(&[
        "exec.observe.prometheus: ",
        "cannot listen there",
        "choose another port",
    ]);
    assert!(!desk.path("other").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let events = names(&desk, "run/tensorboard");
    assert!(events[0].starts_with("events.out.tfevents."), "{events:?}");
    let bytes = std::fs::read(desk.path(&format!("run/tensorboard/{}", events[0]))).unwrap();
    let has = |tag: &[u8]| bytes.windows(tag.len()).any(|window| window == tag);
    assert!(has(b"train/loss") && has(b"train/accepted_length") && has(b"dispatch/tokens_per_s"));
    // Killed before any checkpoint: nothing counts, and it begins anew.
    desk.run(&format!("{EXEC} --out run --resume"))
        .exits(0)
        .complains(&["interrupted before its first checkpoint; it begins anew"]);
    assert_eq!(run_json(&desk, "run")["complete"], true);
}
