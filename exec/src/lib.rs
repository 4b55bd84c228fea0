//! dflash-exec

pub mod data;
