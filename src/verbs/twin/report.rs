//! The aggregate of all comparisons: tables, CSV and a figure.

use super::score::{Entry, Noise, Score};
use crate::figure::{self, Heading, PairPanel, PredictionMeasurement};
use crate::verbs::compare::Comparison;
use std::collections::BTreeMap;

/// A policy with all that was compared.
pub(super) struct Compared {
    pub(super) entry: Entry,
    /// One a run.
    pub(super) comparisons: Vec<Comparison>,
    /// What no policy with its work could exceed, by the costs measured. (tok/s)
    pub(super) bound: f64,
    /// One a run: real tokens over the whole run, filling and draining included. (tok/s)
    pub(super) whole: Vec<f64>,
}

impl Compared {
    /// The measured run's share of the bound.
    pub(super) fn bound_share(&self) -> f64 {
        let whole = self.whole.iter().sum::<f64>() / self.whole.len().max(1) as f64;
        whole / self.bound
    }
}

/// Pairs in the wrong order that are named.
const SWAPPED_SHOWN: usize = 8;

/// The table and the verdict.
pub(super) fn lines(all: &[Compared], score: &Score) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<28} {:>5} {:>13} {:>13} {:>9} {:>9}",
        "policy", "runs", "predicted", "measured", "error", "of bound"
    )];
    for one in all {
        let entry = &one.entry;
        lines.push(format!(
            "{:<28} {:>5} {:>7.0} tok/s {:>7.0} tok/s {:>+7.2} % {:>7.1} %",
            entry.name,
            entry.measured.len(),
            entry.predicted,
            entry.mean(),
            100.0 * entry.error(),
            100.0 * one.bound_share(),
        ));
    }
    for (stage, error) in stage_errors(all) {
        lines.push(format!(
            "{stage}: mean time off by {:.2} % on average over buckets and policies",
            100.0 * error
        ));
    }
    let noise = match score.noise {
        Noise::OfRuns(noise) => format!("one run's noise is {:.2} %", 100.0 * noise),
        Noise::OfSteps(noise) => format!(
            "each policy ran once; by the steps of a run its noise is {:.2} %",
            100.0 * noise
        ),
        Noise::Unknown => "each policy ran once, and too shortly to know its noise".to_owned(),
    };
    lines.push(format!(
        "throughput off by {:.2} % on average, {:.2} % at most; {noise}",
        100.0 * score.error_mean,
        100.0 * score.error_max
    ));
    lines.push(match score.tau() {
        Some(tau) => format!(
            "order: Kendall tau {tau:.3} over the {} pairs that differ by more than noise",
            score.pairs
        ),
        None => "order: no two policies differ by more than noise".to_owned(),
    });
    for (a, b) in score.swapped.iter().take(SWAPPED_SHOWN) {
        lines.push(format!("  {a} and {b} were not predicted in this order"));
    }
    if score.swapped.len() > SWAPPED_SHOWN {
        let more = score.swapped.len() - SWAPPED_SHOWN;
        lines.push(format!("  and {more} more"));
    }
    lines.push(format!(
        "the prediction chooses {}, {} was fastest: regret {:.2} %",
        score.chosen,
        score.fastest,
        100.0 * score.regret
    ));
    lines
}

/// Mean absolute error of the mean times of each stage.
fn stage_errors(all: &[Compared]) -> Vec<(&'static str, f64)> {
    let mut errors: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    for stage in all
        .iter()
        .flat_map(|one| &one.comparisons)
        .flat_map(|comparison| &comparison.stages)
    {
        if let Some(error) = stage.error() {
            errors.entry(stage.stage).or_default().push(error.abs());
        }
    }
    let mean = |errors: Vec<f64>| errors.iter().sum::<f64>() / errors.len() as f64;
    errors
        .into_iter()
        .map(|(stage, errors)| (stage, mean(errors)))
        .collect()
}

/// `twin.csv`: a row a run.
pub(super) fn csv(all: &[Compared]) -> Vec<u8> {
    let in_memory = "writing to memory cannot fail";
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record([
        "policy",
        "run",
        "predicted_tok_s",
        "measured_tok_s",
        "error",
        "bound_tok_s",
        "whole_run_tok_s",
        "bound_share",
    ])
    .expect(in_memory);
    for one in all {
        for (run, (measured, whole)) in one.entry.measured.iter().zip(&one.whole).enumerate() {
            csv.write_record([
                one.entry.name.clone(),
                (run + 1).to_string(),
                format!("{:.3}", one.entry.predicted),
                format!("{measured:.3}"),
                format!("{:.6}", one.entry.predicted / measured - 1.0),
                format!("{:.3}", one.bound),
                format!("{whole:.3}"),
                format!("{:.6}", whole / one.bound),
            ])
            .expect(in_memory);
        }
    }
    csv.into_inner().expect(in_memory)
}

/// `stages.csv`: a row a policy, run, stage and bucket.
pub(super) fn stages_csv(all: &[Compared]) -> Vec<u8> {
    let in_memory = "writing to memory cannot fail";
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record([
        "policy",
        "run",
        "stage",
        "bucket",
        "count",
        "simulated_ms",
        "measured_ms",
        "error",
    ])
    .expect(in_memory);
    for one in all {
        for (run, comparison) in one.comparisons.iter().enumerate() {
            for stage in &comparison.stages {
                csv.write_record([
                    one.entry.name.clone(),
                    (run + 1).to_string(),
                    stage.stage.to_owned(),
                    stage.bucket.clone(),
                    stage.measured.count.to_string(),
                    format!("{:.6}", stage.simulated.mean_ms()),
                    format!("{:.6}", stage.measured.mean_ms()),
                    stage
                        .error()
                        .map_or_else(String::new, |e| format!("{e:.6}")),
                ])
                .expect(in_memory);
            }
        }
    }
    csv.into_inner().expect(in_memory)
}

/// Throughput of all policies, predicted and measured.
pub(super) fn figure(name: &str, all: &[Compared], score: &Score) -> PredictionMeasurement {
    PredictionMeasurement {
        heading: Heading {
            title: format!(
                "{} policies predicted within {:.1} %",
                all.len(),
                100.0 * score.error_max
            ),
            shown: "throughput, simulated before the run and measured in it".into(),
            scenario: name.into(),
            seed: None,
        },
        panels: vec![PairPanel {
            title: "throughput".into(),
            axis: "Throughput [tok/s]".into(),
            pairs: all
                .iter()
                .map(|one| figure::Pair {
                    label: one.entry.name.clone(),
                    predicted: one.entry.predicted,
                    measured: one.entry.mean(),
                })
                .collect(),
        }],
    }
}
