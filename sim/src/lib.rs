//! The simulator of dflash: it predicts what a policy gives before a GPU is spent on it.
//!
//! An event loop drives the scheduling core of crate `shared` with service times, links and faults; sweeps run many policies on the
//! same work; a search names the best with honest statistics. The core decides everything, here as in the executor.
#![forbid(unsafe_code)]

mod bound;
mod engine;
mod events;
mod faults;
mod link;
mod links;
mod service;
pub mod spec;

pub use bound::Bound;
pub use engine::{End, Machine, Observe, simulate};
pub use faults::FaultList;
pub use links::{Links, MissingLink};
pub use service::{ServiceTimes, train_costs};
