//! dflash-exec
