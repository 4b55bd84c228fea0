//! A sweep of the reference scenario: `cargo bench --bench sweep -- [FAMILIES]`; 288 families are the whole.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

mod cases;

fn main() {
    let families = std::env::args()
        .skip(1)
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(8);
    println!("{}", cases::sweep::sweep_families(families));
}
