//! dflash

mod config;
mod figure;
mod output;

fn main() {}
