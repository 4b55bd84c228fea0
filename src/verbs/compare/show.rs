//! A comparison as a table, as CSV and as a figure.

use super::{Compared, Comparison, Pair, error};
use crate::figure::{self, Heading, PairPanel, PredictionMeasurement};
use shared::core::Activity;
use shared::metrics::Metrics;

/// The totals of two runs, throughput first.
pub(super) fn totals(simulated: &Metrics, measured: &Metrics) -> Vec<Pair> {
    let pair = |name: String, unit, of: &dyn Fn(&Metrics) -> f64| Pair {
        name,
        unit,
        simulated: of(simulated),
        measured: of(measured),
    };
    let mut totals = vec![
        pair("throughput".into(), "tok/s", &Metrics::tokens_per_s),
        pair("makespan".into(), "s", &|m| m.makespan.as_ns() as f64 / 1e9),
        pair("HS slots peak".into(), "slots", &|m| {
            f64::from(m.peaks.slots)
        }),
    ];
    for activity in [
        Activity::Busy,
        Activity::Copying,
        Activity::Blocked,
        Activity::Starved,
    ] {
        totals.push(pair(format!("targets {}", activity.name()), "%", &|m| {
            100.0 * m.target_share(activity)
        }));
    }
    for activity in [
        Activity::Busy,
        Activity::Copying,
        Activity::Starved,
        Activity::Barrier,
    ] {
        totals.push(pair(format!("drafters {}", activity.name()), "%", &|m| {
            100.0 * m.drafter_share(activity)
        }));
    }
    totals
}

/// The table.
pub(super) fn lines(comparison: &Comparison) -> Vec<String> {
    let mut lines = vec![
        format!("{}: policy \"{}\"", comparison.name, comparison.policy),
        row(
            [
                "stage",
                "bucket",
                "sim n",
                "exec n",
                "simulated",
                "measured",
            ],
            "error",
        ),
    ];
    for stage in &comparison.stages {
        let counts = [stage.simulated.count, stage.measured.count].map(|n| n.to_string());
        let times = [stage.simulated.mean_ms(), stage.measured.mean_ms()];
        let times = times.map(|ms| format!("{ms:.3} ms"));
        lines.push(row(
            [
                stage.stage,
                &stage.bucket,
                &counts[0],
                &counts[1],
                &times[0],
                &times[1],
            ],
            &percent(stage.error()),
        ));
    }
    for pair in &comparison.totals {
        let values = [pair.simulated, pair.measured].map(|value| match pair.unit {
            "%" | "s" => format!("{value:.2} {}", pair.unit),
            unit => format!("{value:.0} {unit}"),
        });
        // An error in percent of a percentage confuses; the two stand side by side.
        let error = pair.error().filter(|_| pair.unit != "%");
        lines.push(row(
            [&pair.name, "", "", "", &values[0], &values[1]],
            &percent(error),
        ));
    }
    lines
}

impl Compared {
    /// How far the mean was off, where both runs did such work.
    pub(in crate::verbs) fn error(&self) -> Option<f64> {
        let both = self.simulated.count > 0 && self.measured.count > 0;
        error(self.simulated.mean_ms(), self.measured.mean_ms()).filter(|_| both)
    }
}

fn row(cells: [&str; 6], error: &str) -> String {
    let [stage, bucket, sim, exec, simulated, measured] = cells;
    format!("{stage:<18} {bucket:>8} {sim:>8} {exec:>8} {simulated:>15} {measured:>15} {error:>10}")
        .trim_end()
        .to_owned()
}

fn percent(error: Option<f64>) -> String {
    error.map_or_else(String::new, |error| format!("{:+.2} %", 100.0 * error))
}

/// The table as CSV: a row a stage and bucket, then a row a total.
pub(super) fn csv(comparison: &Comparison) -> Vec<u8> {
    let in_memory = "writing to memory cannot fail";
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record([
        "quantity",
        "bucket",
        "unit",
        "simulated_count",
        "measured_count",
        "simulated",
        "measured",
        "error",
    ])
    .expect(in_memory);
    let error = |error: Option<f64>| error.map_or_else(String::new, |e| format!("{e:.6}"));
    for stage in &comparison.stages {
        csv.write_record([
            stage.stage,
            &stage.bucket,
            "ms",
            &stage.simulated.count.to_string(),
            &stage.measured.count.to_string(),
            &format!("{:.6}", stage.simulated.mean_ms()),
            &format!("{:.6}", stage.measured.mean_ms()),
            &error(stage.error()),
        ])
        .expect(in_memory);
    }
    for pair in &comparison.totals {
        let values = [pair.simulated, pair.measured].map(|value| format!("{value:.6}"));
        csv.write_record([
            pair.name.as_str(),
            "",
            pair.unit,
            "",
            "",
            &values[0],
            &values[1],
            &error(pair.error()),
        ])
        .expect(in_memory);
    }
    csv.into_inner().expect(in_memory)
}

/// Mean times by stage and bucket beside each other, and the throughput.
pub(super) fn figure(comparison: &Comparison) -> PredictionMeasurement {
    let mut panels = Vec::<PairPanel>::new();
    for stage in &comparison.stages {
        let pair = figure::Pair {
            label: if stage.bucket.is_empty() {
                "all".into()
            } else {
                stage.bucket.clone()
            },
            predicted: stage.simulated.mean_ms(),
            measured: stage.measured.mean_ms(),
        };
        match panels.iter_mut().find(|panel| panel.title == stage.stage) {
            Some(panel) => panel.pairs.push(pair),
            None => panels.push(PairPanel {
                title: stage.stage.into(),
                axis: "Time [ms]".into(),
                pairs: vec![pair],
            }),
        }
    }
    let throughput = comparison.throughput();
    panels.push(PairPanel {
        title: throughput.name.clone(),
        axis: "Throughput [tok/s]".into(),
        pairs: vec![figure::Pair {
            label: "run".into(),
            predicted: throughput.simulated,
            measured: throughput.measured,
        }],
    });
    let error = percent(throughput.error());
    PredictionMeasurement {
        heading: Heading {
            title: format!(
                "Throughput of {} predicted within {error}",
                comparison.policy
            ),
            shown: "mean service time by stage and bucket, simulated and measured".into(),
            scenario: comparison.name.clone(),
            seed: None,
        },
        panels,
    }
}
