//! The pipeline in other simulators and in this one, in one run: `cargo bench --bench peers -- FOLDER [ROUNDS]`.
//!
//! FOLDER holds the others' programs, built, and `trace.bin`, the work that all replay; each prints a line of JSON with `n`, `cpu_s` and
//! five integers that must agree. What is not there is left out. In every round each runs once, and this one for a twentieth of a second,
//! so that a busy machine slows all alike; ratios are medians over rounds of ratios within a round, by processor time. The best round is the
//! one that others' work on the machine disturbed least, and so nearest to what each does on a machine of its own. The whole sweep of the
//! reference scenario comes last.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

mod cases;

use cases::sweep::{FAMILIES, sweep_families};
use cases::{Case, cpu_seconds, median, pipeline, reference, words};
use sim::validate::Checksum;
use std::path::Path;
use std::process::Command;

/// Name, program and arguments after N and the trace; the first is what all are compared with.
const OTHERS: [(&str, &str, &[&str]); 8] = [
    ("SimPy 4.1.2", "pipe_simpy.py", &[]),
    ("salabim 26.0.9", "pipe_salabim.py", &["passivate"]),
    ("plain Python, heapq", "pipe_pyheap.py", &[]),
    (
        "nexosim 1.0.0, actors",
        "frameworks_rust/target/release/frameworks",
        &["nexosim-actors"],
    ),
    (
        "nexosim 1.0.0, one model",
        "frameworks_rust/target/release/frameworks",
        &["nexosim-mono"],
    ),
    (
        "desque 0.4.0",
        "frameworks_rust/target/release/frameworks",
        &["desque"],
    ),
    (
        "hand-written loop, BinaryHeap",
        "ref_rust/target/release/pipe_ref",
        &["heap"],
    ),
    (
        "hand-written loop, tight",
        "ref_rust/target/release/pipe_ref",
        &["tight"],
    ),
];

const MICROBATCHES: u32 = 200_000;

/// Who was measured, and the microbatches per second of processor time in every round.
struct Row {
    name: String,
    rates: Vec<f64>,
}

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let Some(folder) = args.first() else {
        println!("peers: name the folder of the other simulators' programs");
        return;
    };
    let folder = Path::new(folder);
    let rounds = args.get(1).map_or(5, |n| n.parse().expect("a number"));
    let trace = std::fs::read(folder.join("trace.bin")).expect("FOLDER/trace.bin");
    let line = pipeline(&words(&trace));
    let ours = [
        ("dflash: core and event loop", &line, false),
        ("dflash: with all metrics", &line, true),
    ];
    let presets = ["composed", "bucketed", "drafter-queues", "staged-fifo"];
    let references = presets.map(|name| (format!("reference, {name}"), reference(name)));

    let sum = line.checksum(MICROBATCHES);
    let mut table: Vec<Row> = Vec::new();
    for round in 0..rounds {
        let others = OTHERS.iter().filter_map(|other| {
            let rate = run_other(folder, other, &sum)?;
            Some((other.0.to_owned(), rate))
        });
        let ours = ours
            .iter()
            .map(|&(name, case, metrics)| (name.to_owned(), rate(case, metrics)));
        let references = references
            .iter()
            .map(|(name, case)| (format!("dflash: {name}, all metrics"), rate(case, true)));
        for (place, (name, rate)) in others.chain(ours).chain(references).enumerate() {
            if round == 0 {
                let rates = Vec::new();
                table.push(Row { name, rates });
            }
            table[place].rates.push(rate);
        }
    }
    print(&table, &sum);
    println!("\n{}", sweep_families(FAMILIES));
}

/// Microbatches per second of another program, whose five integers are compared.
fn run_other(folder: &Path, other: &(&str, &str, &[&str]), sum: &Checksum) -> Option<f64> {
    let (name, program, rest) = other;
    let path = folder.join(program);
    if !path.exists() {
        return None;
    }
    let mut command = if program.ends_with(".py") {
        let mut python = Command::new(folder.join("venv/bin/python"));
        python.arg(&path);
        python
    } else {
        Command::new(&path)
    };
    command
        .arg(MICROBATCHES.to_string())
        .arg(folder.join("trace.bin"))
        .args(*rest);
    let output = command.output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |key: &str| {
        let (_, value) = text.rsplit_once(&format!("\"{key}\":"))?;
        let value = value.trim_start();
        let end = value.find([',', '}'])?;
        value[..end].trim().parse::<f64>().ok()
    };
    let said = [
        "makespan_ns",
        "blocked_ns",
        "starved_ns",
        "area_ns",
        "steps",
    ];
    let found = [sum.makespan, sum.blocked, sum.starved, sum.area, sum.steps];
    for (key, found) in said.into_iter().zip(found) {
        assert_eq!(number(key), Some(found as f64), "{name}: {key}\n{text}");
    }
    Some(f64::from(MICROBATCHES) / number("cpu_s").expect("cpu_s"))
}

/// Microbatches per second of processor time, over enough runs to last about as long as the fast ones of the others.
fn rate(case: &Case, with_metrics: bool) -> f64 {
    case.run(with_metrics);
    let (begin, mut done) = (cpu_seconds(), 0);
    loop {
        std::hint::black_box(case.run(with_metrics));
        done += case.plan.microbatches.len();
        let spent = cpu_seconds() - begin;
        if spent > 0.05 {
            return done as f64 / spent;
        }
    }
}

fn print(table: &[Row], sum: &Checksum) {
    let base = &table[0].rates;
    println!(
        "| implementation | microbatches/s | best round | x {} | least..most |",
        table[0].name
    );
    println!("|---|---|---|---|---|");
    for row in table {
        let mut ratios: Vec<f64> = row.rates.iter().zip(base).map(|(a, b)| a / b).collect();
        let ratio = median(&mut ratios);
        let best = row.rates.iter().copied().fold(0.0, f64::max);
        println!(
            "| {} | {:.2} M | {:.2} M | {ratio:.1} | {:.1}..{:.1} |",
            row.name,
            median(&mut row.rates.clone()) / 1e6,
            best / 1e6,
            ratios[0],
            ratios[ratios.len() - 1],
        );
    }
    println!("\nall agree on {sum:?}");
}
