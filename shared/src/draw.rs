//! Randomness as a function: a word drawn from (seed, stream, number), never from a generator that remembers.
//!
//! Whoever draws names the stream and the number, so two policies that face the same microbatch draw the same word (common
//! random numbers) and a run replays from its trace alone. The mixing function is SplitMix64's finaliser (Steele, Lea and
//! Flood, OOPSLA 2014), applied between the parts.

use serde::{Deserialize, Serialize};

/// The one number that decides everything random in a run.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seed(pub u64);

/// What a draw is for. Different streams of one seed are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Stream {
    /// Order of samples within an epoch.
    Shuffle = 1,
    /// Order of microbatches under policies that do not compose steps.
    Order = 2,
    /// A policy's own random choice; the number is the decision's.
    Decision = 3,
    /// Noise of a target forward; the number is the microbatch's key.
    Forward = 4,
    /// Noise of a drafter's forward and backward.
    Train = 5,
    /// Synthetic sequence lengths.
    Length = 6,
    /// Injected faults.
    Fault = 7,
}

impl Seed {
    /// The word that (seed, stream, number) stands for.
    pub fn draw(self, stream: Stream, number: u64) -> u64 {
        mix(mix(self.0 ^ (stream as u64).wrapping_mul(GOLDEN)) ^ number.wrapping_mul(GOLDEN))
    }

    /// A whole number below `below`, by multiplication (Lemire 2019); its bias is under `below` / 2^64.
    ///
    /// # Panics
    /// When `below` is 0.
    pub fn below(self, stream: Stream, number: u64, below: u64) -> u64 {
        assert!(below > 0, "there is something to choose from");
        ((u128::from(self.draw(stream, number)) * u128::from(below)) >> 64) as u64
    }

    /// A seed of its own for part `number` of the run, such as an epoch or a replication.
    pub fn derive(self, number: u64) -> Self {
        Self(mix(self.0.wrapping_add(mix(number ^ GOLDEN))))
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(GOLDEN);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_depends_on_each_of_its_parts() {
        let word = Seed(1).draw(Stream::Forward, 7);
        assert_eq!(word, Seed(1).draw(Stream::Forward, 7));
        assert_ne!(word, Seed(2).draw(Stream::Forward, 7));
        assert_ne!(word, Seed(1).draw(Stream::Train, 7));
        assert_ne!(word, Seed(1).draw(Stream::Forward, 8));
    }

    #[test]
    fn choices_cover_their_range_evenly() {
        let mut counts = [0_u32; 6];
        for number in 0..60_000 {
            counts[Seed(9).below(Stream::Decision, number, 6) as usize] += 1;
        }
        assert!(
            counts.iter().all(|&c| (9_600..10_400).contains(&c)),
            "{counts:?}"
        );
    }
}
