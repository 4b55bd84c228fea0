//! `dflash quickstart`: the whole way on this machine, from real text to a trained drafter, with prediction beside measurement.

use super::calibrate::{self, Stage};
use super::exec::cpu::{Trained, train};
use super::exec::{Ready, finish, for_libraries, ready};
use super::sim::{Searched, search, stop_on_signal};
use super::{best, exec};
use crate::cli::QuickstartArgs;
use crate::failure::Failure;
use crate::figure::{self, Heading, Pair, PairPanel, PredictionMeasurement};
use crate::output::{OutputDir, write_atomic};
use crate::report;
use crate::results;
use crate::scenario::{Case, PolicyFile, cases, open};
use crate::terminal::{note, say};
use shared::record::{Record, parse};
use sim::choose;
use sim::spec::{Buckets, Costs, Rate, Search};
use std::path::Path;

/// The scenario, as it ships.
const SCENARIO: &str = include_str!("../../scenarios/quickstart.toml");

/// Samples that calibration trains on.
const CALIBRATION_SAMPLES: u32 = 240;

pub(crate) fn run(args: &QuickstartArgs) -> Result<(), Failure> {
    for_libraries()?;
    let dir = OutputDir::create(&args.out)?;
    let scenario = dir.write("scenario.toml", SCENARIO.as_bytes())?;
    note("1/4 reading text from the Cargo registry");
    let input = open(&[scenario], &args.sets, crate::config::POINTS_MAX)?;
    let mut cases = cases(&input)?;
    note(format!("    {} samples", cases[0].lengths.len()));
    note("2/4 calibrating: a short training run");
    let measured = calibrated(&cases, &dir)?;
    for case in &mut cases {
        measured.put_into(&mut case.file);
    }
    write_scenario(&dir, &input, &measured)?;
    note(format!("3/4 simulating {} policies", cases.len()));
    let mut searched = search(cases, None, &stop_on_signal())?;
    choose_anyway(&mut searched);
    let chosen = write_search(&dir, &searched)?;
    note(format!(
        "4/4 training with {}, depth {:?}",
        chosen.policy.name, chosen.policy.depth_total
    ));
    let row = searched.choice.best.expect("a policy was chosen");
    let case = Case {
        file: chosen.clone(),
        ..searched.cases[searched.rows[row].index].clone()
    };
    let ready = ready(case)?;
    let run_dir = OutputDir::create(&args.out.join("exec"))?;
    let trained = train(&ready, &run_dir)?;
    finish(&ready, &trained.ran, &run_dir, Vec::new())?;
    conclude(&args.out, &dir, &ready, &chosen, &trained)
}

/// What calibration found.
struct Measured {
    costs: Costs,
    copy: Option<Rate>,
}

impl Measured {
    fn put_into(&self, file: &mut PolicyFile) {
        file.costs = self.costs.clone();
        if let Some(rate) = self.copy {
            let links = [
                &mut file.hardware.host_pageable,
                &mut file.hardware.host_pinned,
                &mut file.hardware.p2p,
            ];
            for link in links.into_iter().flatten() {
                link.bandwidth = rate;
            }
        }
    }
}

/// Trains on a few samples with the composed policy and takes the times of every stage.
fn calibrated(cases: &[Case], dir: &OutputDir) -> Result<Measured, Failure> {
    let mut case = cases.last().expect("a scenario has cases").clone();
    let edges = sim::edges(&case.file.workload.buckets, &case.lengths).map_err(Failure::usage)?;
    case.file.workload.buckets = Buckets::Edges(edges.as_slice().to_vec());
    let few = case.lengths.len().min(CALIBRATION_SAMPLES as usize);
    case.lengths = std::sync::Arc::new(case.lengths[..few].to_vec());
    let ready = ready(case)?;
    let folder = OutputDir::create(&dir.path().join("calibration"))?;
    train(&ready, &folder)?;
    let records = records(folder.path())?;
    let costs = calibrate::costs(&records, &ready.plan);
    let copy = calibrate::copy_bytes_per_s(&records, &ready.plan).and_then(Rate::new);
    Ok(Measured { costs, copy })
}

