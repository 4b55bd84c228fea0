//! Quantities that a file writes as text with a unit: sizes of memory and rates of links.
//!
//! Both also read plain numbers (bytes, bytes a second) and write text that reads back to the same value.

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use shared::id::Bytes;
use std::fmt;

/// An amount of memory: `"36 GiB"`, `"3 GB"`, or a whole number of bytes. (bytes)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// How fast a link carries data: `"1.5 GB/s"`, `"200 Gbit/s"`, or a number of bytes a second. (bytes/s)
///
/// Invariant: finite and above zero.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(f64);

/// Why a text is no quantity. Messages carry the text, what is accepted and an example.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text does not begin with a decimal number.
    #[error("{text:?} does not begin with a number; write it as in {example:?}")]
    NoNumber {
        /// What was read.
        text: String,
        /// A text that would do.
        example: &'static str,
    },
    /// The number stands alone.
    #[error("{text:?} has no unit; write it as in {example:?}, or as a number without quotes")]
    NoUnit {
        /// What was read.
        text: String,
        /// A text that would do.
        example: &'static str,
    },
    /// The unit is not known.
    #[error("{text:?} has the unknown unit {unit:?}; use one of {known}")]
    UnknownUnit {
        /// What was read.
        text: String,
        /// The part that is no unit.
        unit: String,
        /// Accepted units.
        known: String,
    },
    /// The value does not fit its type.
    #[error("{text:?} is out of range; {limit}")]
    OutOfRange {
        /// What was read.
        text: String,
        /// What fits.
        limit: &'static str,
    },
}

const SIZES: [(&str, u64); 10] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

const RATES: [(&str, f64); 13] = [
    ("TB/s", 1e12),
    ("GB/s", 1e9),
    ("MB/s", 1e6),
    ("kB/s", 1e3),
    ("KB/s", 1e3),
    ("TiB/s", 1_099_511_627_776.0),
    ("GiB/s", 1_073_741_824.0),
    ("MiB/s", 1_048_576.0),
    ("KiB/s", 1_024.0),
    ("Tbit/s", 1.25e11),
    ("Gbit/s", 1.25e8),
    ("Mbit/s", 1.25e5),
    ("B/s", 1.0),
];

const SIZE_EXAMPLE: &str = "36 GiB";
const RATE_EXAMPLE: &str = "1.5 GB/s";
const SIZE_LIMIT: &str = "sizes are whole bytes from 0 to 18446744073709551615";
const RATE_LIMIT: &str = "rates are finite and above 0";

impl ByteSize {
    /// The amount as the core counts it.
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0)
    }

    /// Reads `"36 GiB"`. Fractions are rounded to the nearest byte.
    ///
    /// # Errors
    /// When number or unit cannot be read, or the size exceeds 64 bits.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let (number, factor) = split(text, &SIZES, SIZE_EXAMPLE)?;
        scaled(number, factor)
            .map(Self)
            .ok_or_else(|| UnitError::OutOfRange {
                text: text.into(),
                limit: SIZE_LIMIT,
            })
    }
}

impl Rate {
    /// A rate of `bytes_per_s`, if that is finite and above zero. (bytes/s)
    pub fn new(bytes_per_s: f64) -> Option<Self> {
        (bytes_per_s.is_finite() && bytes_per_s > 0.0).then_some(Self(bytes_per_s))
    }

    /// The rate. (bytes/s)
    pub const fn bytes_per_s(self) -> f64 {
        self.0
    }

    /// Reads `"1.5 GB/s"` or `"200 Gbit/s"`.
    ///
    /// # Errors
    /// When number or unit cannot be read, or the rate is zero or not finite.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let (number, factor) = split(text, &RATES, RATE_EXAMPLE)?;
        let out_of_range = || UnitError::OutOfRange {
            text: text.into(),
            limit: RATE_LIMIT,
        };
        let number: f64 = number.parse().map_err(|_| out_of_range())?;
        Self::new(number * factor).ok_or_else(out_of_range)
    }
}

impl fmt::Display for ByteSize {
    /// In the largest unit that divides the size, so that it reads back exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = SIZES
            .iter()
            .filter(|_| self.0 > 0)
            .find(|(_, size)| self.0.is_multiple_of(*size))
            .unwrap_or(&("B", 1));
        write!(f, "{} {unit}", self.0 / size)
    }
}

impl fmt::Display for Rate {
    /// In the largest decimal unit that reads back exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = RATES
            .iter()
            .take(4)
            .find(|(_, factor)| self.0 >= *factor && self.0 / factor * factor == self.0)
            .unwrap_or(&("B/s", 1.0));
        write!(f, "{} {unit}", self.0 / factor)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RateVisitor)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a whole number of bytes or a text such as {SIZE_EXAMPLE:?}"
        )
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(bytes))
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
        u64::try_from(bytes)
            .map(ByteSize)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(bytes), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
        ByteSize::parse(text).map_err(E::custom)
    }
}

struct RateVisitor;

