//! The exact values, and what it takes for a simulation to agree with one.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// One row of `queueing.csv`.
#[derive(Debug)]
pub(crate) struct Exact {
    case: &'static str,
    parameters: &'static str,
    metric: &'static str,
    value: f64,
}

const FILE: &str = include_str!("../data/queueing.csv");

/// All rows. The last column, the source of the formula, is for readers.
fn rows() -> impl Iterator<Item = Exact> {
    FILE.lines().skip(1).map(|line| {
        let mut cells = line.splitn(5, ',');
        let mut cell = || cells.next().expect("five columns");
        Exact {
            case: cell(),
            parameters: cell(),
            metric: cell(),
            value: cell().parse().expect("a number"),
        }
    })
}

/// The exact value of a metric. `parameters` is the beginning of that column and names one line of the case.
pub(crate) fn exact(case: &str, parameters: &str, metric: &str) -> f64 {
    let mut hits = rows().filter(|row| {
        row.case == case && row.parameters.starts_with(parameters) && row.metric == metric
    });
    let hit = hits.next();
    assert!(
        hits.next().is_none(),
        "{case} {parameters} {metric} is one row"
    );
    hit.unwrap_or_else(|| panic!("{case} {parameters} {metric} is a row"))
        .value
}

/// What one metric came to in each replication.
pub(crate) struct Measured {
    pub(crate) metric: &'static str,
    pub(crate) values: Vec<f64>,
    /// What the width of the interval is a share of: the value itself, or for a mean number of busy or waiting things how many
    /// there are.
    pub(crate) scale: f64,
}

/// The exact value lies in the 99 % interval over replications, and the interval is narrow enough to say something.
pub(crate) fn agrees(
    case: &str,
    parameters: &str,
    measured: &Measured,
    width_max: f64,
) -> Result<(), String> {
    let exact = exact(case, parameters, measured.metric);
    let (mean, half) = interval(&measured.values);
    let width = 2.0 * half / measured.scale;
    let text = format!(
        "{case} ({parameters}) {}: exact {exact:.6}, simulated {mean:.6} +- {half:.6}, {:.2} % wide",
        measured.metric,
        width * 100.0
    );
    let holds = (exact - mean).abs() <= half && width <= width_max;
    if holds { Ok(()) } else { Err(text) }
}

/// Mean and half-width of Student's 99 % interval.
fn interval(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let student = StudentsT::new(0.0, 1.0, n - 1.0).expect("several replications");
    (mean, student.inverse_cdf(0.995) * (variance / n).sqrt())
}
