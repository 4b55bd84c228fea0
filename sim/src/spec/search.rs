//! What the search looks for, and which points are out of the question.

use super::check::{Checks, Problem};
use super::units::ByteSize;
use serde::{Deserialize, Serialize};

/// Objective and constraints of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Search {
    /// How points are searched.
    pub method: Method,
    /// What is best.
    pub objective: Objective,
    /// Least throughput, at the lower end of its interval. (tok/s)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_min_tok_s: Option<f64>,
    /// Least share of the bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_bound_share: Option<f64>,
    /// Most total variation distance of any step's bucket mix from the data's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix_tv_max: Option<f64>,
    /// Fewest distinct buckets in any step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix_step_min: Option<u8>,
    /// Most hidden states alive at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hs_bytes_max: Option<ByteSize>,
    /// Points within this share of the best throughput are ties, the indifference zone of the selection; among ties the least memory of
    /// hidden states wins.
    pub tolerance: f64,
    /// Probability that the selection is right and all its comparisons hold.
    pub confidence: f64,
    /// Runs of each point on seeds of their own.
    pub replications: u32,
    /// Runs of a point to which the selection may go where these do not tell it from others.
    pub replications_max: u32,
    /// Optimizer steps of the shortest runs; `halving` alone. [default: 20, more where slots would not be filled eight times over]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_first: Option<u32>,
    /// Optimizer steps of the runs that are ranked; `halving` alone. [default: 120, more likewise]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_ranked: Option<u32>,
    /// Points to begin with, drawn evenly where there are more, before the neighbourhood of the best is looked at; `halving` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates: Option<u32>,
    /// One point in so many goes on to runs so many times as long; `halving` alone. [default: 3]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_one_in: Option<u32>,
}

/// How points are searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Every point in full.
    #[default]
    Grid,
    /// Bounds and short runs first, longer ones for the better part, the whole work for the best.
    Halving,
}

/// What the best point has most or least of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Most trained tokens a second.
    #[default]
    Throughput,
    /// Least hidden states alive at once, as fast as `throughput_min_tok_s` or `min_bound_share` ask.
    Memory,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            method: Method::Grid,
            objective: Objective::Throughput,
            throughput_min_tok_s: None,
            min_bound_share: None,
            mix_tv_max: None,
            mix_step_min: None,
            hs_bytes_max: None,
            tolerance: 0.005,
            confidence: 0.95,
            replications: 3,
            replications_max: 40,
            steps_first: None,
            steps_ranked: None,
            candidates: None,
            keep_one_in: None,
        }
    }
}

impl Search {
    /// Optimizer steps of the shortest runs; where nothing is said, no fewer than `fills`, in which the slots have served often enough.
    pub fn steps_first(&self, fills: u32) -> u32 {
        self.steps_first.unwrap_or_else(|| fills.max(20))
    }

    /// Optimizer steps of the runs that are ranked, likewise.
    pub fn steps_ranked(&self, fills: u32) -> u32 {
        self.steps_ranked.unwrap_or_else(|| fills.max(120))
    }

    /// One point in so many goes on.
    pub fn keep_one_in(&self) -> u32 {
        self.keep_one_in.unwrap_or(3)
    }

    /// What cannot be searched; `at` is the path of this section.
    pub fn validate(&self, at: &str) -> Vec<Problem> {
        let mut checks = Checks::new(at);
        if let Some(share) = self.min_bound_share {
            checks.share("min_bound_share", share, "write a share such as 0.995");
        }
        if let Some(distance) = self.mix_tv_max {
            checks.share("mix_tv_max", distance, "write a distance such as 0.2");
        }
        if let Some(size) = self.hs_bytes_max {
            checks.require(
                size > ByteSize(0),
                "hs_bytes_max",
                size,
                "must be above 0 B",
                "leave it out for no limit",
            );
        }
        let tolerance = self.tolerance;
        checks.require(
            (0.0..1.0).contains(&tolerance),
            "tolerance",
            tolerance,
            "must be at least 0 and below 1",
            "write 0 to call nothing a tie",
        );
        checks.at_least_one("replications", self.replications, "write 1 for one run");
        checks.at_least_one("replications_max", self.replications_max, "write 40");
        let confidence = self.confidence;
        checks.require(
            (0.5..1.0).contains(&confidence),
            "confidence",
            confidence,
            "must be at least 0.5 and below 1",
            "write a probability such as 0.95",
        );
        if let Some(least) = self.throughput_min_tok_s {
            checks.require(
                least.is_finite() && least > 0.0,
                "throughput_min_tok_s",
                least,
                "must be a number above 0",
                "leave it out for no limit",
            );
        }
        let is_fast_enough = self.throughput_min_tok_s.or(self.min_bound_share).is_some();
        checks.require(
            self.objective == Objective::Throughput || is_fast_enough,
            "objective",
            "\"memory\"",
            "needs a least throughput",
            "add throughput_min_tok_s or min_bound_share",
        );
        self.validate_halving(&mut checks);
        checks.done()
    }

    fn validate_halving(&self, checks: &mut Checks<'_>) {
        let keys = [
            ("steps_first", self.steps_first, 5),
            ("steps_ranked", self.steps_ranked, 20),
            ("candidates", self.candidates, 8),
            ("keep_one_in", self.keep_one_in, 2),
        ];
        for (key, value, least) in keys {
            let Some(value) = value else { continue };
            checks.require(
                self.method == Method::Halving,
                key,
                value,
                "belongs to method = \"halving\"",
                "drop it, or choose that method",
            );
            checks.require(
                value >= least,
                key,
                value,
                &format!("must be at least {least}"),
                "raise it, or drop it for the default",
            );
        }
        checks.require(
            self.steps_ranked(0) >= self.steps_first(0),
            "steps_ranked",
            self.steps_ranked(0),
            "must be at least search.steps_first",
            "raise it, or lower search.steps_first",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::lines;
    use super::*;

    #[test]
    fn an_empty_section_is_the_default() {
        let search: Search = toml::from_str("").unwrap();
        assert_eq!(search, Search::default());
        assert_eq!((search.tolerance, search.replications), (0.005, 3));
        assert_eq!(search.validate("search"), []);
        let text = toml::to_string(&search).unwrap();
        assert_eq!(toml::from_str::<Search>(&text).unwrap(), search);
    }

    #[test]
    fn shares_and_counts_have_limits() {
        let search = Search {
            min_bound_share: Some(99.5),
            mix_tv_max: Some(f64::NAN),
            hs_bytes_max: Some(ByteSize(0)),
            tolerance: 1.0,
            replications: 0,
            ..Search::default()
        };
        assert_eq!(
            lines(&search.validate("search")),
            [
                "search.min_bound_share: 99.5 must be from 0 to 1; write a share such as 0.995",
                "search.mix_tv_max: NaN must be from 0 to 1; write a distance such as 0.2",
                "search.hs_bytes_max: 0 B must be above 0 B; leave it out for no limit",
                "search.tolerance: 1 must be at least 0 and below 1; write 0 to call nothing a tie",
                "search.replications: 0 must be at least 1; write 1 for one run",
            ]
        );
    }
}
