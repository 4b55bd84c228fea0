//! Identities and amounts. Each has its own type, so a bucket cannot stand where a drafter is meant.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, SubAssign};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The identity as an index into a table.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The identity of table row `index`.
            ///
            /// # Panics
            /// When the index does not fit; plans bound it.
            #[inline]
            pub fn from_index(index: usize) -> Self {
                Self(<$inner>::try_from(index).expect("an identity fits its type"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A target worker, counted from 0.
    TargetId(u16), "t"
);
id!(
    /// A drafter worker, counted from 0.
    DrafterId(u16), "d"
);
id!(
    /// A class of sequence lengths, shortest first.
    BucketId(u8), "b"
);
id!(
    /// A microbatch: its row in [`Plan::microbatches`](crate::plan::Plan), which is dispatch order.
    MicrobatchId(u32), "m"
);
id!(
    /// An optimizer step, counted from 0. With independent drafters each drafter counts its own.
    StepId(u32), "s"
);
id!(
    /// A training sequence: its row in the data.
    SampleId(u32), "#"
);

macro_rules! amount {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl From<u64> for $name {
            fn from(amount: u64) -> Self {
                Self(amount)
            }
        }

        impl Add for $name {
            type Output = Self;
            #[inline]
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl AddAssign for $name {
            #[inline]
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl SubAssign for $name {
            /// # Panics
            /// When more is taken than there is: amounts are conserved.
            #[inline]
            fn sub_assign(&mut self, other: Self) {
                self.0 = self.0.checked_sub(other.0).expect("no more is taken than there is");
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
                amounts.fold(Self(0), Add::add)
            }
        }
    };
}

amount!(
    /// An amount of memory or of data on a link. (bytes)
    Bytes
);
amount!(
    /// A number of tokens. (tokens)
    Tokens
);

impl fmt::Display for Bytes {
    /// In the largest binary unit that keeps at least one whole, with one digit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let unit = (0..UNITS.len())
            .rev()
            .find(|u| self.0 >> (10 * u) > 0)
            .unwrap_or(0);
        if unit == 0 {
            return write!(f, "{} B", self.0);
        }
        let tenths = (u128::from(self.0) * 10) >> (10 * unit);
        write!(f, "{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_carry_their_letter() {
        assert_eq!(
            format!("{} {} {}", TargetId(3), MicrobatchId(12), BucketId(0)),
            "t3 m12 b0"
        );
    }

    #[test]
    fn bytes_read_in_binary_units() {
        let shown = [7, 2048, 3_019_898_880, u64::MAX].map(|b| Bytes(b).to_string());
        assert_eq!(shown, ["7 B", "2.0 KiB", "2.8 GiB", "16777215.9 TiB"]);
    }
}
