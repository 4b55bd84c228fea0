//! What the tests share: work to do, and a driver that does it.

mod driver;
mod ending;
mod setting;
mod work;

pub(crate) use driver::{Driver, End};
pub(crate) use setting::{Fault, Kind, Times, Worker};
pub(crate) use work::Work;
