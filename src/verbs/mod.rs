//! One file a verb: arguments to settings to library calls to output.

pub(crate) mod best;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod data;
mod possible;
mod recorded;
pub(crate) mod replay;
mod retrace;
pub(crate) mod sim;
