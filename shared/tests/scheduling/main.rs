//! The scheduling core under a small deterministic driver: presets, rules, faults, random runs and exhaustive search.

mod caps;
mod common;
mod exhaustive;
mod faults;
mod metrics;
mod presets;
mod stalls;
mod steps;
mod stop;
mod swarm;
