//! dflash
fn main() {}
