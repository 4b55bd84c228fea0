//! What is said before and after a run: what differs from the search, what to expect, and how it came out.

use super::cpu::{Trained, digest_of};
use super::{Ran, Ready};
use crate::figure::{Heading, LossCurve, LossRun};
use crate::scenario::{Case, PolicyFile};
use crate::verbs::best::{costs_hash, lengths_hash};
use ::exec::train::StepReport;
use shared::core::Activity;
use shared::plan::Plan;

/// Warnings where data or costs differ from what the policy was searched on.
pub(crate) fn differences(case: &Case, plan: &Plan) -> Vec<String> {
    let said = &case.file.provenance;
    let pairs = [
        (
            "the lengths are not those",
            &said.lengths_hash,
            lengths_hash(&case.lengths),
        ),
        (
            "the costs are not those",
            &said.costs_hash,
            costs_hash(&case.file),
        ),
        (
            "the plan is not the one",
            &said.plan_hash,
            format!("{:016x}", plan.digest()),
        ),
    ];
    pairs
        .iter()
        .filter(|(_, said, found)| !said.is_empty() && *said != found)
        .map(|(what, said, found)| {
            format!("warning: {what} the policy was searched on ({said}, now {found}); its expectation may not hold")
        })
        .collect()
}

/// What will run.
pub(crate) fn opening(ready: &Ready, backend: &str) -> String {
    let policy = &ready.case.file.policy;
    format!(
        "{}: {} on {} target + {} drafter workers ({backend}), {} microbatches in {} buckets",
        ready.case.file.name,
        policy.name,
        policy.targets,
        policy.drafters,
        ready.plan.microbatches.len(),
        ready.plan.buckets()
    )
}

/// How it came out beside what was expected.
pub(crate) fn closing(file: &PolicyFile, ran: &Ran) -> Vec<String> {
    let m = &ran.metrics;
    let expected = file.expect.throughput_tok_s;
    let mut lines = vec![format!(
        "measured {:.0} tok/s ({:.0} over the whole run), {:.1} samples/s, {} steps, {} HS slots = {}, targets {:.0} % busy, drafters {:.0} %",
        m.tokens_per_s(),
        m.run_tokens_per_s(),
        m.samples_per_s(),
        m.steps,
        m.peaks.slots,
        m.peaks.slot_bytes,
        100.0 * m.target_share(Activity::Busy),
        100.0 * m.drafter_share(Activity::Busy),
    )];
    if expected > 0.0 {
        let error = 100.0 * (expected / m.tokens_per_s() - 1.0);
        lines.push(format!(
            "predicted {expected:.0} tok/s: {error:+.1} % against the measurement"
        ));
    }
    lines.push(format!(
        "dispatch took {:.3} % of the wall time of {:.1} s",
        100.0 * ran.report.dispatch_share(),
        ran.report.wall.as_secs_f64()
    ));
    lines.extend(left_out(ran));
    for loss in &ran.report.lost {
        lines.push(format!("lost {}: {}", loss.site, loss.message));
    }
    lines
}

/// Samples that were not trained and will not be, by reason.
fn left_out(ran: &Ran) -> Option<String> {
    let ledger = &ran.metrics.ledger;
    let reasons = [
        (ledger.dropped.len(), "dropped by the tail rule"),
        (ledger.over_long.len(), "longer than the last bucket edge"),
        (ledger.failed.len(), "given up after failures"),
    ];
    let told: Vec<String> = reasons
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, why)| format!("{count} {why}"))
        .collect();
    (!told.is_empty()).then(|| format!("samples left out: {}", told.join(", ")))
}

/// How training went.
pub(crate) fn training(trained: &Trained) -> Vec<String> {
    let before = trained.before.iter().map(|[_, loss, _]| *loss);
    let losses: Vec<f64> = before.chain(trained.steps.iter().map(|s| s.loss)).collect();
    let (first, last) = ends(&losses);
    let accepted = trained
        .steps
        .last()
        .map_or(0.0, |s| s.expected_accepted_length);
    let mut lines = vec![format!(
        "loss {first:.3} at first, {last:.3} at last over {} steps; expected accepted length {accepted:.2}",
        losses.len()
    )];
    let digest = digest_of(&trained.checkpoint).unwrap_or_default();
    lines.push(format!(
        "checkpoint {} ({digest})",
        trained.checkpoint.display()
    ));
    lines
}

/// Means over the first and the last tenth of a series.
pub(crate) fn ends(series: &[f64]) -> (f64, f64) {
    let tenth = series.len().div_ceil(10);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    (
        mean(&series[..tenth]),
        mean(&series[series.len() - tenth..]),
    )
}

/// The loss over optimizer steps, with the learning rate.
pub(crate) fn loss_curve(ready: &Ready, trained: &Trained) -> LossCurve {
    let file = &ready.case.file;
    let series = |column: usize, value: fn(&StepReport) -> f64| {
        let before = trained.before.iter();
        let before = before.map(|point| (point[0], point[column]));
        let here = trained.steps.iter();
        let here = here.map(|step| (step.step as f64, value(step)));
        before.chain(here).collect()
    };
    LossCurve {
        heading: Heading {
            title: "Training loss".into(),
            shown: "position-weighted cross entropy of the drafter".into(),
            scenario: file.name.clone(),
            seed: Some(file.seed),
        },
        runs: vec![LossRun {
            name: file.policy.name.clone(),
            loss: series(1, |step| step.loss),
        }],
        learning_rate: series(2, |step| step.lr),
    }
}
