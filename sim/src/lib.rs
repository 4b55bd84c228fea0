//! The simulator of dflash: it predicts what a policy gives before a GPU is spent on it.
//!
//! An event loop drives the scheduling core of crate `shared` with service times, links and faults; sweeps run many policies on the
//! same work; a search names the best with honest statistics. The core decides everything, here as in the executor.
#![forbid(unsafe_code)]

mod bound;
mod colocated;
mod course;
mod courses;
mod devices;
mod engine;
mod events;
mod faults;
mod lengths;
mod link;
mod links;
mod marginal;
mod memory;
mod paired;
mod run;
mod search;
mod service;
pub mod spec;
mod stats;
mod sweep;
mod under_way;
pub mod validate;
mod works;

pub use bound::{Bottleneck, Bound};
pub use colocated::Colocated;
pub use devices::Devices;
pub use engine::{End, Machine, Observe, simulate};
pub use faults::FaultList;
pub use lengths::draw_lengths;
pub use links::{Links, MissingLink};
pub use marginal::{Change, Effect, INDIFFERENT, is_tie};
pub use memory::{Memory, Overflow, Part};
pub use paired::{Outcomes, Unpaired, gain, paired, side_by_side};
pub use run::{Nobody, Outcome, Resolved, RunError, Work, edges, order_spec, plan, prepare, run};
pub use search::{
    Basis, Choice, Comparison, Confirmation, Effort, Found, Progress, Ranking, Refusal, Round,
    Standing, Tell, choose, confirm, search,
};
pub use service::{ServiceTimes, train_costs};
pub use stats::{
    BATCH_STEPS, CONFIDENCE, Estimate, Paired, Settled, WarmUp, batch_means, holm, mser,
    relative_error, replications_for, warm_up,
};
pub use sweep::{Point, Row, Verdict, Worst, replicate, sweep};
