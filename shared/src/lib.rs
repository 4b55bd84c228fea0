//! dflash-shared
#![forbid(unsafe_code)]
