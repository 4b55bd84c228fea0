//! Why microbatches cannot be formed.

use crate::id::{BucketId, Bytes, SampleId, Tokens};

/// Why no microbatches can be formed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// Nothing to train on.
    #[error("there are no samples; give data that holds at least one")]
    NoSamples,
    /// No pass over the data.
    #[error("0 epochs train nothing; ask for at least 1")]
    NoEpochs,
    /// A microbatch that may hold nothing.
    #[error("{limit} is 0, so no microbatch can hold a sample; set it to at least {least}")]
    ZeroLimit {
        /// Which limit.
        limit: &'static str,
        /// What it must be at least.
        least: u32,
    },
    /// A bucket whose samples do not fit a microbatch.
    #[error(
        "bucket {bucket} holds samples of up to {edge} tokens, more than the token budget of {token_budget}; \
         raise the budget to at least {edge} or lower the edge"
    )]
    EdgeOverBudget {
        /// The bucket.
        bucket: BucketId,
        /// Its upper edge. (tokens)
        edge: u32,
        /// The limit. (tokens)
        token_budget: u32,
    },
    /// A sample without tokens.
    #[error("sample {sample} has length 0; leave it out of the data")]
    ZeroLength {
        /// Its row in the data.
        sample: SampleId,
    },
    /// Samples longer than the last edge, under [`OverLong::Refuse`](super::OverLong::Refuse).
    #[error(
        "{count} of {samples} samples are longer than the last bucket edge of {edge} tokens: {}; \
         raise the last edge to {longest}, shorten them, or set over_long = \"skip\" to leave them out",
        listed(first, *count)
    )]
    OverLong {
        /// How many.
        count: usize,
        /// Of how many.
        samples: usize,
        /// The first few, with their lengths. (tokens)
        first: Vec<(SampleId, u32)>,
        /// The longest of all. (tokens)
        longest: u32,
        /// The last edge. (tokens)
        edge: u32,
    },
    /// Every sample is longer than the last edge.
    #[error(
        "all {count} samples are longer than the last bucket edge of {edge} tokens, so nothing is left to train; \
         raise the last edge"
    )]
    AllOverLong {
        /// How many.
        count: usize,
        /// The last edge. (tokens)
        edge: u32,
    },
    /// More samples over all epochs than a plan can number.
    #[error(
        "{samples} samples in {epochs} epochs are more than the {max} that a plan can number; \
         run fewer epochs at a time",
        max = u32::MAX
    )]
    TooManySamples {
        /// Samples in one epoch.
        samples: u64,
        /// Epochs.
        epochs: u16,
    },
    /// A microbatch whose hidden states have no size.
    #[error(
        "a microbatch of {padded} at {bytes_per_token} a token has more bytes than a number can hold; \
         check the bytes per token"
    )]
    BytesOverflow {
        /// Its padded tokens.
        padded: Tokens,
        /// Hidden states of one token.
        bytes_per_token: Bytes,
    },
    /// A given microbatch that does not fit those before it.
    #[error("microbatch {row} {fault}; {remedy}")]
    BadMicrobatch {
        /// Its place in the list, from 0.
        row: usize,
        /// What is wrong with it.
        fault: &'static str,
        /// The way out.
        remedy: &'static str,
    },
}

fn listed(first: &[(SampleId, u32)], count: usize) -> String {
    let mut text: Vec<String> = first
        .iter()
        .map(|(id, length)| format!("{id} ({length})"))
        .collect();
    if count > first.len() {
        text.push(format!("and {} more", count - first.len()));
    }
    text.join(", ")
}