impl Visitor<'_> for RateVisitor {
    type Value = Rate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a number of bytes a second above 0 or a text such as {RATE_EXAMPLE:?}"
        )
    }

    fn visit_f64<E: de::Error>(self, rate: f64) -> Result<Rate, E> {
        Rate::new(rate).ok_or_else(|| E::invalid_value(de::Unexpected::Float(rate), &self))
    }

    fn visit_u64<E: de::Error>(self, rate: u64) -> Result<Rate, E> {
        Rate::new(rate as f64)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(rate), &self))
    }

    fn visit_i64<E: de::Error>(self, rate: i64) -> Result<Rate, E> {
        Rate::new(rate as f64).ok_or_else(|| E::invalid_value(de::Unexpected::Signed(rate), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Rate, E> {
        Rate::parse(text).map_err(E::custom)
    }
}

/// The number of a text and what its unit stands for.
fn split<'t, T: Copy>(
    text: &'t str,
    units: &[(&str, T)],
    example: &'static str,
) -> Result<(&'t str, T), UnitError> {
    let trimmed = text.trim();
    let end = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let unit = unit.trim_start();
    if number.parse::<f64>().is_err() {
        return Err(UnitError::NoNumber {
            text: text.into(),
            example,
        });
    }
    if unit.is_empty() {
        return Err(UnitError::NoUnit {
            text: text.into(),
            example,
        });
    }
    match units.iter().find(|(name, _)| *name == unit) {
        Some((_, value)) => Ok((number, *value)),
        None => Err(UnitError::UnknownUnit {
            text: text.into(),
            unit: unit.into(),
            known: units.iter().map(|u| u.0).collect::<Vec<_>>().join(", "),
        }),
    }
}

/// A decimal number times a factor, to the nearest whole, in integers so that no digit is lost.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits: u128 = format!("0{whole}{fraction}").parse().ok()?;
    let divisor = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let product = digits.checked_mul(u128::from(factor))?;
    u64::try_from(product.checked_add(divisor / 2)? / divisor).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_in_binary_and_decimal_units() {
        let read = |text| ByteSize::parse(text).map(|size| size.0);
        assert_eq!(read("36 GiB"), Ok(36 << 30));
        assert_eq!(read("3GB"), Ok(3_000_000_000));
        assert_eq!(read("1.5 KiB"), Ok(1536));
        assert_eq!(read("0.1 kB"), Ok(100));
        assert_eq!(read("1.1 GiB"), Ok(1_181_116_006));
        assert_eq!(read("18446744073709551615 B"), Ok(u64::MAX));
    }

    #[test]
    fn what_is_no_size_says_what_would_be() {
        let refused = |text| ByteSize::parse(text).unwrap_err().to_string();
        assert_eq!(
            refused("lots"),
            r#""lots" does not begin with a number; write it as in "36 GiB""#
        );
        assert_eq!(
            refused("-3 GB"),
            r#""-3 GB" does not begin with a number; write it as in "36 GiB""#
        );
        assert_eq!(
            refused("36"),
            r#""36" has no unit; write it as in "36 GiB", or as a number without quotes"#
        );
        assert_eq!(
            refused("36 Gib"),
            r#""36 Gib" has the unknown unit "Gib"; use one of TiB, GiB, MiB, KiB, TB, GB, MB, kB, KB, B"#
        );
        assert_eq!(
            refused("18446744073709551616 B"),
            r#""18446744073709551616 B" is out of range; sizes are whole bytes from 0 to 18446744073709551615"#
        );
        assert_eq!(
            refused("1.2.3 GB"),
            r#""1.2.3 GB" does not begin with a number; write it as in "36 GiB""#
        );
    }

    #[test]
    fn sizes_write_what_reads_back() {
        for (size, text) in [
            (0, "0 B"),
            (36 << 30, "36 GiB"),
            (3_000_000_000, "3 GB"),
            (1_181_116_006, "1181116006 B"),
            (u64::MAX, "18446744073709551615 B"),
        ] {
            assert_eq!(ByteSize(size).to_string(), text);
            assert_eq!(ByteSize::parse(text), Ok(ByteSize(size)));
        }
    }

    #[test]
    fn rates_write_what_reads_back() {
        for (rate, text) in [
            (1.5e9, "1.5 GB/s"),
            (25e9, "25 GB/s"),
            (0.3, "0.3 B/s"),
            (1_073_741_824.0, "1.073741824 GB/s"),
        ] {
            let rate = Rate::new(rate).unwrap();
            assert_eq!(rate.to_string(), text);
            assert_eq!(Rate::parse(text), Ok(rate));
        }
        let mut odd = 1.0_f64;
        while odd < 1e18 {
            let rate = Rate::new(odd).unwrap();
            assert_eq!(Rate::parse(&rate.to_string()), Ok(rate), "{odd}");
            odd *= 1.7;
        }
        assert_eq!(Rate::parse("200 Gbit/s"), Ok(Rate(25e9)));
    }

    #[test]
    fn rates_are_finite_and_above_zero() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Rate::new(rate), None);
        }
        assert_eq!(
            Rate::parse("0 GB/s").unwrap_err().to_string(),
            r#""0 GB/s" is out of range; rates are finite and above 0"#
        );
    }
}
