//! What the tests share: work to do, and a driver that does it.

mod driver;
mod work;

pub(crate) use driver::{Driver, End, Fault, Kind, Times, Worker};
pub(crate) use work::Work;
