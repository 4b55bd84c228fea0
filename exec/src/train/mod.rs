//! Training the drafter: anchors, block plans, losses, gradients, and the optimizer.
//!
//! A microbatch becomes a [`BlockPlan`] and then a [`Contribution`]: sums, not means, so that
//! microbatches of one optimizer step add up whatever their sizes. [`Optimizer::apply`] divides the
//! step's total by the step's total weight, once. What is summed and divided by is the
//! [`Objective`]'s.
//!
//! Invariant: for the same samples and the same anchors the step's gradient does not depend, beyond
//! rounding, on how the samples were split into microbatches or padded.

mod accumulate;
pub mod anchors;
mod contribution;
#[cfg(test)]
mod denominators;
mod error;
mod held_out;
mod loss;
mod objective;
mod optimizer;
mod plan;
mod schedule;
#[cfg(test)]
mod tests;

pub use contribution::{Contribution, Tally};
pub use error::TrainError;
pub use held_out::{HeldOutBlocks, HeldOutLoss, held_out_loss};
pub use objective::Objective;
pub use optimizer::{AdamW, Optimizer, StepReport};
#[cfg(test)]
pub(crate) use plan::Parts;
pub use plan::{BlockPlan, BlockSpec, default_gamma};
pub use schedule::Schedule;
