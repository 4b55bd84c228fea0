//! Are these the hidden states that the microbatch needs?
//!
//! Wrong hidden states train without complaint: the loss falls, and the drafter accepts nothing. So
//! nothing is trained before they were looked at.
//!
//! - [`arrived()`] looks at every microbatch, at the cost of one pass over the features: shapes, the
//!   [`Stamp`] that the target put on what it computed, finite numbers.
//!   [`described`] is the part of it that needs no number, for states that are not on the host.
//! - [`recomputed()`] trusts nothing that came along: it runs the target over one row, alone and
//!   unpadded, and compares. [`Turns`] says when that is due.

mod arrived;
mod error;
mod recomputed;
mod stamp;
#[cfg(test)]
mod tests;
mod turns;

pub use arrived::{Extent, arrived, described};
pub use error::BadStates;
pub use recomputed::{Again, allowed, recomputed};
pub use stamp::{RowStamp, Stamp, Stamped};
pub use turns::Turns;
