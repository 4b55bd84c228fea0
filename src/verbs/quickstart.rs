//! `dflash quickstart`: the whole way on this machine, from real text to a trained drafter, with prediction beside measurement.

mod pieces;

use super::calibrate::{Calibrated, Effort, calibrated};
use super::exec::backend::Choice;
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
use pieces::Stage;
use shared::record::{Record, parse};
use sim::choose;
use sim::spec::{Buckets, Search};
use std::path::Path;

/// The scenario, as it ships.
const SCENARIO: &str = include_str!("../../scenarios/quickstart.toml");

pub(crate) fn run(args: &QuickstartArgs) -> Result<(), Failure> {
    for_libraries()?;
    let dir = OutputDir::create(&args.out)?;
    let scenario = dir.write("scenario.toml", SCENARIO.as_bytes())?;
    note("1/4 reading text from the Cargo registry");
    let input = open(&[scenario], &args.sets, crate::config::POINTS_MAX)?;
    let mut cases = cases(&input)?;
    note(format!("    {} samples", cases[0].lengths.len()));
    note("2/4 calibrating: every stage alone, and workers beside each other");
    let measured = measured(&cases, &dir)?;
    for case in &mut cases {
        measured.put_into(&mut case.file);
    }
    write_scenario(&dir, &input, &cases[0], &measured)?;
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

/// Measures every stage on a few samples of the data.
fn measured(cases: &[Case], dir: &OutputDir) -> Result<Calibrated, Failure> {
    let mut few = cases.to_vec();
    for case in &mut few {
        // The buckets that all samples have.
        let edges =
            sim::edges(&case.file.workload.buckets, &case.lengths).map_err(Failure::usage)?;
        case.file.workload.buckets = Buckets::Edges(edges.as_slice().to_vec());
    }
    let found = calibrated(
        &few,
        Choice::Cpu,
        &Effort::short(),
        &stop_on_signal(),
        &mut None,
    )?;
    found.write(
        &OutputDir::create(&dir.path().join("calibration"))?,
        "scenario.toml",
    )?;
    Ok(found)
}

/// The scenario with the measured costs, to be simulated again by hand.
fn write_scenario(
    dir: &OutputDir,
    input: &crate::scenario::Input,
    case: &Case,
    measured: &Calibrated,
) -> Result<(), Failure> {
    let crate::scenario::Input::Scenario { loaded, .. } = input else {
        return Ok(());
    };
    let mut table = loaded.table().clone();
    let costs = toml::Value::try_from(&measured.costs)
        .map_err(|e| Failure::usage(format!("costs cannot be written as TOML: {e}")))?;
    table.insert("costs".into(), costs);
    if let Some(toml::Value::Table(hardware)) = table.get_mut("hardware") {
        let mut file = case.file.clone();
        measured.put_into(&mut file);
        let found = toml::Value::try_from(&file.hardware)
            .map_err(|e| Failure::usage(format!("hardware cannot be written as TOML: {e}")))?;
        hardware.extend(found.as_table().cloned().unwrap_or_default());
    }
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
    let pieces = pieces::pieces(&records(&out.join("exec"))?);
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
        for bucket in 0..ready.plan.buckets() {
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
    let prediction = figure::save(dir.path(), "prediction", &prediction)?;
    let loss = figure::save(dir.path(), "loss", &loss)?;
    let page = figure::report(&figure::Report {
        title: "dflash quickstart".into(),
        summary: exec::training(trained),
        question: ready.case.file.question.clone(),
        parts: vec![
            figure::Part::Table(table(lines)),
            figure::Part::Figure(prediction),
            figure::Part::Figure(loss),
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
