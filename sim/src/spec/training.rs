//! What is trained: the user's parameters, which dispatch preserves.

use super::check::{Checks, Problem};
use serde::{Deserialize, Serialize};
use shared::plan::Limits;

/// Training parameters that shape microbatches and optimizer steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// Microbatches each drafter accumulates before a weight update.
    pub grad_accum: u32,
    /// Most padded tokens in a microbatch. (tokens)
    pub token_budget: u32,
    /// Most samples in a microbatch.
    pub batch_max: u32,
}

impl Training {
    /// The limits of one microbatch.
    pub const fn limits(&self) -> Limits {
        Limits {
            token_budget: self.token_budget,
            batch_max: self.batch_max,
        }
    }

    /// What cannot be simulated; `at` is the path of this section.
    pub fn validate(&self, at: &str) -> Vec<Problem> {
        let mut checks = Checks::new(at);
        checks.at_least_one(
            "grad_accum",
            self.grad_accum,
            "write 1 to update the weights after every microbatch",
        );
        checks.at_least_one(
            "token_budget",
            self.token_budget,
            "write at least the longest sample's padded tokens",
        );
        checks.at_least_one(
            "batch_max",
            self.batch_max,
            "write 1 to train on single samples",
        );
        checks.done()
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::lines;
    use super::*;

    #[test]
    fn counts_are_at_least_one() {
        let training = Training {
            grad_accum: 0,
            token_budget: 0,
            batch_max: 0,
        };
        assert_eq!(
            lines(&training.validate("training")),
            [
                "training.grad_accum: 0 must be at least 1; write 1 to update the weights after every microbatch",
                "training.token_budget: 0 must be at least 1; write at least the longest sample's padded tokens",
                "training.batch_max: 0 must be at least 1; write 1 to train on single samples",
            ]
        );
    }

    #[test]
    fn limits_are_those_of_a_microbatch() {
        let training: Training =
            toml::from_str("grad_accum = 4\ntoken_budget = 49152\nbatch_max = 64").unwrap();
        assert_eq!(training.limits().token_budget, 49_152);
        assert_eq!(training.limits().batch_max, 64);
        assert_eq!(training.validate("training"), []);
    }
}
