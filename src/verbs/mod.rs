//! One file a verb: arguments to settings to library calls to output.

mod possible;
mod recorded;
mod retrace;
pub(crate) mod best;
pub(crate) mod calibrate;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod data;
pub(crate) mod exec;
pub(crate) mod quickstart;
pub(crate) mod replay;
pub(crate) mod sim;
