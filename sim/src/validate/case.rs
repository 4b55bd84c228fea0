//! One case: a line, what is measured of it, and whether that agrees with the exact values.

use super::estimate::interval;
use super::line::Line;
use super::reference::{Exact, exact};
use super::run::{Run, run};
use rayon::prelude::*;
use shared::draw::Seed;

/// Widest interval that counts, as a share of what it is a share of.
pub const WIDTH_MAX: f64 = 0.01;

/// How an exact value and a simulated one compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The exact value and where it comes from.
    pub exact: Exact,
    /// What was simulated: the mean over replications, or the one value of a case without chance.
    pub simulated: f64,
    /// Half the width of the 99 % interval; 0 for a case without chance.
    pub half_width: f64,
    /// The width as a share: of the value itself, or for a probability or a number of workers, of 1 or of how many there are.
    pub width: f64,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The exact value lies in the interval, and that is narrow; or the value is exact.
    Holds,
    /// It lay outside at first, and inside on fresh seeds four times as long: once in a hundred that is chance.
    HoldsAgain,
    /// The interval holds the value and is too wide to say much.
    Wide,
    /// The value is another.
    Fails,
}

impl Verdict {
    /// Whether the exact value is confirmed.
    pub fn holds(self) -> bool {
        matches!(self, Self::Holds | Self::HoldsAgain)
    }
}

/// All that one case gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The case's name.
    pub case: &'static str,
    /// How the model expresses it.
    pub how: &'static str,
    /// Each exact value with the simulated one.
    pub findings: Vec<Finding>,
    /// Runs on which all laws were checked.
    pub runs: u32,
    /// Microbatches simulated.
    pub items: u64,
    /// Laws that a run broke, with both sides.
    pub broken: Vec<String>,
}

impl Report {
    /// Whether every value is confirmed and no law broken.
    pub fn holds(&self) -> bool {
        self.broken.is_empty() && self.findings.iter().all(|f| f.verdict.holds())
    }
}

/// What the width of an interval is a share of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scale {
    /// The exact value.
    Value,
    /// A probability's 1, or how many workers there are.
    Of(f64),
}

/// One metric of a case.
#[derive(Clone, Copy)]
pub(super) struct Measure {
    pub(super) metric: &'static str,
    pub(super) of: fn(&Run) -> f64,
    pub(super) scale: Scale,
    /// Whether draws that were off are taken into account. What depends on nothing else is left as it is.
    pub(super) controlled: bool,
}

/// Measures by name, relative to their value.
pub(super) fn measure(metric: &'static str, of: fn(&Run) -> f64) -> Measure {
    Measure {
        metric,
        of,
        scale: Scale::Value,
        controlled: true,
    }
}

impl Measure {
    pub(super) fn out_of(self, whole: f64) -> Self {
        Self {
            scale: Scale::Of(whole),
            ..self
        }
    }

    pub(super) fn as_drawn(self) -> Self {
        Self {
            controlled: false,
            ..self
        }
    }
}

/// How long to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Every case runs one so-many-th of its items, and intervals may be wider in proportion.
    pub shorter: u32,
}

impl Effort {
    /// Intervals under 1 %.
    pub const FULL: Self = Self { shorter: 1 };
}

/// One line with its exact values.
pub struct Case {
    pub(super) name: &'static str,
    /// The beginning of the reference's parameters.
    pub(super) parameters: String,
    pub(super) how: &'static str,
    pub(super) kind: Kind,
}

/// Something simulated once, with the value it must be equal to.
pub(super) struct Sure {
    pub(super) exact: Exact,
    pub(super) simulated: f64,
    /// Largest relative difference; 0 for whole nanoseconds.
    pub(super) tolerance: f64,
}

pub(super) enum Kind {
    Sampled {
        line: Box<Line>,
        /// Items of all replications.
        items: u32,
        measures: Vec<Measure>,
    },
    /// No chance in it.
    Sure(fn() -> Vec<Sure>),
}

/// Replications of a sampled case.
const REPLICATIONS: u32 = 48;
/// Fewest items of a replication.
const ITEMS_MIN: u32 = 2_000;
/// How much longer a second look is.
const LONGER: u32 = 4;

impl Effort {
    /// Items of a replication, of so many in all.
    fn each(self, items: u32) -> u32 {
        (items / self.shorter / REPLICATIONS).max(ITEMS_MIN)
    }
}

impl Case {
    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Microbatches it simulates.
    pub fn items(&self, effort: Effort) -> u64 {
        match &self.kind {
            Kind::Sampled { items, .. } => u64::from(REPLICATIONS) * u64::from(effort.each(*items)),
            Kind::Sure(_) => 0,
        }
    }

