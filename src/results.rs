//! `results.csv`: a row a point, every metric.

use crate::failure::Failure;
use crate::output::OutputDir;
use crate::scenario::Case;
use crate::verbs::sim::Searched;
use shared::core::Activity;
use sim::{Outcome, Row, Standing, Verdict};
use std::collections::BTreeSet;
use std::io::Write;

/// Writes the rows of the cases that were simulated.
pub(crate) fn write(dir: &OutputDir, searched: &Searched) -> Result<(), Failure> {
    let cases = &searched.cases;
    let swept: BTreeSet<&str> = cases
        .iter()
        .flat_map(|case| case.swept.keys().map(String::as_str))
        .collect();
    let mut csv = csv::Writer::from_writer(Vec::new());
    let fixed = FIXED.iter().chain(&STANDING).copied();
    let header = fixed.chain(swept.iter().copied());
    let in_memory = "writing to memory cannot fail";
    csv.write_record(header.map(guarded)).expect(in_memory);
    for (place, row) in searched.rows.iter().enumerate() {
        let case = &cases[row.index];
        let cells = cells(case, row)
            .into_iter()
            .chain(standing(searched, place))
            .chain(
                swept
                    .iter()
                    .map(|key| case.swept.get(*key).cloned().unwrap_or_default()),
            );
        csv.write_record(cells.map(|cell| guarded(&cell)))
            .expect(in_memory);
    }
    let bytes = csv.into_inner().expect(in_memory);
    let mut file = dir.begin("results.csv")?;
    file.write_all(&bytes).map_err(|e| file.failed(e))?;
    file.publish()?;
    Ok(())
}

/// Spreadsheets run cells that begin like a formula; names come from files, numbers may begin with a minus.
fn guarded(cell: &str) -> String {
    let is_number = cell.parse::<f64>().is_ok();
    let risky = cell.starts_with(['=', '+', '-', '@']) && !is_number;
    if risky {
        format!("'{cell}")
    } else {
        cell.to_owned()
    }
}

const FIXED: [&str; 61] = [
    "scenario",
    "policy",
    "targets",
    "drafters",
    "depth_total",
    "seed",
    "outcome",
    "reason",
    "replications",
    "throughput_tok_s",
    "throughput_ci_low",
    "throughput_ci_high",
    "throughput_run_tok_s",
    "bound_tok_s",
    "bound_share",
    "bottleneck",
    "target_capacity_tok_s",
    "drafter_capacity_tok_s",
    "samples_s",
    "steps_s",
    "makespan_s",
    "hs_slots_peak",
    "hs_slots_mean",
    "hs_bytes_peak",
    "hs_alive_peak",
    "hs_alive_bytes_peak",
    "host_bytes_peak",
    "target_hs_bytes_peak",
    "drafter_hs_bytes_peak",
    "target_gpu_bytes_peak",
    "drafter_gpu_bytes_peak",
    "host_total_bytes_peak",
    "buckets_per_step_min",
    "buckets_per_step_mean",
    "mix_tv_mean",
    "mix_tv_max",
    "mix_exceptions",
    "mix_windows_at_most_two",
    "mix_longest_run",
    "mix_lag1",
    "mix_microbatch_lag1",
    "target_busy",
    "target_blocked",
    "target_copy",
    "target_starved",
    "drafter_busy",
    "drafter_starved",
    "drafter_copy",
    "drafter_barrier",
    "padding",
    "queue_delay_mean_s",
    "queue_delay_max_s",
    "samples_planned",
    "samples_trained",
    "samples_waiting",
    "samples_in_flight",
    "samples_failed",
    "samples_dropped",
    "samples_over_long",
    "microbatches",
    "steps",
];

/// How a row stands in the search, behind the numbers of its first run.
const STANDING: [&str; 12] = [
    "standing",
    "behind_tok_s",
    "behind_ci_low",
    "behind_ci_high",
    "p_slower",
    "variance_ratio",
    "warm_up_steps",
    "left_behind_round",
    "simulated_microbatches",
    "fresh_tok_s",
    "fresh_ci_low",
    "fresh_ci_high",
];

/// The cells of [`STANDING`].
fn standing(searched: &Searched, place: usize) -> Vec<String> {
    let (row, choice) = (&searched.rows[place], &searched.choice);
    let ranking = choice.ranking.as_ref();
    let compared = ranking.and_then(|ranking| ranking.of(place));
    let f = |x: f64| format!("{x:.3}");
    let or_empty = |x: Option<f64>| x.filter(|x| x.is_finite()).map(f).unwrap_or_default();
    let half = compared.and_then(|c| c.half_width);
    let behind = compared.map(|c| c.difference);
    let p_slower = compared.map(|c| c.p_slower).filter(|p| p.is_finite());
    let outcome = row.outcome.as_ref().ok();
    let warm_up = outcome.and_then(|outcome| outcome.warm_up);
    let fresh = searched.confirmation.filter(|(best, _)| *best == place);
    let fresh = fresh.map(|(_, confirmation)| confirmation.throughput);
    vec![
        standing_name(searched, place).to_owned(),
        or_empty(behind),
        or_empty(behind.zip(half).map(|(mean, half)| mean - half)),
        or_empty(behind.zip(half).map(|(mean, half)| mean + half)),
        p_slower.map(|p| format!("{p:.6}")).unwrap_or_default(),
        or_empty(compared.and_then(|c| c.variance_ratio)),
        warm_up.map(|w| w.cut.to_string()).unwrap_or_default(),
        row.left_behind.map(|r| r.to_string()).unwrap_or_default(),
        row.simulated.to_string(),
        or_empty(fresh.map(|e| e.mean)),
        or_empty(fresh.map(|e| e.low())),
        or_empty(fresh.map(|e| e.high())),
    ]
}

