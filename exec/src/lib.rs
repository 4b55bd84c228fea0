//! The executor of dflash: it runs a policy for real.
//!
//! A driver feeds the scheduling core with what its workers report and carries out what the core orders. Backends compute; the store
//! keeps hidden states and counts their bytes.

pub mod backend;
pub mod calibrate;
pub mod checkpoint;
pub mod checks;
pub mod clock;
pub mod config;
pub mod cuda;
pub mod data;
pub mod decode;
pub mod driver;
pub mod error;
pub mod model;
#[doc(hidden)]
pub mod parity;
pub mod progress;
pub mod store;
pub mod train;
mod worker;
