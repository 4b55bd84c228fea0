//! When checkpoints are written and which of them stay.

use super::OutOfRange;
use serde::{Deserialize, Serialize};

/// The `[exec.checkpoint]` section.
///
/// Where drafters are independent (policy `barrier = "none"`), a checkpoint holds the weights of drafter 0, and a run cannot be
/// continued from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointSection {
    /// One every so many optimizer steps, and one at the end; 0: at the end alone.
    pub every_steps: u64,
    /// Newest checkpoints that stay; 0 keeps all.
    pub keep: usize,
    /// The training metric, a mean since the checkpoint before, by which one checkpoint is marked `best` and always stays: `"loss"`,
    /// `"accepted_length"` or none.
    pub best: String,
}

impl Default for CheckpointSection {
    fn default() -> Self {
        Self {
            every_steps: 0,
            keep: 3,
            best: String::new(),
        }
    }
}

/// A training metric by which checkpoints compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BestBy {
    /// Lower is better.
    Loss,
    /// Higher is better.
    AcceptedLength,
}

impl CheckpointSection {
    /// The metric that `best` names; none where it is empty or unknown.
    pub fn best_by(&self) -> Option<BestBy> {
        match self.best.as_str() {
            "loss" => Some(BestBy::Loss),
            "accepted_length" => Some(BestBy::AcceptedLength),
            _ => None,
        }
    }

    /// What is wrong, one entry a key.
    pub(super) fn problems(&self) -> Option<OutOfRange> {
        let is_known = self.best.is_empty() || self.best_by().is_some();
        (!is_known).then(|| OutOfRange {
            key: "exec.checkpoint.best",
            value: format!("{:?}", self.best),
            limit: "must be \"loss\", \"accepted_length\" or \"\"".into(),
            way_out: "name one of them",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_that_is_none_is_refused_with_those_that_are() {
        let mut section = CheckpointSection::default();
        assert_eq!((section.problems(), section.best_by()), (None, None));
        section.best = "loss".into();
        assert_eq!(
            (section.problems(), section.best_by()),
            (None, Some(BestBy::Loss))
        );
        section.best = "accuracy".into();
        let problem = section.problems().unwrap();
        assert_eq!(problem.key, "exec.checkpoint.best");
        assert!(problem.limit.contains("accepted_length"));
    }
}
