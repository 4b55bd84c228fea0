//! dflash-sim
#![forbid(unsafe_code)]
