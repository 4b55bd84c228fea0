//! The one reducer: every number that is reported comes from here, whoever drove the core.
//!
//! A [`Meter`] sees each record together with the core after it. Since the core is a function of the records, that is the same as
//! seeing the records alone, and a trace replayed later gives the same numbers. Sums are whole numbers; ratios are formed only when
//! asked for.

mod account;
mod arrivals;
mod memory;
mod meter;
mod mixing;
mod series;
mod shares;
mod summary;
mod thinned;

pub use memory::{Peaks, Place};
pub use meter::{Detail, Meter};
pub use mixing::{MixSummary, StepMix};
pub use series::{Interval, Point, Work};
pub use shares::WorkerShares;
pub use summary::{Applied, BucketDelay, Ledger, Metrics, Steady, before_draining};
