//! The file against the Trace Event format, read strictly: no unknown field, no unknown kind of event.

use super::TraceEvents;
use crate::report::bucket_names;
use crate::scenario::{Case, cases, open};
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::Value;
use sim::{End, prepare, run};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// A small box whose copies share one link, and whose drafter d1 is lost for a while.
const SCENARIO: &str = r#"
name = "small"
seed = 3
workload = { samples = 400, lengths = { uniform = { min = 16, max = 512 } }, buckets = { edges = [128, 256, 384, 512] } }
training = { grad_accum = 2, token_budget = 4096, batch_max = 16 }
model = { captured_layers = 2, hidden_size = 64, target_weights = "1 GB", target_activations = "100 MB", drafter_state = "500 MB", drafter_activations = "200 MB" }
hardware = { gpus = 4, gpu_memory = "8 GB", host_memory = "32 GB", host_pageable = { bandwidth = "0.1 GB/s", shared = true }, p2p = { bandwidth = "50 GB/s" } }
costs = { target = { per_token_us = 100.0 }, drafter = { base_ms = 5.0, per_token_us = 80.0 }, step_ms = 20.0, spread = 0.1 }
fault = [
    { kind = "lost", worker = "d1", at_s = 2.0 },
    { kind = "joined", worker = "d1", at_s = 3.0 },
]
policy = { preset = "composed", targets = 2, drafters = 2, mix_step_min = 3, assignment = "shared", placement = "target" }
"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "displayTimeUnit")]
    unit: String,
    #[serde(rename = "otherData")]
    about: BTreeMap<String, Value>,
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

/// The kinds of events that the format knows and this program writes, with the fields that it asks of each.
#[derive(Deserialize)]
#[serde(tag = "ph", deny_unknown_fields)]
enum Event {
    #[serde(rename = "M")]
    Meta {
        name: Meta,
        ts: f64,
        pid: u32,
        tid: u32,
        args: BTreeMap<String, Value>,
    },
    #[serde(rename = "X")]
    Slice {
        name: String,
        cat: String,
        ts: f64,
        dur: f64,
        pid: u32,
        tid: u32,
        #[serde(default)]
        args: BTreeMap<String, Value>,
    },
    #[serde(rename = "C")]
    Counter {
        name: String,
        ts: f64,
        pid: u32,
        tid: u32,
        args: BTreeMap<String, u64>,
    },
    #[serde(rename = "s")]
    Start {
        name: String,
        cat: String,
        ts: f64,
        pid: u32,
        tid: u32,
        id: u64,
    },
    #[serde(rename = "t")]
    Step {
        name: String,
        cat: String,
        ts: f64,
        pid: u32,
        tid: u32,
        id: u64,
        bp: Binding,
    },
    #[serde(rename = "f")]
    End {
        name: String,
        cat: String,
        ts: f64,
        pid: u32,
        tid: u32,
        id: u64,
        bp: Binding,
    },
}

#[derive(Deserialize, Debug, PartialEq, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Meta {
    ProcessName,
    ProcessSortIndex,
    ThreadName,
    ThreadSortIndex,
}

#[derive(Deserialize)]
enum Binding {
    #[serde(rename = "e")]
    Enclosing,
}

/// Nanoseconds: every time in the file is a whole number of them.
fn ns(us: f64) -> u64 {
    let ns = us * 1e3;
    assert!((ns - ns.round()).abs() < 1e-3 && ns >= 0.0, "{us}");
    ns.round() as u64
}

fn file(sets: &[&str]) -> (File, Case, sim::Outcome) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.toml");
    std::fs::write(&path, SCENARIO).unwrap();
    let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
    let case = cases(&open(&[path], &sets, 10).unwrap()).unwrap().remove(0);
    let resolved = case.file.resolved();
    let work = prepare(&resolved, &case.lengths).unwrap();
    let mut picture = TraceEvents::new(&case.file, bucket_names(&case), "sim");
    let outcome = run(&resolved, &work, Default::default(), &mut picture).unwrap();
    assert_eq!(outcome.end, End::Done);
    let mut text = String::new();
    let bytes = picture.finish();
    GzDecoder::new(bytes.as_slice())
        .read_to_string(&mut text)
        .unwrap();
    (serde_json::from_str(&text).unwrap(), case, outcome)
}

type Track = (u32, u32);

/// Slices by track: name, from, to.
fn slices(file: &File) -> BTreeMap<Track, Vec<(&str, u64, u64)>> {
    let mut tracks: BTreeMap<Track, Vec<_>> = BTreeMap::new();
    for event in &file.events {
        if let Event::Slice {
            name,
            ts,
            dur,
            pid,
            tid,
            ..
        } = event
        {
            let from = ns(*ts);
            tracks
                .entry((*pid, *tid))
                .or_default()
                .push((name.as_str(), from, from + ns(*dur)));
        }
    }
    for own in tracks.values_mut() {
        own.sort_by_key(|&(_, from, to)| (from, to));
    }
    tracks
}

