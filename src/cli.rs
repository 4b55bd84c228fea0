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
    /// Run a policy for real and record it
    Exec(ExecArgs),
    /// Decode held-out prompts with a trained drafter and measure how much of its drafts is accepted
    Eval(EvalArgs),
    /// Let the target answer prompts, or write them itself: data to train its drafter on
    Regenerate(RegenerateArgs),
    /// Measure on this machine what the work of a scenario's policies costs, for sim and the emulated backend to read
    Calibrate(CalibrateArgs),
    /// Search, calibrate and train on text found on this machine, and compare prediction with measurement
    Quickstart(QuickstartArgs),
    /// Tokenise the data of [exec.data] once, into a store that later runs map
    Prepare(PrepareArgs),
    /// Validate scenarios or policies without running them
    Check(CheckArgs),
    /// Feed a trace to the scheduling core again and compare every decision
    Replay(ReplayArgs),
    /// Turn a recorded run into a file for Perfetto or Chrome's tracing page
    Trace(TraceArgs),
    /// Say why one policy beats another on the same work, by stage and by what its workers wait for
    Explain(ExplainArgs),
    /// Compare a simulated trace with an executed one, stage by stage
    Compare(CompareArgs),
    /// Measure this machine's GPUs and the links between them, for scenarios to merge
    Box(BoxArgs),
    /// Calibrate, predict every policy of a scenario, run every one, and say how far the predictions were off
    Twin(TwinArgs),
    /// Train with one key varied over several seeds, and compare the drafters
    Ablate(AblateArgs),
    /// Say whether vLLM and SGLang would load a drafter, and why not
    Inspect(InspectArgs),
    /// Hold the simulator against exact results of queueing theory
    Validate(ValidateArgs),
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
    /// Write the trace of the best point as trace.txt, and as trace.json.gz for Perfetto
    #[arg(long)]
    pub(crate) trace: bool,
    /// Leave out figures and the HTML report
    #[arg(long)]
    pub(crate) no_figures: bool,
}

/// Where a policy runs
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BackendArg {
    /// The best that this machine and the policy's model allow
    Auto,
    /// Real models on the CPU
    Cpu,
    /// Real models on NVIDIA GPUs
    Cuda,
    /// No model: threads that wait as long as the policy's costs say, and move scaled bytes
    Emulated,
}

impl BackendArg {
    /// As it is typed.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Arguments of `dflash exec`
#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// The policy file, as `dflash sim` writes it
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// Where to run it
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) backend: BackendArg,
    /// Set a key of the policy file, e.g. exec.optimizer.learning_rate=1e-3
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Directory for trace.txt, metrics.jsonl, figures and checkpoint/ [default: reports/NAME-exec]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Go on from the newest checkpoint in the directory: what is trained stays trained, everything else is trained once
    #[arg(long)]
    pub(crate) resume: bool,
    /// Stop in order, as at Ctrl-C, once N optimizer steps of this run are applied; the one under way then is finished
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) stop_after_steps: Option<u64>,
    /// Emulated seconds in one second on the wall [default: so that a forward takes 40 ms]
    #[arg(long, value_name = "FACTOR")]
    pub(crate) speedup: Option<f64>,
    /// Real bytes for each emulated byte [default: so that all slots take 16 MB]
    #[arg(long, value_name = "SHARE")]
    pub(crate) byte_scale: Option<f64>,
}

/// Which drafters decode with the target itself
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerifyArg {
    /// The newest checkpoint; the others are judged by the target's recorded answers, which gives the same counts
    Newest,
    /// Every drafter
    All,
    /// None: recorded answers alone, many times faster
    None,
}

