//! dflash-sim
#![forbid(unsafe_code)]

pub mod spec;
