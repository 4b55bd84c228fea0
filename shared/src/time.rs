//! Time as the core knows it: whole nanoseconds since the run began.
//!
//! Only drivers make a [`Time`]; the core compares and subtracts. A [`Span`] is a length of time. Neither is a float, so
//! two machines that see the same events reach the same sums to the last digit.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

/// An instant of a run. (ns since the run began)
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(u64);

/// A length of time. (ns)
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Span(u64);

impl Time {
    /// The beginning of the run.
    pub const ZERO: Self = Self(0);

    /// The instant `ns` nanoseconds after the run began.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the run began.
    pub const fn as_ns(self) -> u64 {
        self.0
    }
}

impl Span {
    /// No time at all. Work may take none: a zero-length completion is still an event.
    pub const ZERO: Self = Self(0);

    /// A span of `ns` nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// A span of `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// The span in nanoseconds.
    pub const fn as_ns(self) -> u64 {
        self.0
    }
}

impl Add<Span> for Time {
    type Output = Self;
    #[inline]
    fn add(self, span: Span) -> Self {
        Self(self.0 + span.0)
    }
}

impl Sub for Time {
    type Output = Span;
    /// # Panics
    /// When `earlier` is after `self`: a negative span is a bug of the caller.
    #[inline]
    fn sub(self, earlier: Self) -> Span {
        Span(self.0.checked_sub(earlier.0).expect("time never goes back"))
    }
}

impl Add for Span {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Span {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sum for Span {
    fn sum<I: Iterator<Item = Self>>(spans: I) -> Self {
        spans.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span(self.0).fmt(f)
    }
}

impl fmt::Display for Span {
    /// Seconds with three digits, from whole milliseconds; shorter spans in microseconds or nanoseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => write!(f, "0 s"),
            ns @ 1..1_000 => write!(f, "{ns} ns"),
            ns @ 1_000..1_000_000 => write!(f, "{} us", ns / 1_000),
            ns => write!(f, "{}.{:03} s", ns / 1_000_000_000, ns / 1_000_000 % 1_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_differences_of_times() {
        assert_eq!(Time::from_ns(70) - Time::from_ns(30), Span::from_ns(40));
        assert_eq!(
            Time::from_ns(5) + Span::from_ms(1),
            Time::from_ns(1_000_005)
        );
    }

    #[test]
    fn spans_read_in_a_fitting_unit() {
        let shown = [0, 12, 4_500, 1_234_567_890].map(|ns| Span::from_ns(ns).to_string());
        assert_eq!(shown, ["0 s", "12 ns", "4 us", "1.234 s"]);
    }
}
