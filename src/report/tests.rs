//! A small search from its file to its report.

use super::*;
use crate::scenario::{cases, open};
use crate::verbs::best;
use crate::verbs::sim::search;
use std::sync::atomic::AtomicBool;

/// One policy that deadlocks, one that mixes badly, one that does not fit the box at one of its splits, and a good one.
const SCENARIO: &str = r#"
name = "small <box>"
question = "which policy?"
seed = 3
workload = { samples = 3000, lengths = { lognormal = { median = 900.0, sigma = 0.8, min = 32, max = 4096 } }, buckets = { edges = [512, 1024, 1536, 2048, 3072, 4096] } }
training = { grad_accum = 4, token_budget = 8192, batch_max = 96 }
model = { captured_layers = 5, hidden_size = 5120, last_hidden = true, target_weights = "54 GB", target_activations = "12 GB", drafter_state = "33 GB", drafter_activations = "40 GB", host_base = "77 GB" }
hardware = { gpus = 8, gpu_memory = "141 GB", host_memory = "1500 GB", host_pageable = { bandwidth = "1.55 GB/s", shared = true }, p2p = { bandwidth = "120 GB/s" } }
costs = { target = { per_token_us = 184.0 }, drafter = { base_ms = 60.0, per_token_us = 98.0 }, step_ms = 350.0, spread = 0.1 }
search = { mix_step_min = 5, replications = 2 }
policy = [
    { preset = "staged-fifo" },
    { preset = "bucketed", name = "hard rule", depth_total = 6, mix_window_min = 4, mix_enforce = "take" },
    { preset = "composed", drafters = [3, 4], depth_total = [4, 12] },
]
"#;

struct Run {
    folder: tempfile::TempDir,
    searched: Searched,
    best: Option<PolicyFile>,
    prospects: Option<Prospects>,
    detailed: Vec<Detailed>,
}

fn run(sets: &[&str]) -> Run {
    run_of(SCENARIO, sets)
}

fn run_of(scenario: &str, sets: &[&str]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("small.toml");
    std::fs::write(&file, scenario).unwrap();
    let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
    let cases = cases(&open(&[file], &sets, 100).unwrap()).unwrap();
    let searched = search(cases, None, &AtomicBool::new(false)).unwrap();
    let best = searched.choice.best;
    let prospects = best.and_then(|row| prospects(&searched, row, &AtomicBool::new(false)));
    let best = best.map(|row| best::policy_file(&searched, row).unwrap());
    let dir = OutputDir::create(folder.path()).unwrap();
    let detailed = details(&searched, best.as_ref(), &dir, false).unwrap();
    Run {
        folder,
        searched,
        best,
        prospects,
        detailed,
    }
}

fn page_of(run: &Run) -> String {
    let dir = OutputDir::create(&run.folder.path().join("out")).unwrap();
    write(
        &dir,
        &run.searched,
        run.best.as_ref(),
        run.prospects.as_ref(),
        &run.detailed,
    )
    .unwrap();
    std::fs::read_to_string(dir.path().join("report.html")).unwrap()
}

#[test]
fn the_page_holds_answer_figures_and_what_is_left_out() {
    let run = run(&[]);
    let page = page_of(&run);
    for text in [
        "dflash sim: small &lt;box&gt;",
        "which policy?",
        "Best policy: composed with 5 targets and 3 drafters",
        "The drafters limit it",
        "times staged-fifo",
        "Deadlock: hard rule",
        "waits for the others at the barrier",
        "5 target + 4 drafter workers need 9 GPUs",
        "search.mix_step_min = 5",
        "seed 3",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let out = run.folder.path().join("out");
    for stem in [
        "throughput-depth",
        "memory-depth",
        "pareto",
        "utilisation",
        "slots-over-time",
        "mixing",
        "timeline",
        "timeline-other",
    ] {
        assert!(out.join(format!("{stem}.svg")).is_file(), "{stem}");
        assert!(out.join(format!("{stem}.png")).is_file(), "{stem}");
    }
    assert_eq!(page.matches("<figure>").count(), 8);
}

#[test]
fn the_terminal_shows_the_same_within_its_width() {
    let run = run(&[]);
    let lines = summary(
        &run.searched,
        run.best.as_ref(),
        run.prospects.as_ref(),
        &run.detailed,
    );
    let text = lines.join("\n");
    for line in &lines {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for start in [
        "policy",
        "Best policy: composed",
        "deadlock: hard rule (depth_total = 6): at ",
        "excluded: staged-fifo",
        "infeasible: composed (2 points)",
    ] {
        assert!(
            lines.iter().any(|line| line.starts_with(start)),
            "{start}: {text}"
        );
    }
}

#[test]
fn a_search_without_an_answer_says_so() {
    let run = run(&["search.mix_tv_max=0.0"]);
    assert!(run.best.is_none());
    let page = page_of(&run);
    assert!(page.contains("No policy qualifies: of 6 points"));
    assert!(page.contains("The first point as a policy file"));
    let lines = summary(&run.searched, None, None, &run.detailed);
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("No policy qualifies"))
    );
}

#[test]
fn groups_are_named_apart_and_keep_their_rows() {
    let scenario = SCENARIO.replace("\"hard rule\"", "\"composed\"");
    let run = run_of(&scenario, &[]);
    let groups = groups(&run.searched);
    let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["staged-fifo", "composed", "composed #2"]);
    assert_eq!(groups[2].rows.len(), 4);
}

#[test]
fn one_run_has_figures_of_its_own() {
    let run = run(&[]);
    let detail = &run.detailed[0];
    let row = &run.searched.rows[detail.row];
    let buckets = bucket_names(&run.searched.cases[row.index]);
    assert_eq!(buckets[0], "≤ 512");
    let heading = Heading {
        scenario: "small".to_owned(),
        ..Heading::default()
    };
    let folder = run.folder.path().join("one");
    let shown = shown(&run.searched, detail, &buckets);
    let figures = run_figures(&folder, &heading, &shown).unwrap();
    assert_eq!(figures.len(), 4);
    assert!(figures.iter().all(|svg| svg.contains("scenario small")));
    assert!(folder.join("timeline.png").is_file());
}
