//! Synthetic sequence lengths, keyed by sample: sample i has its length whatever else is drawn.

use crate::service::Words;
use crate::spec::{Lengths, Workload};
use rand_distr::{Distribution, StandardNormal};
use shared::draw::{Seed, Stream};

/// Lengths that a workload draws, or `None` when they come from elsewhere (a file, data, microbatches given directly).
///
/// Lognormal lengths are clamped to their limits, as truncation by a trainer does. (tokens)
pub fn draw_lengths(workload: &Workload, seed: Seed) -> Option<Vec<u32>> {
    let each = |length: &dyn Fn(u64) -> u32| {
        let words = (0..u64::from(workload.samples)).map(|i| seed.draw(Stream::Length, i));
        Some(words.map(length).collect())
    };
    match &workload.lengths {
        Lengths::Lognormal {
            median,
            sigma,
            min,
            max,
        } => each(&|word| {
            let normal: f64 = StandardNormal.sample(&mut Words(word));
            let length = median * (sigma * normal).exp();
            length.round().clamp(f64::from(*min), f64::from(*max)) as u32
        }),
        Lengths::Uniform { min, max } => each(&|word| min + scaled(word, u64::from(max - min) + 1)),
        Lengths::Constant(tokens) => each(&|_| *tokens),
        Lengths::Mixture(shares) => each(&|word| {
            let mut left = unit(word);
            let hit = shares.iter().find(|share| {
                left -= share.share;
                left < 0.0
            });
            hit.or_else(|| shares.last())
                .expect("a mixture has parts")
                .tokens
        }),
        Lengths::File(_) | Lengths::Data | Lengths::Microbatches { .. } => None,
    }
}

fn scaled(word: u64, below: u64) -> u32 {
    ((u128::from(word) * u128::from(below)) >> 64) as u32
}

/// A uniform number in [0, 1) from the upper 53 bits.
pub(crate) fn unit(word: u64) -> f64 {
    (word >> 11) as f64 / (1_u64 << 53) as f64
}
