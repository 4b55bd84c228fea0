//! What a result must not depend on, and what it must.

mod base;
mod host;
mod knobs;
mod stalls;
mod ties;
