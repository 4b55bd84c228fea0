//! What there is to train on: how many samples, how long, in which buckets.

use super::check::{Checks, Problem};
use super::lengths::Lengths;
use serde::{Deserialize, Serialize};
use shared::plan::OverLong;

/// The work of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Samples of one epoch; 0 takes as many as the lengths give, which drawn lengths do not say.
    #[serde(default)]
    pub samples: u32,
    /// Passes over the samples.
    #[serde(default = "one")]
    pub epochs: u16,
    /// Their lengths.
    pub lengths: Lengths,
    /// How lengths are classed.
    pub buckets: Buckets,
    /// What happens to samples longer than the last bucket's edge.
    #[serde(default = "refuse")]
    pub over_long: OverLong,
}

/// Classes of sequence lengths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Buckets {
    /// These upper edges. (tokens)
    Edges(Vec<u32>),
    /// This many buckets with equally many samples.
    Quantile(u8),
    /// This many buckets with the least padding.
    Optimal(u8),
}

const fn one() -> u16 {
    1
}

const fn refuse() -> OverLong {
    OverLong::Refuse
}

/// Most buckets: a bucket's identity is one byte.
const BUCKETS_MAX: usize = 255;

impl Workload {
    /// What cannot be simulated; `at` is the path of this section.
    pub fn validate(&self, at: &str) -> Vec<Problem> {
        let mut checks = Checks::new(at);
        checks.at_least_one(
            "epochs",
            self.epochs,
            "write 1 for one pass over the samples",
        );
        if self.lengths.are_drawn() {
            let way_out = "lengths are drawn, so write how many samples";
            checks.at_least_one("samples", self.samples, way_out);
        }
        let problems = self.lengths.validate(&checks.path("lengths"));
        checks.extend(problems);
        let problems = self.buckets.validate(&checks.path("buckets"));
        checks.extend(problems);
        if let Lengths::Microbatches { tokens, .. } = &self.lengths {
            checks.require(
                self.samples == 0,
                "samples",
                self.samples,
                "cannot stand beside lengths.microbatches",
                "leave it out: count and samples_each say how many",
            );
            self.buckets.hold(tokens, &mut checks);
        }
        checks.done()
    }
}

impl Buckets {
    /// What cannot be simulated; `at` is the path of this value.
    pub fn validate(&self, at: &str) -> Vec<Problem> {
        let mut checks = Checks::new(at);
        match self {
            Self::Quantile(count) => {
                checks.at_least_one("quantile", *count, "write the number of buckets");
            }
            Self::Optimal(count) => {
                checks.at_least_one("optimal", *count, "write the number of buckets");
            }
            Self::Edges(edges) => {
                checks.require(
                    (1..=BUCKETS_MAX).contains(&edges.len()),
                    "edges",
                    format!("{} edges", edges.len()),
                    "must be 1 to 255",
                    "write the upper edge of each bucket in tokens",
                );
                let edge_before = std::iter::once(0).chain(edges.iter().copied());
                for (index, (before, edge)) in edge_before.zip(edges).enumerate() {
                    checks.require(
                        before < *edge,
                        &format!("edges[{index}]"),
                        edge,
                        &format!("must be above {before}"),
                        "list upper edges from short to long, each once",
                    );
                }
            }
        }
        checks.done()
    }

    /// Microbatches that are given bucket by bucket need edges around their lengths.
    fn hold(&self, tokens: &[u32], checks: &mut Checks<'_>) {
        let Self::Edges(edges) = self else {
            checks.require(
                false,
                "buckets",
                "computed edges",
                "cannot stand beside lengths.microbatches",
                "write buckets = { edges = [...] } with one edge for each of tokens",
            );
            return;
        };
        let lower = std::iter::once(0).chain(edges.iter().copied());
        let inside = lower
            .zip(edges)
            .zip(tokens)
            .all(|((lower, upper), tokens)| lower < *tokens && tokens <= upper);
        checks.require(
            inside && edges.len() == tokens.len(),
            "buckets.edges",
            format!("{edges:?}"),
            &format!("must hold the lengths {tokens:?} of lengths.microbatches, one each"),
            "write tokens as edges",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::lines;
    use super::*;

    fn found(text: &str) -> Vec<String> {
        lines(
            &toml::from_str::<Workload>(text)
                .unwrap()
                .validate("workload"),
        )
    }

    #[test]
    fn defaults_are_one_epoch_and_no_over_long_samples() {
        let text = "samples = 9\nlengths = { constant = 512 }\nbuckets = { quantile = 1 }";
        let workload: Workload = toml::from_str(text).unwrap();
        assert_eq!((workload.epochs, workload.over_long), (1, OverLong::Refuse));
        assert_eq!(workload.validate("workload"), []);
        let text = toml::to_string(&workload).unwrap();
        assert_eq!(toml::from_str::<Workload>(&text).unwrap(), workload);
    }

    #[test]
    fn drawn_lengths_need_a_number_of_samples() {
        assert_eq!(
            found("epochs = 0\nlengths = { constant = 512 }\nbuckets = { optimal = 0 }"),
            [
                "workload.epochs: 0 must be at least 1; write 1 for one pass over the samples",
                "workload.samples: 0 must be at least 1; lengths are drawn, so write how many samples",
                "workload.buckets.optimal: 0 must be at least 1; write the number of buckets",
            ]
        );
        assert_eq!(
            found("lengths = { file = 'l.csv' }\nbuckets = { edges = [512] }"),
            [""; 0]
        );
    }

    #[test]
    fn edges_rise() {
        assert_eq!(
            found("lengths = 'data'\nbuckets = { edges = [512, 512, 256] }"),
            [
                "workload.buckets.edges[1]: 512 must be above 512; list upper edges from short to long, each once",
                "workload.buckets.edges[2]: 256 must be above 512; list upper edges from short to long, each once",
            ]
        );
        assert_eq!(
            found("lengths = 'data'\nbuckets = { edges = [] }"),
            [
                "workload.buckets.edges: 0 edges must be 1 to 255; write the upper edge of each bucket in tokens"
            ]
        );
    }

    #[test]
    fn given_microbatches_need_edges_around_their_lengths() {
        let given = |rest: &str| {
            found(&format!(
                "{rest}\n[lengths.microbatches]\ncount = 9\nsamples_each = 2\nmix = [0.5, 0.5]\ntokens = [512, 1024]"
            ))
        };
        assert_eq!(given("buckets = { edges = [512, 1024] }"), [""; 0]);
        assert_eq!(given("buckets = { edges = [600, 2048] }"), [""; 0]);
        assert_eq!(
            given("samples = 4\nbuckets = { quantile = 2 }"),
            [
                "workload.samples: 4 cannot stand beside lengths.microbatches; leave it out: count and samples_each say how many",
                "workload.buckets: computed edges cannot stand beside lengths.microbatches; write buckets = { edges = [...] } with one edge for each of tokens",
            ]
        );
        let outside = [
            "workload.buckets.edges: [256, 1024] must hold the lengths [512, 1024] of lengths.microbatches, one each; write tokens as edges",
        ];
        assert_eq!(given("buckets = { edges = [256, 1024] }"), outside);
        assert_eq!(given("buckets = { edges = [512] }").len(), 1);
    }
}