    /// Simulates it and compares; `done` is told of microbatches as they are through.
    pub fn validate(&self, seed: Seed, effort: Effort, done: &(dyn Fn(u64) + Sync)) -> Report {
        match &self.kind {
            Kind::Sampled {
                line,
                items,
                measures,
            } => self.sample(line, *items, measures, (seed, effort), done),
            Kind::Sure(values) => self.report(values().into_iter().map(Sure::compare).collect()),
        }
    }

    fn report(&self, findings: Vec<Finding>) -> Report {
        Report {
            case: self.name,
            how: self.how,
            findings,
            runs: 0,
            items: 0,
            broken: Vec::new(),
        }
    }

    fn sample(
        &self,
        line: &Line,
        whole: u32,
        measures: &[Measure],
        (seed, effort): (Seed, Effort),
        done: &(dyn Fn(u64) + Sync),
    ) -> Report {
        let sampled = |seed: Seed, items: u32| -> Sampled {
            let replications = (0..u64::from(REPLICATIONS)).into_par_iter().map(|number| {
                let run = run(line, items, seed.derive(number));
                done(items.into());
                let values = measures.iter().map(|m| (m.of)(&run)).collect();
                (values, run.controls, run.broken)
            });
            Sampled::gather(replications.collect())
        };
        let items = effort.each(whole);
        let first = sampled(seed, items);
        let mut report = self.report(Vec::new());
        report.runs = REPLICATIONS;
        report.items = u64::from(REPLICATIONS) * u64::from(items);
        let compare = |sampled: &Sampled, i: usize, width_max: f64| {
            let exact = exact(self.name, &self.parameters, measures[i].metric);
            sampled.compare(i, &measures[i], exact, width_max)
        };
        let part = f64::from(REPLICATIONS) * f64::from(items) / f64::from(whole);
        // Controls explain less of replications that are cut short.
        let width_max = match effort.shorter {
            1 => WIDTH_MAX,
            _ => 2.0 * WIDTH_MAX / part.min(1.0).sqrt(),
        };
        report.findings = (0..measures.len())
            .map(|i| compare(&first, i, width_max))
            .collect();
        report.broken.extend(first.broken);
        if report.findings.iter().any(|f| f.verdict == Verdict::Fails) {
            // Of a hundred values that are right, one falls outside. What is wrong stays outside when it is looked at closer.
            let second = sampled(seed.derive(u64::from(REPLICATIONS)), items * LONGER);
            for (i, finding) in report.findings.iter_mut().enumerate() {
                if finding.verdict == Verdict::Fails {
                    *finding = compare(&second, i, width_max);
                    if finding.verdict == Verdict::Holds {
                        finding.verdict = Verdict::HoldsAgain;
                    }
                }
            }
            report.runs += REPLICATIONS;
            report.items += u64::from(REPLICATIONS) * u64::from(items * LONGER);
            report.broken.extend(second.broken);
        }
        report
    }
}

/// One replication: the values of all measures, its controls, and the law it breaks.
type Replication = (Vec<f64>, Vec<f64>, Option<String>);

/// Values by metric and controls by kind, each a list over replications.
struct Sampled {
    values: Vec<Vec<f64>>,
    controls: Vec<Vec<f64>>,
    broken: Vec<String>,
}

impl Sampled {
    fn gather(runs: Vec<Replication>) -> Self {
        let turned = |of: &dyn Fn(&Replication) -> Vec<f64>| {
            let rows: Vec<Vec<f64>> = runs.iter().map(of).collect();
            let columns = 0..rows[0].len();
            columns
                .map(|i| rows.iter().map(|row| row[i]).collect())
                .collect::<Vec<Vec<f64>>>()
        };
        Self {
            values: turned(&|run| run.0.clone()),
            controls: turned(&|run| run.1.clone()),
            broken: runs
                .iter()
                .filter_map(|run| run.2.clone())
                .take(1)
                .collect(),
        }
    }

    fn compare(&self, i: usize, measure: &Measure, exact: &Exact, width_max: f64) -> Finding {
        let controls: &[Vec<f64>] = if measure.controlled {
            &self.controls
        } else {
            &[]
        };
        let found = interval(&self.values[i], controls);
        let whole = match measure.scale {
            Scale::Value => exact.value,
            Scale::Of(whole) => whole,
        };
        let width = 2.0 * found.half_width / whole;
        let verdict = if (exact.value - found.mean).abs() > found.half_width {
            Verdict::Fails
        } else if width > width_max {
            Verdict::Wide
        } else {
            Verdict::Holds
        };
        Finding {
            exact: exact.clone(),
            simulated: found.mean,
            half_width: found.half_width,
            width,
            verdict,
        }
    }
}

impl Sure {
    fn compare(self) -> Finding {
        let off = (self.simulated - self.exact.value).abs();
        let holds = off <= self.tolerance * self.exact.value.abs();
        Finding {
            simulated: self.simulated,
            half_width: 0.0,
            width: 0.0,
            verdict: if holds {
                Verdict::Holds
            } else {
                Verdict::Fails
            },
            exact: self.exact,
        }
    }
}