/// Arguments of `dflash eval`
#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// The policy file or scenario whose [exec] section names target, tokenizer and data
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// A checkpoint, or a folder that holds several [default: exec.drafter.path]
    #[arg(long, value_name = "DIR")]
    pub(crate) checkpoint: Vec<PathBuf>,
    /// Prompts as JSONL: messages, conversations, prompt, text or input_ids
    #[arg(long, value_name = "FILE", required_unless_present = "held_out")]
    pub(crate) prompts: Option<PathBuf>,
    /// Take prompts from the samples of exec.data that training left out
    #[arg(long, conflicts_with = "prompts")]
    pub(crate) held_out: bool,
    /// Prompts, at most
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub(crate) prompts_max: usize,
    /// Tokens of a prompt, at most; longer ones are left out and counted
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(crate) prompt_tokens_max: usize,
    /// Tokens of an answer, at most
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) max_new_tokens: usize,
    /// Upper edges of the length buckets in tokens, e.g. 128,256,512 [default: the policy's buckets]
    #[arg(long, value_name = "TOKENS", value_delimiter = ',')]
    pub(crate) edges: Vec<u32>,
    /// Samples that training did not see, to measure the loss on as well; any data that exec reads
    #[arg(long, value_name = "FILE")]
    pub(crate) loss_on: Option<PathBuf>,
    /// Which drafters decode with the target itself
    #[arg(long, value_enum, default_value = "newest")]
    pub(crate) verify: VerifyArg,
    /// Set a key of the policy file, e.g. exec.data.tokenizer=byte
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Directory for eval.json, prompts.csv, figure and report [default: reports/NAME-eval]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Arguments of `dflash regenerate`
#[derive(Debug, Args)]
pub(crate) struct RegenerateArgs {
    /// The policy file or scenario whose [exec] section names target and tokenizer
    #[arg(long, value_name = "FILE", required_unless_present = "target")]
    pub(crate) policy: Option<PathBuf>,
    /// The target instead: a folder or file of a model
    #[arg(long, value_name = "PATH", conflicts_with_all = ["policy", "sets"])]
    pub(crate) target: Option<PathBuf>,
    /// The tokenizer of --target [default: the target's own]
    #[arg(long, value_name = "PATH", requires = "target")]
    pub(crate) tokenizer: Option<String>,
    /// Prompts as JSONL: messages, conversations or prompt
    #[arg(long, value_name = "FILE", required_unless_present = "self_prompt")]
    pub(crate) prompts: Option<PathBuf>,
    /// Take no prompts: the target writes N user turns first, then answers them
    #[arg(long, value_name = "N", conflicts_with = "prompts")]
    pub(crate) self_prompt: Option<usize>,
    /// The JSONL to write, as exec.data.paths reads it; what is there already stays and is not done again
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Prompts of the file, at most
    #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
    pub(crate) prompts_max: usize,
    /// Tokens of a prompt, at most; longer ones are left out and counted
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(crate) prompt_tokens_max: usize,
    /// Tokens of an answer, at most
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) max_new_tokens: usize,
    /// 0 takes the most likely token, 1 draws from the target's own distribution
    #[arg(
        long,
        value_name = "T",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    pub(crate) temperature: f64,
    /// Seed of all draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Prompts answered at once
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub(crate) batch: usize,
    /// Stop an answer that repeats its last 1 to N tokens three times over; 0 lets it go on
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub(crate) loop_period_max: usize,
    /// Write input_ids and loss_mask too, which training prefers: the target's exact tokens, and no false end behind cut answers
    #[arg(long)]
    pub(crate) with_tokens: bool,
    /// Set a key of the policy file, e.g. exec.target.path=model
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
}

/// How thoroughly is measured
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct EffortArgs {
    /// Microbatches of each bucket that calibration measures, from its smallest to its largest
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) per_bucket: u8,
    /// Times that calibration repeats each piece of work, its first use aside
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeats: u32,
    /// How long calibration watches workers that share a device beside each other, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) window_ms: u64,
}

/// Arguments of `dflash calibrate`
#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// Scenario files, or one policy file, whose work is measured; several merge left to right
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Set a key after the files are merged, e.g. workload.samples=500
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Where to measure
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) backend: BackendArg,
    /// Directory for costs.toml and calibration.csv [default: reports/NAME-calibration]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) effort: EffortArgs,
    /// Refuse scenarios with more points than this
    #[arg(long, value_name = "N", default_value_t = crate::config::POINTS_MAX)]
    pub(crate) max_points: u64,
}

/// Arguments of `dflash quickstart`
#[derive(Debug, Args)]
pub(crate) struct QuickstartArgs {
    /// Directory for everything it writes
    #[arg(long, value_name = "DIR", default_value = "reports/quickstart")]
    pub(crate) out: PathBuf,
    /// Set a key of its scenario, e.g. workload.samples=500
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
}

