//! The answer on the terminal: a table of policies, the best one, and what limits it.

use super::Detailed;
use crate::results::bound_share;
use crate::scenario::PolicyFile;
use crate::verbs::sim::Searched;
use shared::core::Activity;
use sim::End;

/// The lines of the answer.
pub(crate) fn summary(
    searched: &Searched,
    best: Option<&PolicyFile>,
    detailed: &[Detailed],
) -> Vec<String> {
    let mut lines = table(searched, detailed);
    for detail in detailed {
        if let End::Deadlock(stall) = &detail.outcome.end {
            lines.push(format!("{}: {stall}", detail.name));
        }
    }
    if let (Some(file), Some(row)) = (best, searched.choice.best)
        && let Ok(outcome) = &searched.rows[row].outcome
    {
        lines.push(answer(file, outcome));
    }
    lines
}

fn table(searched: &Searched, detailed: &[Detailed]) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<18} {:>5} {:>10} {:>9} {:>7} {:>6} {:>9} {:>8} {:>8} {:>8}  {}",
        "policy",
        "split",
        "tok/s",
        "of bound",
        "slots",
        "HS GiB",
        "host GiB",
        "buckets",
        "tv max",
        "exc",
        "outcome"
    )];
    for detail in detailed {
        let row = &searched.rows[detail.row];
        let policy = &searched.cases[row.index].file.policy;
        let m = &detail.outcome.metrics;
        lines.push(format!(
            "{:<18} {:>5} {:>10.0} {:>8.1}% {:>7} {:>6.1} {:>9.1} {:>8} {:>8.3} {:>8}  {}",
            detail.name,
            format!("{}+{}", policy.targets, policy.drafters),
            row.throughput.mean,
            100.0 * bound_share(&detail.outcome),
            m.peaks.slots,
            gib(m.peaks.slot_bytes.0),
            gib(m.peaks.host.0),
            m.mix.distinct_min,
            m.mix.tv_max,
            m.mix.exceptions,
            if searched.choice.best == Some(detail.row) {
                "best"
            } else {
                row.verdict().name()
            }
        ));
    }
    lines
}

pub(crate) fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1_u64 << 30) as f64
}

fn answer(file: &PolicyFile, outcome: &sim::Outcome) -> String {
    let m = &outcome.metrics;
    let e = &file.expect;
    let half = (e.throughput_ci_high - e.throughput_ci_low) / 2.0;
    format!(
        "best: {} {}+{}, {:.0} +- {:.0} tok/s (fresh seeds), {:.1} % of the bound {:.0}, {} HS slots = {:.1} GiB, bottleneck {} (targets {:.0} % busy, drafters {:.0} %)",
        file.policy.name,
        file.policy.targets,
        file.policy.drafters,
        e.throughput_tok_s,
        half,
        100.0 * bound_share(outcome),
        e.bound_tok_s,
        e.hs_slots_peak,
        gib(e.hs_bytes_peak),
        outcome.bound.bottleneck(),
        100.0 * m.target_share(Activity::Busy),
        100.0 * m.drafter_share(Activity::Busy),
    )
}
