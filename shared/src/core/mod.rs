//! The scheduling core: a state machine with one mutator, [`Core::on`].
mod action;
mod event;
pub use action::{Action, Actions};
pub use event::{Event, Group, Outcome};