/// `best`, `tie`, `slower`, `open`, `excluded`, or `left-behind` after short runs; nothing for what is not done.
fn standing_name(searched: &Searched, place: usize) -> &'static str {
    let (row, choice) = (&searched.rows[place], &searched.choice);
    let ranked = choice.ranking.as_ref().and_then(|r| r.standing(place));
    if choice.named() == Some(place) {
        "best"
    } else if row.verdict() != Verdict::Done {
        ""
    } else if choice.excluded.iter().any(|&(i, _)| i == place) {
        "excluded"
    } else if row.left_behind.is_some() {
        "left-behind"
    } else if choice.ties.contains(&place) {
        "tie"
    } else {
        match ranked {
            Some(Standing::Slower) => "slower",
            Some(Standing::Open) => "open",
            Some(Standing::Tie) => "tie",
            None => "",
        }
    }
}

/// The fixed cells of a row, in the order of [`FIXED`].
fn cells(case: &Case, row: &Row) -> Vec<String> {
    let policy = &case.file.policy;
    let depth = policy.depth_total.or_else(|| {
        policy
            .depth_per_drafter
            .map(|depth| depth * u32::from(policy.drafters))
    });
    let reason = match &row.outcome {
        Err(error) => error.to_string(),
        Ok(outcome) => outcome_reason(outcome),
    };
    let mut cells = vec![
        case.file.name.clone(),
        policy.name.clone(),
        policy.targets.to_string(),
        policy.drafters.to_string(),
        depth.map(|d| d.to_string()).unwrap_or_default(),
        case.file.seed.to_string(),
        row.verdict().name().to_owned(),
        reason,
        row.throughput.count.to_string(),
    ];
    match &row.outcome {
        Ok(outcome) => cells.extend(numbers(row, outcome)),
        Err(_) => cells.resize(FIXED.len(), String::new()),
    }
    assert_eq!(cells.len(), FIXED.len(), "a cell a column");
    cells
}

fn outcome_reason(outcome: &Outcome) -> String {
    match &outcome.end {
        sim::End::Deadlock(stall) => stall
            .to_string()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
        sim::End::Done => outcome
            .overflow
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; "),
    }
}

fn numbers(row: &Row, outcome: &Outcome) -> Vec<String> {
    let m = &outcome.metrics;
    let bound = &outcome.bound;
    let peaks = &m.peaks;
    let most = |bytes: &[shared::id::Bytes]| bytes.iter().map(|b| b.0).max().unwrap_or(0);
    let gpu = |parts: &[sim::Part]| parts.iter().map(|p| p.total().0).max().unwrap_or(0);
    let waited: u64 = m.delays.iter().map(|d| d.sum.as_ns()).sum();
    let waits: u32 = m.delays.iter().map(|d| d.count).sum();
    let longest = m.delays.iter().map(|d| d.max.as_ns()).max().unwrap_or(0);
    let ledger = &m.ledger;
    let f = |x: f64| format!("{x:.3}");
    let share = |x: f64| format!("{x:.5}");
    let seconds = |ns: f64| format!("{:.4}", ns / 1e9);
    vec![
        f(row.throughput.mean),
        f(row.throughput.low()),
        f(row.throughput.high()),
        f(m.run_tokens_per_s()),
        f(bound.tokens_per_s()),
        share(bound_share(outcome)),
        bound.bottleneck().name().into(),
        f(bound.target_tokens_per_s()),
        f(bound.drafter_tokens_per_s()),
        f(m.samples_per_s()),
        format!("{:.5}", m.steps_per_s()),
        seconds(m.makespan.as_ns() as f64),
        peaks.slots.to_string(),
        f(peaks.slots_mean(m.end())),
        peaks.slot_bytes.0.to_string(),
        peaks.alive.to_string(),
        peaks.alive_bytes.0.to_string(),
        peaks.host.0.to_string(),
        most(&peaks.targets).to_string(),
        most(&peaks.drafters).to_string(),
        gpu(&outcome.memory.targets).to_string(),
        gpu(&outcome.memory.drafters).to_string(),
        outcome.memory.host.total().0.to_string(),
        m.mix.distinct_min.to_string(),
        f(m.mix.distinct_mean),
        share(m.mix.tv_mean),
        share(m.mix.tv_max),
        m.mix.exceptions.to_string(),
        share(m.mix.windows_at_most_two),
        m.mix.longest_run.to_string(),
        m.mix.lag1.map(share).unwrap_or_default(),
        m.mix.microbatch_lag1.map(share).unwrap_or_default(),
        share(m.target_share(Activity::Busy)),
        share(m.target_share(Activity::Blocked)),
        share(m.target_share(Activity::Copying)),
        share(m.target_share(Activity::Starved)),
        share(m.drafter_share(Activity::Busy)),
        share(m.drafter_share(Activity::Starved)),
        share(m.drafter_share(Activity::Copying)),
        share(m.drafter_share(Activity::Barrier)),
        share(m.padding()),
        seconds(waited as f64 / f64::from(waits.max(1))),
        seconds(longest as f64),
        ledger.planned.to_string(),
        ledger.trained.to_string(),
        ledger.waiting.to_string(),
        ledger.in_flight.to_string(),
        ledger.failed.len().to_string(),
        ledger.dropped.len().to_string(),
        ledger.over_long.len().to_string(),
        m.microbatches.to_string(),
        m.steps.to_string(),
    ]
}

/// Throughput of the whole run over the bound: filling and draining count, so it cannot exceed 1.
pub(crate) fn bound_share(outcome: &Outcome) -> f64 {
    let bound = outcome.bound.tokens_per_s();
    if bound > 0.0 {
        outcome.metrics.run_tokens_per_s() / bound
    } else {
        0.0
    }
}
