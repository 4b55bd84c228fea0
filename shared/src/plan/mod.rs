//! From sequence lengths to a dispatch order: edges, microbatches, optimizer steps. Pure and deterministic.
//!
//! ```text
//! lengths --edges--> buckets --form--> microbatches (one bucket each) --order--> Plan: dispatch order, steps, drafters
//! ```
//!
//! [`Formation`] is the work itself and is the same for every policy: which samples share a microbatch depends on the data, the
//! training parameters and the seed alone. [`Plan`] is one order of that work under one policy. Two policies compared on one
//! formation face the same microbatches, which carry the same [`Microbatch::key`] in both.

mod compose;
mod digest;
mod edges;
mod form;
mod form_error;
mod least_padding;
mod order;
mod packing;
mod quota;
mod relieve;
mod remaining;
mod shuffle;
mod synthetic;

use crate::draw::Seed;
use crate::id::{BucketId, Bytes, DrafterId, MicrobatchId, SampleId, StepId, Tokens};
use crate::time::Span;
use serde::{Deserialize, Serialize};
use std::ops::Range;

pub use edges::{Edges, EdgesError};
pub use form::{Limits, OverLong};
pub use form_error::FormError;
pub use order::{Fill, MixRule, OrderError, OrderSpec, Ordering, Tail};
pub use packing::packing_bound;
pub use remaining::{Done, DoneError};
pub use synthetic::FormationBuilder;

/// Samples of one bucket that share one target forward and one drafter forward and backward.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Microbatch {
    /// The bucket all its samples belong to.
    pub bucket: BucketId,
    /// The pass over the data it belongs to, from 0.
    pub epoch: u16,
    /// Who it is, whatever the order: equal in every plan of one formation. Noise is drawn by it.
    pub key: u32,
    /// Its samples: a range of [`Formation::samples`].
    pub samples: Range<u32>,
    /// Real tokens, padding left out. (tokens)
    pub tokens: Tokens,
    /// Tokens computed: samples times the length of the longest of them. (tokens)
    pub padded: Tokens,
    /// Sum of squared sample lengths, for costs that grow with attention. (tokens^2)
    pub tokens_squared: u64,
    /// Hidden states it makes. (bytes)
    pub bytes: Bytes,
}

impl Microbatch {
    /// The number of samples.
    pub fn sample_count(&self) -> u32 {
        self.samples.end - self.samples.start
    }
}

/// All microbatches of a run, in the order they were formed, with the samples they hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Formation {
    /// One range a microbatch: [`Microbatch::samples`].
    pub samples: Vec<SampleId>,
    /// Grouped by epoch, then bucket; `key` counts them.
    pub microbatches: Vec<Microbatch>,
    /// Upper edge of each bucket. (tokens)
    pub edges: Edges,
    /// Passes over the data.
    pub epochs: u16,
    /// Samples longer than the last edge that were left out, as [`OverLong::Skip`] asked.
    pub over_long: Vec<SampleId>,
}

/// Why a step does not meet the mixing rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exception {
    /// The step is what was left at the end of an epoch or of the run.
    Tail,
    /// Fewer buckets than the rule asks for still held work.
    DryBucket,
}

/// One optimizer step of a composed plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlannedStep {
    /// Its microbatches, consecutive in dispatch order.
    pub microbatches: Range<u32>,
    /// Set when the step falls short of the mixing rule.
    pub exception: Option<Exception>,
}

/// One order of a formation's microbatches: what is dispatched, when it is due, and, for composed plans, to whom it goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Samples by microbatch; shared layout with [`Formation::samples`].
    pub samples: Vec<SampleId>,
    /// In dispatch order; [`MicrobatchId`] is the row.
    pub microbatches: Vec<Microbatch>,
    /// Steps in order. Empty when the policy composes no steps: then they form as microbatches arrive.
    pub steps: Vec<PlannedStep>,
    /// For composed plans, the step of each microbatch; else empty.
    pub step_of: Vec<StepId>,
    /// For composed plans with fixed assignment, the drafter of each microbatch; else empty.
    pub drafter_of: Vec<DrafterId>,
    /// Microbatches in each bucket: the mix that steps are measured against.
    pub bucket_counts: Vec<u32>,
    /// Microbatches left out by the tail rule `drop`, with their samples, so that the ledger can list them.
    pub dropped: Vec<Microbatch>,
    /// Samples left out because they exceed the last edge.
    pub over_long: Vec<SampleId>,
}

impl Plan {
    /// The microbatch in row `id`.
    pub fn microbatch(&self, id: MicrobatchId) -> &Microbatch {
        &self.microbatches[id.index()]
    }

    /// The samples of a microbatch.
    pub fn samples_of(&self, id: MicrobatchId) -> &[SampleId] {
        let range = &self.microbatch(id).samples;
        &self.samples[range.start as usize..range.end as usize]
    }

    /// Whether steps are composed ahead of dispatch.
    pub fn is_composed(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Number of buckets.
    pub fn buckets(&self) -> u8 {
        self.bucket_counts.len() as u8
    }

    /// Real tokens of the whole plan. (tokens)
    pub fn tokens(&self) -> Tokens {
        self.microbatches.iter().map(|m| m.tokens).sum()
    }

    /// The largest microbatch's hidden states. (bytes)
    pub fn bytes_max(&self) -> Bytes {
        self.microbatches
            .iter()
            .map(|m| m.bytes)
            .max()
            .unwrap_or_default()
    }

    /// A fingerprint of everything a run depends on: order, sizes, steps and drafters.
    pub fn digest(&self) -> u64 {
        digest::digest(self)
    }
}

/// How many are in each of so many buckets.
fn bucket_counts(microbatches: &[Microbatch], buckets: usize) -> Vec<u32> {
    let mut counts = vec![0; buckets];
    for microbatch in microbatches {
        counts[microbatch.bucket.index()] += 1;
    }
    counts
}

/// What forming microbatches needs besides the lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormSpec {
    /// Upper edges of the buckets. (tokens)
    pub edges: Edges,
    /// Token budget and maximum batch size of one microbatch.
    pub limits: Limits,
    /// What to do with samples longer than the last edge.
    pub over_long: OverLong,
    /// Passes over the data.
    pub epochs: u16,
    /// Hidden states of one padded token. (bytes/token)
    pub bytes_per_token: Bytes,
    /// Decides the shuffle of each epoch.
    pub seed: Seed,
}

/// Estimated drafter time of one microbatch of each bucket, by which composed steps are packed over drafters. (ns)
pub type TrainCost = [Span];
