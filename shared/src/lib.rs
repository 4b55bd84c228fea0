//! The scheduling core of dflash: what the simulator and the executor share.
//!
//! It turns sequence lengths into a [`plan`], a [`policy`] into decisions, and a run into [`record`]s and [`metrics`]. It knows sizes
//! and identities, never tensors, and it has no clock, thread, file, environment, float time or hash-map order: whatever it does is
//! a function of its arguments. [`core::Core::on`] is the only mutator.
#![forbid(unsafe_code)]

pub mod core;
pub mod draw;
pub mod id;
pub mod load;
pub mod metrics;
pub mod plan;
pub mod policy;
pub mod record;
pub mod time;
