//! Lengths to microbatches.
use serde::{Deserialize, Serialize};

/// Limits of one microbatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Padded tokens. [tokens]
    pub token_budget: u32,
    /// Samples.
    pub batch_max: u32,
}

/// What happens to samples longer than the last edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverLong {
    /// The plan is refused, and the error names them.
    Refuse,
    /// They are left out, counted and listed.
    Skip,
}

/// Why no microbatches can be formed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormError {}
