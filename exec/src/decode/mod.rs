//! Decoding: the target alone, the target with a drafter, and many rows at once.
//!
//! Speculative decoding as DFlash serves it, greedy: the newest known token is the *anchor*. A
//! [`Proposer`] drafts the tokens behind it from what is known before it; the target reads anchor
//! and drafts in one forward and accepts the longest prefix that equals its own choices, plus one
//! token of its own, the bonus. So every answer is the target's own, and a drafter only changes how
//! many forwards it takes.
//!
//! | name | meaning |
//! |---|---|
//! | round | one forward of the target behind the prompt: drafts accepted, and the bonus |
//! | acceptance length τ | drafts accepted and the bonus, mean over rounds; 1 for the target alone |
//! | slot k | the k-th draft of a block, from 1 |
//!
//! [`speculate()`] decodes one prompt with a [`Verifier`]; [`Record`] is the target's answer kept
//! with its features, and [`Recorded`] verifies drafts against it without the target: for greedy
//! decoding both accept the same drafts. [`generate()`] answers many prompts at once, greedily or by
//! temperature, for data written by the target itself.

mod choice;
mod drafting;
mod generate;
mod ngram;
mod prompts;
mod record;
mod repetition;
mod sample;
mod sessions;
mod speculate;
mod tally;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod turns;
mod verifier;

pub use choice::{Choice, choices};
pub use drafting::{BlockDrafter, Nothing, Proposer};
pub use generate::{Batch, Ended, Finished, GenerateLimits, Job, generate};
pub use ngram::{MATCH_MAX, Ngram};
pub use prompts::{Asking, Prompt, PromptError, Prompts, read_prompts};
pub use record::{Record, Recorded, answer_alone};
pub use repetition::repeats;
pub use sample::Sampling;
pub use sessions::{SessionBatch, SessionVerifier};
pub use speculate::{Decoded, Limits, Round, speculate};
pub use tally::{SlotCount, Tally};
pub use turns::{CHARS_MIN, Refused, UserTurns};
pub use verifier::{Extension, Recompute, RecomputeBatch, Verifier};