/// The scenario with the measured costs, to be simulated again by hand.
fn write_scenario(
    dir: &OutputDir,
    input: &crate::scenario::Input,
    measured: &Measured,
) -> Result<(), Failure> {
    let crate::scenario::Input::Scenario { loaded, .. } = input else {
        return Ok(());
    };
    let mut table = loaded.table().clone();
    let costs = toml::Value::try_from(&measured.costs)
        .map_err(|e| Failure::usage(format!("costs cannot be written as TOML: {e}")))?;
    table.insert("costs".into(), costs);
    let text = toml::to_string_pretty(&table)
        .map_err(|e| Failure::usage(format!("the scenario cannot be written as TOML: {e}")))?;
    let head = "# The quickstart scenario with the costs that calibration measured here.\n\n";
    dir.write("scenario.toml", format!("{head}{text}").as_bytes())?;
    Ok(())
}

/// Text that another machine holds may not allow the mix that the scenario asks for; a first look should still end in a run.
fn choose_anyway(searched: &mut Searched) {
    if searched.choice.best.is_some() {
        return;
    }
    note("no policy keeps the constraints of [search] on this text; choosing without them");
    let free = Search {
        mix_step_min: None,
        mix_tv_max: None,
        ..searched.cases[0].search.clone()
    };
    searched.choice = choose(&searched.rows, &free);
}

fn write_search(dir: &OutputDir, searched: &Searched) -> Result<PolicyFile, Failure> {
    let folder = OutputDir::create(&dir.path().join("sim"))?;
    results::write(&folder, searched)?;
    let row = searched.choice.best.ok_or_else(|| {
        Failure::no(format!(
            "no policy qualifies; see {}",
            folder.path().join("results.csv").display()
        ))
    })?;
    let chosen = best::policy_file(searched, row)?;
    best::write(&folder, &chosen)?;
    let detailed = report::details(searched, Some(&chosen), &folder, true)?;
    report::write(&folder, searched, Some(&chosen), None, &detailed)?;
    for line in report::summary(searched, Some(&chosen), None, &detailed) {
        say(line);
    }
    Ok(chosen)
}

fn records(folder: &Path) -> Result<Vec<Record>, Failure> {
    let path = folder.join("trace.txt");
    let text = std::fs::read_to_string(&path)
        .map_err(|e| Failure::data(format!("{}: cannot be read: {e}", path.display())))?;
    let trace = parse(&text).map_err(|e| Failure::data(format!("{}: {e}", path.display())))?;
    Ok(trace.records)
}

/// A quantity as it was predicted and as it was measured.
struct Line {
    what: String,
    unit: &'static str,
    predicted: f64,
    measured: f64,
}

impl Line {
    /// Of the prediction, relative to what was measured. (percent)
    fn error(&self) -> f64 {
        100.0 * (self.predicted / self.measured - 1.0)
    }
}

fn conclude(
    out: &Path,
    dir: &OutputDir,
    ready: &Ready,
    chosen: &PolicyFile,
    trained: &Trained,
) -> Result<(), Failure> {
    let lines = comparison(out, ready, chosen, trained)?;
    say("");
    say(format!(
        "{:<34} {:>12} {:>12} {:>9}",
        "", "predicted", "measured", "error"
    ));
    for line in &lines {
        say(format!(
            "{:<34} {:>12.1} {:>12.1} {:>+8.1}%",
            format!("{} [{}]", line.what, line.unit),
            line.predicted,
            line.measured,
            line.error()
        ));
    }
    say("");
    for line in exec::training(trained) {
        say(line);
    }
    write_report(dir, ready, trained, &lines)?;
    say(format!("report {}", out.join("report.html").display()));
    Ok(())
}

