//! dflash-exec

pub mod backend;
pub mod clock;
pub mod driver;
pub mod error;

pub mod store;
mod worker;
