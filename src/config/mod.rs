//! Reading scenarios and policies: strict, and with errors that name file, key, value, limit and way out.
//!
//! ```text
//! files, --set flags --load--> Loaded --parse--> any type
//!                                     --expand--> Points --point--> one concrete scenario
//! ```
//!
//! Files merge left to right, tables deeply, anything else by replacement; flags come last. [`Loaded`] remembers where each key
//! came from, so that whatever is found wrong later, with types or with meaning, is reported in its place.

mod error;
mod flag;
mod kind;
mod load;
mod path;
mod points;
mod range;
mod read;
#[cfg(test)]
mod spec_tests;

pub(crate) use error::ConfigErrors;
pub(crate) use kind::{Kind, refuse_ranges};
pub(crate) use load::{Loaded, load};
pub(crate) use points::{POINTS_MAX, Point, Points};
