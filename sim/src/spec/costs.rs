//! How long work takes.

use super::check::{Checks, Problem};
use serde::{Deserialize, Serialize};

/// Service times of the stages and of what drafters do together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// One target forward.
    pub target: StageCost,
    /// One drafter forward and backward.
    pub drafter: StageCost,
    /// The weight update that ends an optimizer step. (ms)
    pub step_ms: f64,
    /// Summing gradients over drafters before it. (ms)
    #[serde(default)]
    pub all_reduce_ms: f64,
    /// Standard deviation of a service time, as a share of its mean.
    #[serde(default)]
    pub spread: f64,
    /// The law that service times follow around their mean.
    #[serde(default)]
    pub distribution: Distribution,
}

/// The law of service times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Log-normal with the given spread.
    #[default]
    Lognormal,
    /// Exponential, whose spread is 1 by nature: the case that queueing theory solves.
    Exponential,
    /// Always the mean.
    Deterministic,
}

/// The mean service time of one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StageFile", into = "StageFile")]
pub enum StageCost {
    /// One formula for all buckets.
    Formula(Formula),
    /// A formula for each bucket, shortest first.
    Table(Vec<Formula>),
}

/// base + tokens + samples + samples x longest^2, each with its coefficient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Formula {
    /// Of a microbatch, whatever it holds. (ms)
    pub base_ms: f64,
    /// Of a padded token. (us/token)
    pub per_token_us: f64,
    /// Of a sample. [ms/sample]
    pub per_sample_ms: f64,
    /// Of samples times the square of the longest one, as attention costs. [ns/token^2]
    pub per_token2_ns: f64,
}

/// [`StageCost`] as files hold it: the coefficients or `table` side by side.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StageFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    base_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_token_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_sample_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_token2_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<Vec<Formula>>,
}

impl TryFrom<StageFile> for StageCost {
    type Error = &'static str;

    fn try_from(file: StageFile) -> Result<Self, Self::Error> {
        let coefficients = [
            file.base_ms,
            file.per_token_us,
            file.per_sample_ms,
            file.per_token2_ns,
        ];
        // An empty table beside coefficients is none: a file laid over another cannot take the other's table away.
        let has_formula = coefficients.iter().any(Option::is_some);
        match file.table.filter(|t| !(t.is_empty() && has_formula)) {
            None => Ok(Self::Formula(Formula {
                base_ms: file.base_ms.unwrap_or(0.0),
                per_token_us: file.per_token_us.unwrap_or(0.0),
                per_sample_ms: file.per_sample_ms.unwrap_or(0.0),
                per_token2_ns: file.per_token2_ns.unwrap_or(0.0),
            })),
            Some(table) if coefficients.iter().all(Option::is_none) => Ok(Self::Table(table)),
            Some(_) => Err(
                "a cost is either a table or one formula; move the coefficients into the table's rows",
            ),
        }
    }
}

impl From<StageCost> for StageFile {
    fn from(cost: StageCost) -> Self {
        match cost {
            StageCost::Formula(formula) => Self {
                base_ms: Some(formula.base_ms),
                per_token_us: Some(formula.per_token_us),
                per_sample_ms: Some(formula.per_sample_ms),
                per_token2_ns: Some(formula.per_token2_ns),
                table: None,
            },
            StageCost::Table(table) => Self {
                table: Some(table),
                ..Self::default()
            },
        }
    }
}

impl Formula {
    /// Mean service time of a microbatch. (ms)
    pub fn ms(&self, padded: u64, samples: u32, longest: u32) -> f64 {
        let squares = f64::from(samples) * f64::from(longest) * f64::from(longest);
        self.base_ms
            + self.per_token_us * padded as f64 / 1e3
            + self.per_sample_ms * f64::from(samples)
            + self.per_token2_ns * squares / 1e6
    }

    fn coefficients(&self) -> [(&'static str, f64); 4] {
        [
            ("base_ms", self.base_ms),
            ("per_token_us", self.per_token_us),
            ("per_sample_ms", self.per_sample_ms),
            ("per_token2_ns", self.per_token2_ns),
        ]
    }

    fn validate(&self, at: &str) -> Vec<Problem> {
        let mut checks = Checks::new(at);
        for (key, coefficient) in self.coefficients() {
            checks.not_negative(key, coefficient, "leave it out for no such cost");
        }
        checks.require(
            self.coefficients().iter().any(|c| c.1 != 0.0),
            "",
            "a cost of 0 ms",
            "must be above 0 ms",
            "set base_ms, per_token_us, per_sample_ms or per_token2_ns",
        );
        checks.done()
    }
}

impl StageCost {
    /// The formula of bucket `bucket`, if the table reaches that far.
    pub fn formula(&self, bucket: usize) -> Option<&Formula> {
        match self {
            Self::Formula(formula) => Some(formula),
            Self::Table(table) => table.get(bucket),
        }
    }

