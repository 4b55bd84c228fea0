//! The validation suite: what queueing theory has solved, through the same engine and core that serve users.
//!
//! A line is made of what scenarios are made of. A saturated target with exponential forwards in front of a store without limit is a
//! Poisson source, drafters are servers, buckets are classes, a link that transfers share is processor sharing, a target that asks for
//! its slot after the forward is blocking after service, one that asks before holds a credit, and credits that come back with the
//! training are a closed population.
//!
//! A stochastic value is confirmed when it lies in the 99 % interval over independent replications and that interval is under 1 % wide.
//! Run lengths are chosen for that; where queues are open, what replications' own draws were off from their known expectations is regressed
//! out first (`estimate`). A value outside is looked at again on fresh seeds, four times as long: once in a hundred it is chance.
//! Values without chance are exact. On every run, [`LAWS`] are checked in whole nanoseconds.

mod case;
mod cases;
mod estimate;
mod laws;
mod line;
mod pipeline;
mod probe;
mod reference;
mod run;

pub use case::{Case, Effort, Finding, Report, Verdict, WIDTH_MAX};
pub use cases::{OUT_OF_SCOPE, suite};
pub use estimate::CONFIDENCE;
pub use laws::LAWS;
pub use pipeline::Checksum;
pub use reference::{Exact, rows};
