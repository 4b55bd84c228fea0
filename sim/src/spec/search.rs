//! What the search looks for, and which points are out of the question.

use super::check::{Checks, Problem};
use super::units::ByteSize;
use serde::{Deserialize, Serialize};

/// Objective and constraints of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Search {
    /// What is made as large as possible.
    pub objective: Objective,
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
    /// Points within this share of the best throughput are ties; among ties the least memory of hidden states wins.
    pub tolerance: f64,
    /// Runs of each point on seeds of their own.
    pub replications: u32,
}

/// What the best point has most of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Trained tokens a second.
    #[default]
    Throughput,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            objective: Objective::Throughput,
            min_bound_share: None,
            mix_tv_max: None,
            mix_step_min: None,
            hs_bytes_max: None,
            tolerance: 0.005,
            replications: 1,
        }
    }
}

impl Search {
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
        checks.done()
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
        assert_eq!((search.tolerance, search.replications), (0.005, 1));
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