/// Throughput and stage times, predicted by the simulator and measured in the run.
fn comparison(
    out: &Path,
    ready: &Ready,
    chosen: &PolicyFile,
    trained: &Trained,
) -> Result<Vec<Line>, Failure> {
    let m = &trained.ran.metrics;
    let mut lines = vec![Line {
        what: "throughput".into(),
        unit: "tok/s",
        predicted: chosen.expect.throughput_tok_s,
        measured: m.tokens_per_s(),
    }];
    let pieces = calibrate::pieces(&records(&out.join("exec"))?);
    let stages = [
        (
            Stage::Forward,
            "target forward",
            ready.work.service.forwards(&ready.plan),
        ),
        (
            Stage::Train,
            "drafter step",
            ready.work.service.trainings(&ready.plan),
        ),
    ];
    let ms = |span: shared::time::Span| span.as_ns() as f64 / 1e6;
    for (stage, name, predicted) in stages {
        for bucket in 0..ready.plan.buckets {
            let mine = |m: usize| ready.plan.microbatches[m].bucket.0 == bucket;
            let (mut sum, mut expected, mut count) = (0.0, 0.0, 0);
            for piece in pieces.iter().filter(|p| p.stage == stage) {
                let Some(id) = piece.microbatch.filter(|m| mine(m.index())) else {
                    continue;
                };
                sum += ms(piece.span);
                expected += ms(predicted[id.index()]);
                count += 1;
            }
            if count > 0 {
                let n = f64::from(count);
                lines.push(Line {
                    what: format!("{name}, bucket b{bucket}"),
                    unit: "ms",
                    predicted: expected / n,
                    measured: sum / n,
                });
            }
        }
    }
    Ok(lines)
}

fn write_report(
    dir: &OutputDir,
    ready: &Ready,
    trained: &Trained,
    lines: &[Line],
) -> Result<(), Failure> {
    let heading = |title: &str, shown: &str| Heading {
        title: title.into(),
        shown: shown.into(),
        scenario: ready.case.file.name.clone(),
        seed: Some(ready.case.file.seed),
    };
    let panel = |title: &str, unit: &str| PairPanel {
        title: title.into(),
        axis: format!("{title} [{unit}]"),
        pairs: lines
            .iter()
            .filter(|line| line.unit == unit)
            .map(|line| Pair {
                label: line.what.clone(),
                predicted: line.predicted,
                measured: line.measured,
            })
            .collect(),
    };
    let prediction = PredictionMeasurement {
        heading: heading(
            "Predicted and measured",
            "throughput of the run and mean service times",
        ),
        panels: vec![panel("throughput", "tok/s"), panel("service time", "ms")],
    };
    let loss = exec::loss_curve(ready, trained);
    figure::save(dir.path(), "prediction", &prediction)?;
    figure::save(dir.path(), "loss", &loss)?;
    let page = figure::report(&figure::Report {
        title: "dflash quickstart".into(),
        summary: exec::training(trained),
        question: ready.case.file.question.clone(),
        parts: vec![
            figure::Part::Table(table(lines)),
            figure::Part::Figure(figure::svg(&prediction)?),
            figure::Part::Figure(figure::svg(&loss)?),
        ],
        notes: vec![
            "sim/ holds the search (results.csv, best.toml, figures), exec/ the run (trace, metrics, checkpoint).".into(),
            format!("dflash {}", env!("CARGO_PKG_VERSION")),
        ],
    });
    write_atomic(&dir.path().join("report.html"), page.as_bytes())?;
    Ok(())
}

fn table(lines: &[Line]) -> figure::Table {
    let cells = |line: &Line| {
        vec![
            line.what.clone(),
            line.unit.into(),
            format!("{:.1}", line.predicted),
            format!("{:.1}", line.measured),
            format!("{:+.1}", line.error()),
        ]
    };
    figure::Table {
        caption: "Predicted and measured".into(),
        header: ["quantity", "unit", "predicted", "measured", "error %"]
            .map(String::from)
            .into(),
        rows: lines.iter().map(cells).collect(),
    }
}
