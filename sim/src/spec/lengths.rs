//! Where the lengths of samples come from.

use super::check::{Checks, Problem};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Lengths of samples, drawn, listed or implied. (tokens)
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Lengths {
    /// Log-normal, cut off at both ends.
    Lognormal {
        /// Half the samples are shorter. (tokens)
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Shortest. (tokens)
        min: u32,
        /// Longest. (tokens)
        max: u32,
    },
    /// Several constant lengths, each with its share of the samples.
    Mixture(Vec<Share>),
    /// Every length from `min` to `max` alike.
    Uniform {
        /// Shortest. (tokens)
        min: u32,
        /// Longest. (tokens)
        max: u32,
    },
    /// One length for all. (tokens)
    Constant(u32),
    /// A file with one length a line.
    File(PathBuf),
    /// The lengths of the text that the `[data]` section names.
    Data,
    /// No samples are batched: the microbatches themselves are given.
    Microbatches {
        /// Microbatches of one epoch.
        count: u32,
        /// Samples in each.
        samples_each: u32,
        /// Share of the microbatches that each bucket has.
        mix: Vec<f64>,
        /// Length of the samples in each bucket. (tokens)
        tokens: Vec<u32>,
    },
}

/// One constant length of a [`Lengths::Mixture`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Share of the samples.
    pub share: f64,
    /// Their length. (tokens)
    pub tokens: u32,
}

impl Lengths {
    /// Whether the number of samples must be given because the lengths are drawn.
    pub const fn are_drawn(&self) -> bool {
        matches!(
            self,
            Self::Lognormal { .. } | Self::Mixture(_) | Self::Uniform { .. } | Self::Constant(_)
        )
    }

    /// What cannot be simulated; `at` is the path of this value.
    pub fn validate(&self, at: &str) -> Vec<Problem> {
        let mut checks = Checks::new(at);
        match self {
            Self::Lognormal {
                median,
                sigma,
                min,
                max,
            } => {
                checks.positive("lognormal.median", *median, "write a length in tokens");
                checks.not_negative("lognormal.sigma", *sigma, "write 0 for one length for all");
                range(&mut checks, "lognormal", *min, *max);
                checks.require(
                    !median.is_finite() || (f64::from(*min)..=f64::from(*max)).contains(median),
                    "lognormal.median",
                    median,
                    &format!("must be from min {min} to max {max}"),
                    "move the median or the ends",
                );
            }
            Self::Mixture(parts) => {
                let shares: Vec<f64> = parts.iter().map(|part| part.share).collect();
                checks.shares("mixture", &shares);
                for (index, part) in parts.iter().enumerate() {
                    let key = format!("mixture[{index}].tokens");
                    checks.at_least_one(&key, part.tokens, ONE_TOKEN);
                }
            }
            Self::Uniform { min, max } => range(&mut checks, "uniform", *min, *max),
            Self::Constant(tokens) => checks.at_least_one("constant", *tokens, ONE_TOKEN),
            Self::File(path) => checks.require(
                !path.as_os_str().is_empty(),
                "file",
                "\"\"",
                "must name a file",
                "write the path of a file with one length a line",
            ),
            Self::Data => {}
            Self::Microbatches {
                count,
                samples_each,
                mix,
                tokens,
            } => {
                checks.at_least_one("microbatches.count", *count, "write how many there are");
                checks.at_least_one(
                    "microbatches.samples_each",
                    *samples_each,
                    "write the samples in one microbatch",
                );
                checks.shares("microbatches.mix", mix);
                checks.require(
                    mix.len() == tokens.len(),
                    "microbatches.tokens",
                    format!("{} lengths", tokens.len()),
                    &format!("must be as many as the {} shares of mix", mix.len()),
                    "give each bucket one share and one length",
                );
                for (index, tokens) in tokens.iter().enumerate() {
                    let key = format!("microbatches.tokens[{index}]");
                    checks.at_least_one(&key, *tokens, ONE_TOKEN);
                }
            }
        }
        checks.done()
    }
}

const ONE_TOKEN: &str = "a sample holds at least one token";

