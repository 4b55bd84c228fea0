//! How speed and memory grow with workers and microbatches: `cargo bench --bench scaling -- [MICROBATCHES_MAX]`.
//!
//! Each row is a process of its own, so that its peak of resident memory is its own. `work` is what the plan and the service times take,
//! which are made before the run; `run` is what simulating adds to it.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

mod cases;

use cases::{cpu_seconds, forget_peak, resident_mib, scaled};
use std::process::Command;

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    if let [workers, microbatches, metrics] = &args[..] {
        let number = |text: &str| text.parse().expect("a number");
        row(
            number(workers) as u16,
            number(microbatches),
            metrics == "metrics",
        );
        return;
    }
    let most: u64 = args
        .first()
        .map_or(1_000_000, |n| n.parse().expect("a number"));
    println!("| workers | microbatches | metrics | ns a microbatch | work, MiB | run, MiB |");
    println!("|---|---|---|---|---|---|");
    for metrics in ["bare", "metrics"] {
        for workers in [8, 64, 512, 4_096] {
            child(workers, most.min(300_000), metrics);
        }
    }
    for exponent in 3..=7 {
        let microbatches = 10_u64.pow(exponent);
        if microbatches <= most {
            child(8, microbatches, "metrics");
        }
    }
}

fn child(workers: u16, microbatches: u64, metrics: &str) {
    let itself = std::env::current_exe().expect("a program");
    let args = [
        workers.to_string(),
        microbatches.to_string(),
        metrics.into(),
    ];
    let status = Command::new(itself).args(args).status();
    assert!(status.is_ok_and(|status| status.success()), "a row runs");
}

fn row(workers: u16, microbatches: u64, with_metrics: bool) {
    let case = scaled(workers, microbatches);
    forget_peak();
    let (work, _) = resident_mib();
    let begin = cpu_seconds();
    let mut runs = 0;
    // Short runs are repeated: the first of them fills the caches.
    while runs == 0 || cpu_seconds() - begin < 0.2 {
        std::hint::black_box(case.run(with_metrics));
        runs += 1;
    }
    let ns = (cpu_seconds() - begin) * 1e9 / (microbatches * runs) as f64;
    println!(
        "| {workers} | {microbatches} | {} | {ns:.0} | {:.0} | {:.1} |",
        if with_metrics { "all" } else { "none" },
        work,
        resident_mib().1 - work,
    );
}