/// Arguments of `dflash prepare`
#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    /// Scenario or policy files with an [exec.data] section; several merge left to right
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Set a key after the files are merged, e.g. exec.data.max_len=4096
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Folder of the store [default: exec.data.store]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Read every byte of the store and its sources and compare sums; make nothing
    #[arg(long, conflicts_with = "force")]
    pub(crate) verify: bool,
    /// Make the store anew even if it is up to date
    #[arg(long)]
    pub(crate) force: bool,
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

/// Arguments of `dflash trace`
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// The trace, or the folder of a run that holds trace.txt
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Where to write [default: trace.json.gz beside the trace]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// Arguments of `dflash explain`
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// One policy file, such as best.toml, or a scenario with one point
    #[arg(value_name = "A")]
    pub(crate) a: PathBuf,
    /// The other one, over the same work
    #[arg(value_name = "B")]
    pub(crate) b: PathBuf,
    /// Set a key of both files, e.g. workload.samples=100000
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Replications in which both face the same samples and the same noise
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) replications: u32,
    /// Directory for explanation.html and explanation.csv
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
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

/// Arguments of `dflash box`
#[derive(Debug, Args)]
pub(crate) struct BoxArgs {
    /// Directory for box.toml and links.csv
    #[arg(long, value_name = "DIR", default_value = "reports/box")]
    pub(crate) out: PathBuf,
}

/// Arguments of `dflash twin`
#[derive(Debug, Args)]
pub(crate) struct TwinArgs {
    /// Scenario files; several merge left to right. Without any, what an earlier twin left in --out is compared again
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Set a key after the files are merged
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Where to run
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) backend: BackendArg,
    /// Directory for the calibration, the policies' traces, twin.csv, stages.csv, runs.csv and the figure [default: reports/NAME-twin]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Runs of each policy; their differences are the noise
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
    /// Largest error of a predicted throughput, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0)]
    pub(crate) tolerance: f64,
    /// Take the files' costs as they are
    #[arg(long)]
    pub(crate) no_calibration: bool,
    #[command(flatten)]
    pub(crate) effort: EffortArgs,
    /// Refuse scenarios with more points than this
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) max_points: u64,
}

/// Arguments of `dflash ablate`
#[derive(Debug, Args)]
pub(crate) struct AblateArgs {
    /// The policy file that is varied
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// The key to vary and its values; differences are to the first
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub(crate) vary: String,
    /// Seeds; each decides the microbatches, the initial weights and the anchors of one run of every value
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1,2,3"
    )]
    pub(crate) seeds: Vec<u64>,
    /// Prompts that training did not see, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub(crate) prompts: PathBuf,
    /// Use at most so many prompts
    #[arg(long, value_name = "N")]
    pub(crate) prompts_max: Option<u32>,
    /// Longest answer
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_new_tokens: Option<u32>,
    /// Samples that training did not see, to measure the loss on; any data that exec reads
    #[arg(long, value_name = "FILE")]
    pub(crate) loss_on: Option<PathBuf>,
    /// Where to train
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) backend: BackendArg,
    /// Set a key of the policy file for all runs
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Runs at a time; more than one write what they say to log files
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) jobs: usize,
    /// Directory for the runs, ablation.csv, the figure and the report
    #[arg(long, value_name = "DIR", default_value = "reports/ablation")]
    pub(crate) out: PathBuf,
}

/// Arguments of `dflash inspect`
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The drafter: a folder with config.json, a checkpoint's step-N, or a run's folder, whose latest checkpoint is taken
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The target it is to draft for: its folder or its config.json
    #[arg(long, value_name = "TARGET")]
    pub(crate) target: Option<PathBuf>,
    /// The engine that is to load it
    #[arg(long, value_enum, default_value = "both")]
    pub(crate) engine: EngineArg,
    /// Print every check as a JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `dflash validate`
#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// Run only these cases [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) cases: Vec<String>,
    /// Seed of all draws
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub(crate) seed: u64,
    /// Run one N-th of the microbatches, with intervals wider in proportion
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) shorter: u32,
    /// Print every value as a JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Write all values to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

/// A serving engine, or both
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineArg {
    /// vLLM
    Vllm,
    /// SGLang
    Sglang,
    /// Each of them
    Both,
}
