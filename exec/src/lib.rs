//! dflash-exec
pub mod checkpoint;
pub mod model;
pub mod train;
