//! One file a verb: arguments to settings to library calls to output.

pub(crate) mod ablate;
pub(crate) mod best;
pub(crate) mod box_links;
pub(crate) mod calibrate;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod data;
pub(crate) mod eval;
pub(crate) mod exec;
pub(crate) mod explain;
pub(crate) mod inspect;
mod possible;
pub(crate) mod prepare;
pub(crate) mod quickstart;
mod recorded;
pub(crate) mod regenerate;
pub(crate) mod replay;
mod retrace;
pub(crate) mod sim;
pub(crate) mod trace;
pub(crate) mod twin;
pub(crate) mod validate;