#[test]
fn every_event_is_of_the_format_and_lies_on_a_named_track() {
    for transport in ["p2p", "host-pageable"] {
        let placement = if transport == "p2p" { "target" } else { "host" };
        let sets = [
            format!("policy.transport={transport}"),
            format!("policy.placement={placement}"),
        ];
        let (file, ..) = file(&[&sets[0], &sets[1]]);
        assert_eq!(file.unit, "ms");
        assert_eq!(file.about["driver"], "sim");
        let mut named = BTreeSet::new();
        let mut processes = BTreeSet::new();
        let mut used = BTreeSet::new();
        for event in &file.events {
            match event {
                Event::Meta {
                    name,
                    ts,
                    pid,
                    tid,
                    args,
                } => {
                    assert_eq!(ns(*ts), 0);
                    assert_eq!(args.len(), 1);
                    if *name == Meta::ThreadName {
                        assert!(named.insert((*pid, *tid)), "{pid} {tid} is named twice");
                    } else if *name == Meta::ProcessName {
                        processes.insert((*pid, *tid));
                    }
                }
                Event::Slice {
                    name,
                    cat,
                    pid,
                    tid,
                    args,
                    ..
                } => {
                    assert!(
                        ["step", "compute", "copy", "wait"].contains(&cat.as_str()),
                        "{cat}"
                    );
                    assert!(
                        !name.is_empty() && (cat == "wait") == args.is_empty(),
                        "{name}"
                    );
                    used.insert((*pid, *tid));
                }
                Event::Start {
                    name,
                    cat,
                    pid,
                    tid,
                    ..
                }
                | Event::Step {
                    name,
                    cat,
                    pid,
                    tid,
                    bp: Binding::Enclosing,
                    ..
                }
                | Event::End {
                    name,
                    cat,
                    pid,
                    tid,
                    bp: Binding::Enclosing,
                    ..
                } => {
                    assert_eq!((name.as_str(), cat.as_str()), ("microbatch", "flow"));
                    used.insert((*pid, *tid));
                }
                Event::Counter {
                    name,
                    ts,
                    pid,
                    tid,
                    args,
                } => {
                    ns(*ts);
                    assert!(
                        processes.contains(&(*pid, *tid)) && !args.is_empty(),
                        "{name}"
                    );
                }
            }
        }
        assert_eq!(named, used, "{transport}");
    }
}

#[test]
fn slices_of_a_track_never_overlap() {
    let (file, ..) = file(&["policy.transport=host-pageable", "policy.placement=host"]);
    let tracks = slices(&file);
    // The steps, four workers, copies out and copies in, some of them at a time.
    assert!(tracks.len() >= 7, "{:?}", tracks.keys());
    for (track, own) in &tracks {
        for pair in own.windows(2) {
            assert!(pair[0].2 <= pair[1].1, "{track:?}: {pair:?}");
        }
    }
}

#[test]
fn workers_are_accounted_for_from_the_first_event_to_the_last() {
    let (file, _, outcome) = file(&[]);
    let end = outcome.metrics.end().as_ns();
    for (track, own) in slices(&file).iter().filter(|((pid, _), _)| *pid == 2) {
        let covered: u64 = own.iter().map(|&(_, from, to)| to - from).sum();
        assert_eq!(covered, end, "{track:?}");
    }
}

#[test]
fn arrows_lead_from_each_forward_to_its_training_and_its_step() {
    let (file, _, outcome) = file(&[]);
    let tracks = slices(&file);
    let around = |track: Track, at: u64| {
        let own = tracks.get(&track).unwrap();
        let hit = own.iter().find(|&&(_, from, to)| from <= at && at < to);
        hit.unwrap_or_else(|| panic!("{track:?} has no slice at {at}"))
            .0
    };
    let mut ways: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    let mut begun = BTreeMap::new();
    let mut ended = BTreeSet::new();
    for event in &file.events {
        match event {
            Event::Start {
                id, ts, pid, tid, ..
            } => {
                assert!(begun.insert(*id, ns(*ts)).is_none(), "{id} starts twice");
                ways.entry(*id)
                    .or_default()
                    .push(around((*pid, *tid), ns(*ts)));
            }
            Event::Step {
                id, ts, pid, tid, ..
            }
            | Event::End {
                id, ts, pid, tid, ..
            } => {
                assert!(ns(*ts) >= begun[id], "{id} goes back in time");
                if matches!(event, Event::End { .. }) {
                    assert!(ended.insert(*id), "{id} ends twice");
                }
                ways.entry(*id)
                    .or_default()
                    .push(around((*pid, *tid), ns(*ts)));
            }
            _ => {}
        }
    }
    assert_eq!(ways.len(), outcome.metrics.microbatches as usize);
    assert_eq!(ended.len(), ways.len());
    for (id, way) in &ways {
        assert!(way[0].starts_with("forward"), "{id}: {way:?}");
        assert!(way[way.len() - 2].starts_with("train"), "{id}: {way:?}");
        assert_eq!(way.last(), Some(&"apply"), "{id}: {way:?}");
    }
}

#[test]
fn counters_peak_where_the_metrics_do_and_steps_follow_each_other() {
    let (file, _, outcome) = file(&[]);
    let peak = |series: &str| {
        let values = file.events.iter().filter_map(|event| match event {
            Event::Counter { args, .. } => args.get(series).copied(),
            _ => None,
        });
        values.max().unwrap()
    };
    assert_eq!(peak("slots"), u64::from(outcome.metrics.peaks.slots));
    assert_eq!(peak("alive"), outcome.metrics.peaks.alive_bytes.0);
    let tracks = slices(&file);
    let steps = &tracks[&(1, 10)];
    assert_eq!(steps.len(), outcome.metrics.steps as usize);
    assert_eq!(steps[0], ("step 1", 0, steps[0].2));
    assert!(
        steps.windows(2).all(|pair| pair[0].2 == pair[1].1),
        "{steps:?}"
    );
}