    /// What cannot be simulated; `at` is the path of this value.
    pub fn validate(&self, at: &str) -> Vec<Problem> {
        let mut checks = Checks::new(at);
        match self {
            Self::Formula(formula) => checks.extend(formula.validate(at)),
            Self::Table(table) => {
                checks.require(
                    !table.is_empty(),
                    "table",
                    "no row",
                    "must be one row for each bucket",
                    "add rows or write one formula for all buckets",
                );
                for (index, formula) in table.iter().enumerate() {
                    let problems = formula.validate(&checks.path(&format!("table[{index}]")));
                    checks.extend(problems);
                }
            }
        }
        checks.done()
    }
}

impl Costs {
    /// What cannot be simulated; `at` is the path of this section.
    pub fn validate(&self, at: &str) -> Vec<Problem> {
        let mut checks = Checks::new(at);
        let problems = self.target.validate(&checks.path("target"));
        checks.extend(problems);
        let problems = self.drafter.validate(&checks.path("drafter"));
        checks.extend(problems);
        checks.not_negative(
            "step_ms",
            self.step_ms,
            "write 0 for an update without cost",
        );
        checks.not_negative(
            "all_reduce_ms",
            self.all_reduce_ms,
            "leave it out for no cost",
        );
        checks.not_negative("spread", self.spread, "write 0 for constant service times");
        checks.require(
            self.distribution == Distribution::Lognormal || self.spread == 0.0,
            "spread",
            self.spread,
            "can only be set for the lognormal distribution",
            "leave spread out or set distribution = \"lognormal\"",
        );
        checks.done()
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::lines;
    use super::*;

    const COSTS: &str = r#"
        step_ms = 35.0
        target = { base_ms = 12.0, per_token_us = 40.0 }
        drafter = { table = [ { per_sample_ms = 3.0 }, { per_token2_ns = 0.5 } ] }
    "#;

    #[test]
    fn a_formula_adds_its_four_parts() {
        let formula = Formula {
            base_ms: 1.0,
            per_token_us: 2.0,
            per_sample_ms: 3.0,
            per_token2_ns: 4.0,
        };
        // 1 + 2 us x 4000 + 3 ms x 4 + 4 ns x 4 x 1000^2
        assert_eq!(formula.ms(4000, 4, 1000), 1.0 + 8.0 + 12.0 + 16.0);
    }

    #[test]
    fn a_stage_is_a_formula_or_a_table() {
        let costs: Costs = toml::from_str(COSTS).unwrap();
        assert_eq!(costs.target.formula(5).unwrap().base_ms, 12.0);
        assert_eq!(costs.drafter.formula(1).unwrap().per_token2_ns, 0.5);
        assert_eq!(costs.drafter.formula(2), None);
        assert_eq!(costs.distribution, Distribution::Lognormal);
        assert_eq!(costs.validate("costs"), []);
        let text = toml::to_string(&costs).unwrap();
        assert_eq!(toml::from_str::<Costs>(&text).unwrap(), costs);
    }

    #[test]
    fn a_formula_laid_over_a_table_takes_its_place() {
        let cost: StageCost = toml::from_str("base_ms = 1\ntable = []").unwrap();
        assert_eq!(cost.formula(7).map(|f| f.base_ms), Some(1.0));
    }

    #[test]
    fn a_stage_is_not_both() {
        let refused = |text| toml::from_str::<StageCost>(text).unwrap_err();
        assert_eq!(
            refused("base_ms = 1\ntable = [ {} ]").message(),
            "a cost is either a table or one formula; move the coefficients into the table's rows"
        );
        assert_eq!(
            refused("base = 1").message(),
            "unknown field `base`, expected one of `base_ms`, `per_token_us`, `per_sample_ms`, `per_token2_ns`, `table`"
        );
        assert_eq!(
            refused("table = [ { base = 1 } ]").message(),
            "unknown field `base`, expected one of `base_ms`, `per_token_us`, `per_sample_ms`, `per_token2_ns`"
        );
    }

    #[test]
    fn costs_are_finite_and_not_all_zero() {
        let text = r#"
            step_ms = nan
            all_reduce_ms = -1
            spread = inf
            target = { base_ms = 0.0 }
            drafter = { table = [ { base_ms = -3.0 } ] }
        "#;
        let costs: Costs = toml::from_str(text).unwrap();
        assert_eq!(
            lines(&costs.validate("costs")),
            [
                "costs.target: a cost of 0 ms must be above 0 ms; set base_ms, per_token_us, per_sample_ms or per_token2_ns",
                "costs.drafter.table[0].base_ms: -3 must be finite and at least 0; leave it out for no such cost",
                "costs.step_ms: NaN must be finite and at least 0; write 0 for an update without cost",
                "costs.all_reduce_ms: -1 must be finite and at least 0; leave it out for no cost",
                "costs.spread: inf must be finite and at least 0; write 0 for constant service times",
            ]
        );
        let empty: StageCost = toml::from_str("table = []").unwrap();
        assert_eq!(
            lines(&empty.validate("costs.target")),
            [
                "costs.target.table: no row must be one row for each bucket; add rows or write one formula for all buckets"
            ]
        );
    }

    #[test]
    fn only_the_lognormal_law_takes_a_spread() {
        let text = format!("distribution = 'exponential'\nspread = 0.1\n{COSTS}");
        let costs: Costs = toml::from_str(&text).unwrap();
        assert_eq!(
            lines(&costs.validate("costs")),
            [
                "costs.spread: 0.1 can only be set for the lognormal distribution; leave spread out or set distribution = \"lognormal\""
            ]
        );
    }
}