fn range(checks: &mut Checks<'_>, kind: &str, min: u32, max: u32) {
    checks.at_least_one(&format!("{kind}.min"), min, ONE_TOKEN);
    checks.require(
        min <= max,
        &format!("{kind}.max"),
        max,
        &format!("must be at least min {min}"),
        "swap the two or widen the range",
    );
}

#[cfg(test)]
mod tests {
    use super::super::check::lines;
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Section {
        lengths: Lengths,
    }

    fn read(text: &str) -> Lengths {
        toml::from_str::<Section>(&format!("lengths = {text}"))
            .unwrap()
            .lengths
    }

    fn found(text: &str) -> Vec<String> {
        lines(&read(text).validate("l"))
    }

    const FORMS: [&str; 7] = [
        "{ lognormal = { median = 1200.0, sigma = 0.9, min = 16, max = 8192 } }",
        "{ mixture = [ { share = 0.25, tokens = 100 }, { share = 0.75, tokens = 900 } ] }",
        "{ uniform = { min = 1, max = 9 } }",
        "{ constant = 512 }",
        "{ file = 'lengths.csv' }",
        "'data'",
        "{ microbatches = { count = 9, samples_each = 2, mix = [0.5, 0.5], tokens = [512, 1024] } }",
    ];

    #[test]
    fn every_form_is_fine_and_reads_back() {
        for form in FORMS {
            assert_eq!(found(form), [""; 0], "{form}");
            let lengths = read(form);
            let text = toml::to_string(&Section {
                lengths: lengths.clone(),
            })
            .unwrap();
            assert_eq!(
                toml::from_str::<Section>(&text).unwrap().lengths,
                lengths,
                "{text}"
            );
        }
        assert_eq!(
            FORMS.map(|f| read(f).are_drawn()).map(u8::from),
            [1, 1, 1, 1, 0, 0, 0]
        );
    }

    #[test]
    fn unknown_keys_are_refused_inside_a_form() {
        let text = "lengths = { uniform = { min = 1, max = 9, mean = 5 } }";
        let error = toml::from_str::<Section>(text).unwrap_err();
        assert!(error.message().contains("mean"), "{error}");
    }

    #[test]
    fn ranges_rise_and_hold_the_median() {
        assert_eq!(
            found("{ uniform = { min = 0, max = 9 } }"),
            ["l.uniform.min: 0 must be at least 1; a sample holds at least one token"]
        );
        assert_eq!(
            found("{ uniform = { min = 10, max = 9 } }"),
            ["l.uniform.max: 9 must be at least min 10; swap the two or widen the range"]
        );
        assert_eq!(
            found("{ lognormal = { median = 9000, sigma = 0.5, min = 16, max = 8192 } }"),
            [
                "l.lognormal.median: 9000 must be from min 16 to max 8192; move the median or the ends"
            ]
        );
        assert_eq!(
            found("{ lognormal = { median = nan, sigma = inf, min = 16, max = 8192 } }"),
            [
                "l.lognormal.median: NaN must be finite and above 0; write a length in tokens",
                "l.lognormal.sigma: inf must be finite and at least 0; write 0 for one length for all",
            ]
        );
    }

    #[test]
    fn shares_sum_to_one_and_lengths_are_not_empty() {
        assert_eq!(
            found("{ mixture = [ { share = 0.5, tokens = 0 } ] }"),
            [
                "l.mixture: sum 0.5 must be 1 within 0.000001; change the shares so that they sum to 1",
                "l.mixture[0].tokens: 0 must be at least 1; a sample holds at least one token",
            ]
        );
        assert_eq!(found("{ constant = 0 }").len(), 1);
        assert_eq!(
            found("{ file = '' }"),
            ["l.file: \"\" must name a file; write the path of a file with one length a line"]
        );
        assert_eq!(
            found(
                "{ microbatches = { count = 0, samples_each = 1, mix = [0.5, 0.5], tokens = [512] } }"
            ),
            [
                "l.microbatches.count: 0 must be at least 1; write how many there are",
                "l.microbatches.tokens: 1 lengths must be as many as the 2 shares of mix; give each bucket one share and one length",
            ]
        );
    }
}
