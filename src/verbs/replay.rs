//! `dflash replay`: a trace's events through the core again; every decision must be the recorded one.

use super::recorded::{Recorded, build, left};
use super::retrace::{Retraced, retrace};
use crate::cli::{MetricsFormat, ReplayArgs};
use crate::config::{Kind, POINTS_MAX};
use crate::failure::Failure;
use crate::scenario::{Input, PolicyFile, open};
use crate::terminal::say;
use shared::core::Activity;
use shared::metrics::{Detail, Metrics};
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let recorded = Recorded::read(&args.trace)?;
    let shown = recorded.path.display();
    let detail = Detail::default();
    let mismatch = recorded.plan_mismatch();
    let (file, plan) = match overridden(args, &recorded)? {
        Some(file) => {
            let plan = build(&file, &recorded.lengths).map_err(|error| {
                Failure::usage(format!("{shown}: cannot be replayed like that: {error}"))
            })?;
            (file, left(plan, &recorded.done))
        }
        None => (recorded.file.clone(), Arc::clone(&recorded.plan)),
    };
    let outcome = retrace(&recorded, &file, &plan, detail);
    if let Some(mismatch) = mismatch {
        let first = outcome.err().map(|divergence| format!("\n{divergence}"));
        return Err(Failure::no(mismatch + &first.unwrap_or_default()));
    }
    let retraced = outcome.map_err(|divergence| Failure::no(format!("{shown}: {divergence}")))?;
    say(answer(&recorded, &retraced));
    if let Some(stall) = &retraced.stall {
        say(format!("the run ended in {stall}"));
    }
    if let Some(format) = args.metrics {
        print(&retraced.metrics, format);
    }
    Ok(())
}

/// The configuration to replay under, where it is not the trace's own.
fn overridden(args: &ReplayArgs, recorded: &Recorded) -> Result<Option<PolicyFile>, Failure> {
    let mut file = match &args.policy {
        None => None,
        Some(path) => Some(policy_at(path)?),
    };
    if let Some(seed) = args.seed {
        file.get_or_insert_with(|| recorded.file.clone()).seed = seed;
    }
    Ok(file)
}

fn policy_at(path: &PathBuf) -> Result<PolicyFile, Failure> {
    match open(std::slice::from_ref(path), &[], POINTS_MAX)? {
        Input::Policy { file, .. } => Ok(*file),
        Input::Scenario { .. } => Err(Failure::usage(format!(
            "{}: is a scenario (kind is not {:?}); name a policy file, such as best.toml",
            path.display(),
            Kind::Policy
        ))),
    }
}

fn answer(recorded: &Recorded, retraced: &Retraced) -> String {
    let m = &retraced.metrics;
    format!(
        "replays: {} records, {} steps, digest {}, {:.0} tok/s{}",
        recorded.records.len(),
        m.steps,
        recorded.digest,
        m.tokens_per_s(),
        if retraced.is_finished {
            ""
        } else {
            "; the records end before the run does"
        }
    )
}

fn print(metrics: &Metrics, format: MetricsFormat) {
    for (name, value) in numbers(metrics) {
        match format {
            MetricsFormat::Table => say(format!("{name:<24} {value:>20}")),
            MetricsFormat::Json => say(serde_json::json!({ "metric": name, "value": value })),
        }
    }
}

/// Every number, under the name it has in results.csv.
fn numbers(m: &Metrics) -> Vec<(String, serde_json::Number)> {
    let ledger = &m.ledger;
    let counts = [
        ("hs_slots_peak", u64::from(m.peaks.slots)),
        ("hs_bytes_peak", m.peaks.slot_bytes.0),
        ("hs_alive_peak", u64::from(m.peaks.alive)),
        ("hs_alive_bytes_peak", m.peaks.alive_bytes.0),
        ("host_bytes_peak", m.peaks.host.0),
        ("buckets_per_step_min", u64::from(m.mix.distinct_min)),
        ("mix_exceptions", u64::from(m.mix.exceptions)),
        ("mix_longest_run", u64::from(m.mix.longest_run)),
        ("samples_planned", ledger.planned),
        ("samples_trained", ledger.trained),
        ("samples_waiting", ledger.waiting),
        ("samples_in_flight", ledger.in_flight),
        ("samples_failed", ledger.failed.len() as u64),
        ("samples_skipped", ledger.skipped),
        ("samples_dropped", ledger.dropped.len() as u64),
        ("samples_over_long", ledger.over_long.len() as u64),
        ("tokens", m.tokens.0),
        ("microbatches", u64::from(m.microbatches)),
        ("steps", u64::from(m.steps)),
    ];
    let ratios = [
        ("throughput_tok_s", m.tokens_per_s()),
        ("throughput_run_tok_s", m.run_tokens_per_s()),
        ("samples_s", m.samples_per_s()),
        ("steps_s", m.steps_per_s()),
        ("makespan_s", m.makespan.as_ns() as f64 / 1e9),
        ("hs_slots_mean", m.peaks.slots_mean(m.end())),
        ("buckets_per_step_mean", m.mix.distinct_mean),
        ("mix_tv_mean", m.mix.tv_mean),
        ("mix_tv_max", m.mix.tv_max),
        ("mix_windows_at_most_two", m.mix.windows_at_most_two),
        ("padding", m.padding()),
    ];
    let shares = Activity::ALL.iter().flat_map(|&activity| {
        let name = |stage: &str| format!("{stage}_{}", activity.name());
        [
            (name("target"), m.target_share(activity)),
            (name("drafter"), m.drafter_share(activity)),
        ]
    });
    let ratios = ratios
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .chain(shares)
        .filter_map(|(name, value)| {
            let rounded = (value * 1e6).round() / 1e6;
            Some((name, serde_json::Number::from_f64(rounded)?))
        });
    let counts = counts.map(|(name, count)| (name.to_owned(), count.into()));
    ratios.chain(counts).collect()
}
