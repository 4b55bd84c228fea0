//! Microbatches to a dispatch order.
use super::Plan;
use crate::draw::Seed;
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// What happens to microbatches that fill no whole optimizer step at the end of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tail {
    /// They make one short step.
    Short,
    /// They join the next epoch's first steps; the last epoch ends with a short step.
    Carry,
    /// They are left out and listed.
    Drop,
}

/// How microbatches are put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ordering {
    /// As they were formed: epoch by epoch, bucket by bucket.
    AsFormed,
    /// Shuffled within each epoch; steps form as microbatches arrive.
    Shuffled,
    /// Steps are composed so that each holds the data's mix of buckets.
    Composed,
}

/// Fewest distinct buckets that a step or window must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MixRule {
    /// In one optimizer step.
    pub step_min: u8,
    /// In one drafter's share of a step.
    pub window_min: u8,
}

/// All that an order depends on besides the work itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderSpec {
    /// How.
    pub ordering: Ordering,
    /// Drafter workers.
    pub drafters: u16,
    /// Microbatches a drafter accumulates in one optimizer step.
    pub grad_accum: u32,
    /// What happens to the tail.
    pub tail: Tail,
    /// The mixing rule, which composed steps meet.
    pub mix: MixRule,
    /// Whether each microbatch of a composed step is given to a drafter ahead.
    pub assign: bool,
    /// Estimated drafter time of one full microbatch of each bucket, for packing; one a bucket. [ns]
    pub train_cost: Vec<Span>,
    /// Decides shuffles and ties.
    pub seed: Seed,
}

pub(super) fn digest(_plan: &Plan) -> u64 {
    0
}
