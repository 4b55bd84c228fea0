//! The record of a run: a header, then every event with the orders it caused.
//!
//! Records are the contract between simulator and executor: both write the same ones, [`replay`](fn@replay) checks them, and
//! [`metrics`](crate::metrics) computes everything that is reported from them. This module turns them into text and back; reading and
//! writing files is the binary's work.

mod codec;
mod digest;
mod replay;
mod trace;

use crate::core::{Action, Event};
use crate::time::Time;
use std::collections::BTreeMap;

pub use digest::Digest;
pub use replay::{Divergence, replay};
pub use trace::{Encoder, Trace, TraceError, parse};

/// One event and the orders it caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When.
    pub at: Time,
    /// What happened.
    pub event: Event,
    /// What followed.
    pub actions: Vec<Action>,
}

/// What a run was: enough to build its plan and policy again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Single-line facts by name: driver, version, commit, seed, machine, digests.
    pub facts: BTreeMap<String, String>,
    /// The resolved configuration, as the file it would be.
    pub config: String,
    /// The length of every sample in the order of the data. (tokens)
    pub lengths: Vec<u32>,
}
