//! Arguments as they are typed.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Dispatch for speculative-drafter training: find the policy, then run it
///
/// A simulator and an executor share one scheduling core: `sim` searches, `exec` runs what it found.
#[derive(Debug, Parser)]
#[command(name = "dflash", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Simulate a scenario's policies and write the best one to best.toml
    Sim(SimArgs),
    /// Validate scenarios or policies without running them
    Check(CheckArgs),
    /// Feed a trace to the scheduling core again and compare every decision
    Replay(ReplayArgs),
    /// Compare a simulated trace with an executed one, stage by stage
    Compare(CompareArgs),
}

/// Arguments of `dflash sim`
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// Scenario files, or one policy file to predict; several merge left to right
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Set a key after the files are merged, e.g. training.grad_accum=8
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Directory for results.csv, best.toml, figures and report [default: reports/NAME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Independent replications of each point [default: as the scenario says]
    #[arg(long, value_name = "N")]
    pub(crate) replications: Option<u32>,
    /// Refuse scenarios with more points than this
    #[arg(long, value_name = "N", default_value_t = crate::config::POINTS_MAX)]
    pub(crate) max_points: u64,
    /// Write the trace of the best point as trace.txt
    #[arg(long)]
    pub(crate) trace: bool,
    /// Leave out figures and the HTML report
    #[arg(long)]
    pub(crate) no_figures: bool,
}

/// Arguments of `dflash check`
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Scenario or policy files; several merge left to right
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Set a key after the files are merged
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Refuse scenarios with more points than this
    #[arg(long, value_name = "N", default_value_t = crate::config::POINTS_MAX)]
    pub(crate) max_points: u64,
}

/// Arguments of `dflash replay`
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Replay under this seed instead of the trace's own
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Replay under this policy file instead of the trace's own; the samples stay the trace's
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Print every metric, computed anew from the records
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "table")]
    pub(crate) metrics: Option<MetricsFormat>,
}

/// How metrics are printed
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MetricsFormat {
    /// A name and a value a line
    Table,
    /// A JSON object a line
    Json,
}

/// Arguments of `dflash compare`
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The simulated trace
    #[arg(value_name = "SIM_TRACE")]
    pub(crate) sim: PathBuf,
    /// The executed trace
    #[arg(value_name = "EXEC_TRACE")]
    pub(crate) exec: PathBuf,
    /// Largest difference in throughput, in percent, that counts as agreement
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0)]
    pub(crate) tolerance: f64,
    /// Directory for comparison.csv and the figure of predicted and measured times
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}
