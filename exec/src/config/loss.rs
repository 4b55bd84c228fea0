//! What is minimised, and what is looked at before.

use super::OutOfRange;
use crate::train::Objective;
use serde::{Deserialize, Serialize};

/// The loss; see [`Objective`] for the formulas. Every kind is normalised once over an optimizer
/// step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LossSection {
    /// `"cross-entropy"` with the data's tokens, `"d-pace"`, or `"distillation"` from the target,
    /// for which the target hands over its last hidden state too.
    pub kind: LossKind,
    /// For `d-pace`: floor of the probabilities in its products, from 0 to 1.
    pub alpha: f64,
    /// For `distillation`: temperature of both distributions.
    pub temperature: f64,
    /// For `distillation`: share of the cross entropy with the data's tokens, from 0 to 1.
    pub hard_share: f64,
}

/// Kinds of losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossKind {
    /// Cross entropy with the data's tokens, with position decay.
    CrossEntropy,
    /// Cross entropy valued by the drafter's own confidence.
    DPace,
    /// Divergence from the target's distribution, with position decay.
    Distillation,
}

impl Default for LossSection {
    /// The published loss; the other kinds at their published values.
    fn default() -> Self {
        Self {
            kind: LossKind::CrossEntropy,
            alpha: 0.5,
            temperature: 1.0,
            hard_share: 0.0,
        }
    }
}

impl LossSection {
    /// What it says to minimise.
    pub fn objective(&self) -> Objective {
        match self.kind {
            LossKind::CrossEntropy => Objective::CrossEntropy,
            LossKind::DPace => Objective::DPace { alpha: self.alpha },
            LossKind::Distillation => Objective::Distillation {
                temperature: self.temperature,
                hard_share: self.hard_share,
            },
        }
    }

    /// What is wrong, one entry a key.
    pub fn problems(&self) -> Vec<OutOfRange> {
        let share = |key, value: f64, way_out| {
            (!(0.0..=1.0).contains(&value)).then(|| OutOfRange {
                key,
                value: value.to_string(),
                limit: "must be from 0 to 1".into(),
                way_out,
            })
        };
        let temperature = self.temperature;
        let found = [
            share("exec.loss.alpha", self.alpha, "use the published 0.5"),
            (!(0.01..=100.0).contains(&temperature)).then(|| OutOfRange {
                key: "exec.loss.temperature",
                value: temperature.to_string(),
                limit: "must be from 0.01 to 100".into(),
                way_out: "use 1 for the distribution as it is",
            }),
            share(
                "exec.loss.hard_share",
                self.hard_share,
                "use 0 for the target's distribution alone",
            ),
        ];
        found.into_iter().flatten().collect()
    }
}

/// Looks at hidden states; see [`crate::checks`]. Those that cost next to nothing are always made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChecksSection {
    /// One row of every so many microbatches is computed again and compared; 0: only four of the
    /// first microbatch of each bucket, which always are.
    pub recompute_every: u32,
}

impl Default for ChecksSection {
    /// Less than 1 % of the targets' work, whatever the batch size.
    fn default() -> Self {
        Self {
            recompute_every: 128,
        }
    }
}
