//! dflash

mod config;
mod output;

fn main() {}
