//! Means over seeds, and paired differences to the first value.

use super::{Outcome, Vary};
use sim::Estimate;

/// A quantity that the drafters of a run are judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Tokens gained a target forward.
    Acceptance,
    /// Position-weighted cross entropy on held-out samples.
    Loss,
}

impl Quantity {
    pub(super) const ALL: [Self; 2] = [Self::Acceptance, Self::Loss];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Acceptance => "Acceptance length",
            Self::Loss => "Held-out loss",
        }
    }

    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Acceptance => "tokens/forward",
            Self::Loss => "nats",
        }
    }

    fn of(self, outcome: &Outcome, group: &str) -> f64 {
        let groups = match self {
            Self::Acceptance => &outcome.acceptance,
            Self::Loss => &outcome.loss,
        };
        let found = groups.iter().find(|(name, _)| name == group);
        found.map_or(f64::NAN, |(_, value)| *value)
    }
}

/// One value of the varied key in one group.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// By seed.
    pub(super) runs: Vec<f64>,
    pub(super) mean: Estimate,
    /// This minus the first value, seed by seed.
    pub(super) difference: Estimate,
}

/// One quantity in all groups.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) quantity: Quantity,
    /// All first, then bucket by bucket.
    pub(super) groups: Vec<String>,
    /// One row a value of the key, one cell a group.
    pub(super) rows: Vec<Vec<Cell>>,
}

/// The whole ablation.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    pub(super) key: String,
    pub(super) values: Vec<String>,
    pub(super) seeds: Vec<u64>,
    pub(super) tables: Vec<Table>,
    pub(super) outcomes: Vec<Outcome>,
}

impl Comparison {
    pub(super) fn of(vary: &Vary, seeds: &[u64], outcomes: Vec<Outcome>) -> Self {
        let tables = Quantity::ALL
            .into_iter()
            .filter_map(|quantity| table(quantity, &vary.values, seeds, &outcomes))
            .collect();
        Self {
            key: vary.key.clone(),
            values: vary.values.clone(),
            seeds: seeds.to_vec(),
            tables,
            outcomes,
        }
    }

    /// The answer, a line a quantity and value.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for table in &self.tables {
            let unit = table.quantity.unit();
            for (value, row) in self.values.iter().zip(&table.rows) {
                let all = &row[0];
                let mut line = format!(
                    "{} with {} = {value}: {} {unit}",
                    table.quantity.title(),
                    self.key,
                    interval(&all.mean)
                );
                if *value != self.values[0] {
                    line += &format!(
                        ", {} against {} ({})",
                        signed(&all.difference),
                        self.values[0],
                        verdict(&all.difference)
                    );
                }
                lines.push(line);
            }
        }
        lines
    }
}

fn table(
    quantity: Quantity,
    values: &[String],
    seeds: &[u64],
    outcomes: &[Outcome],
) -> Option<Table> {
    let first = outcomes.first()?;
    let groups: Vec<String> = match quantity {
        Quantity::Acceptance => first
            .acceptance
            .iter()
            .map(|(name, _)| name.clone())
            .collect(),
        Quantity::Loss => first.loss.iter().map(|(name, _)| name.clone()).collect(),
    };
    if groups.is_empty() {
        return None;
    }
    let series = |value: &str, group: &str| -> Vec<f64> {
        let of = |seed: &u64| {
            let mine = outcomes
                .iter()
                .find(|o| o.value == value && o.seed == *seed);
            mine.map_or(f64::NAN, |outcome| quantity.of(outcome, group))
        };
        seeds.iter().map(of).collect()
    };
    let cell = |value: &str, group: &str| {
        let (runs, base) = (series(value, group), series(&values[0], group));
        let paired: Vec<f64> = runs.iter().zip(base).map(|(a, b)| a - b).collect();
        Cell {
            mean: estimate(&runs),
            difference: estimate(&paired),
            runs,
        }
    };
    let row = |value: &String| groups.iter().map(|group| cell(value, group)).collect();
    let rows = values.iter().map(row).collect();
    Some(Table {
        quantity,
        groups,
        rows,
    })
}

/// Over the runs that have a value.
fn estimate(runs: &[f64]) -> Estimate {
    let known: Vec<f64> = runs.iter().copied().filter(|v| v.is_finite()).collect();
    if known.is_empty() {
        return Estimate {
            mean: f64::NAN,
            half_width: f64::NAN,
            count: 0,
        };
    }
    Estimate::of(&known)
}

pub(super) fn interval(e: &Estimate) -> String {
    format!("{:.3} ± {:.3}", e.mean, e.half_width)
}

pub(super) fn signed(e: &Estimate) -> String {
    format!("{:+.3} ± {:.3}", e.mean, e.half_width)
}

/// What a paired difference says.
pub(super) fn verdict(difference: &Estimate) -> &'static str {
    if difference.count < 2 || !difference.mean.is_finite() {
        "not judged"
    } else if difference.low() > 0.0 {
        "more"
    } else if difference.high() < 0.0 {
        "less"
    } else {
        "a tie"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(value: &str, seed: u64, all: f64) -> Outcome {
        Outcome {
            value: value.into(),
            seed,
            acceptance: vec![("all".into(), all), ("b0".into(), f64::NAN)],
            loss: Vec::new(),
            steps: 3,
            train_loss: 1.0,
        }
    }

    #[test]
    fn differences_are_paired_by_seed() {
        let vary = Vary::parse("k=a,b").unwrap();
        let outcomes = vec![
            outcome("a", 1, 2.0),
            outcome("b", 1, 2.5),
            outcome("a", 2, 3.0),
            outcome("b", 2, 3.5),
        ];
        let comparison = Comparison::of(&vary, &[1, 2], outcomes);
        let [table] = &comparison.tables[..] else {
            panic!("loss was not measured")
        };
        let b = &table.rows[1][0];
        // Means spread by 1, differences by nothing.
        assert_eq!(
            (b.mean.mean, b.difference.mean, b.difference.half_width),
            (3.0, 0.5, 0.0)
        );
        assert_eq!(verdict(&b.difference), "more");
        assert!(table.rows[1][1].mean.mean.is_nan());
        assert!(
            comparison.lines()[1].contains("+0.500 ± 0.000 against a (more)"),
            "{:?}",
            comparison.lines()
        );
    }

    #[test]
    fn a_difference_within_its_interval_is_a_tie() {
        let spread = Estimate {
            mean: 0.1,
            half_width: 0.2,
            count: 3,
        };
        assert_eq!(verdict(&spread), "a tie");
        assert_eq!(verdict(&Estimate { count: 1, ..spread }), "not judged");
    }
}
