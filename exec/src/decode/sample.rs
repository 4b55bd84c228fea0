//! Drawing a token by temperature, as a function of seed and place.

use super::choice::Choice;
use crate::model::hash;

/// How tokens are taken from logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// 0 takes the most likely token, 1 draws from the model's own distribution.
    pub temperature: f64,
    /// Seed of all draws.
    pub seed: u64,
}

impl Sampling {
    /// The most likely token, always.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        seed: 0,
    };

    /// The token at `position` of the text `stream`, from logits `[V]`. Depends on its arguments
    /// alone, neither on the batch nor on what was drawn before.
    pub fn take(&self, logits: &[f32], stream: u64, position: usize) -> u32 {
        if self.temperature <= 0.0 {
            return Choice::among(logits).token;
        }
        let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weight = |logit: f32| (f64::from(logit - top) / self.temperature).exp();
        let total: f64 = logits.iter().map(|&logit| weight(logit)).sum();
        let unit = (hash(&[self.seed, stream, position as u64]) >> 11) as f64 / UNITS;
        let mut left = unit * total;
        for (token, &logit) in logits.iter().enumerate() {
            left -= weight(logit);
            if left < 0.0 {
                return token as u32;
            }
        }
        // Rounding may leave a rest behind the last token.
        Choice::among(logits).token
    }
}

/// 2⁵³: whole numbers below it are exact.
const UNITS: f64 = (1u64 << 53) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_distribution() {
        let logits = [0.5f32.ln(), 0.25f32.ln(), 0.25f32.ln()];
        let share = |temperature: f64| {
            let sampling = Sampling {
                temperature,
                seed: 5,
            };
            let first = (0..10_000).filter(|&i| sampling.take(&logits, 1, i) == 0);
            first.count() as f64 / 10_000.0
        };
        // Standard deviation 0.005. At temperature 1/2 probabilities are squared: 4 of 6.
        assert!((share(1.0) - 0.5).abs() < 0.02, "{}", share(1.0));
        assert!((share(0.5) - 2.0 / 3.0).abs() < 0.02, "{}", share(0.5));
        assert_eq!(share(0.0), 1.0);
    }

    #[test]
    fn seed_text_and_position_decide() {
        let logits = [0.0f32; 1000];
        let take = |seed, stream, position| {
            let sampling = Sampling {
                temperature: 1.0,
                seed,
            };
            sampling.take(&logits, stream, position)
        };
        let base = take(1, 2, 3);
        assert_eq!(base, take(1, 2, 3));
        for other in [take(2, 2, 3), take(1, 3, 3), take(1, 2, 4)] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn impossible_tokens_are_never_drawn() {
        let logits = [f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY];
        let sampling = Sampling {
            temperature: 1.0,
            seed: 1,
        };
        assert!((0..100).all(|i| sampling.take(&logits, 0, i) == 1));
    }
}
