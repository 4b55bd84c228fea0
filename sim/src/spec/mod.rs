//! What a scenario says, section by section.
//!
//! A section is plain data: it reads from a file strictly (an unknown key is an error), writes back what reads as the same value,
//! and [`validate`](Workload::validate)s itself into a list of [`Problem`]s, all of them at once. It neither draws nor computes.

mod check;
mod costs;
mod fault;
mod hardware;
mod lengths;
mod model;
mod search;
mod sharing;
mod training;
mod units;
mod workload;

pub use check::Problem;
pub use costs::{Costs, Distribution, Formula, StageCost};
pub use fault::{Fault, FaultKind, Worker, WorkerError};
pub use hardware::{Hardware, Link};
pub use lengths::{Lengths, Share};
pub use model::Model;
pub use search::{Method, Objective, Search};
pub use sharing::{SharedRate, Sharing};
pub use training::Training;
pub use units::{ByteSize, Rate, UnitError};
pub use workload::{Buckets, Workload};
