//! dflash
mod figure;
fn main() {}
