//! Rates at which positions turn queries and keys.

use std::f64::consts::TAU;

use super::fields::Fields;
use crate::model::ModelError;

/// Rotary embedding: pair i of a head turns by `position · rates[i]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotary {
    /// Radians a token, a rate for each pair of turned dimensions; a head wider than two dimensions
    /// a rate keeps the rest as it is.
    pub rates: Vec<f64>,
}

/// Scaled rope of Llama 3: slow rates are divided by `factor`, fast ones stay, with a ramp between.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Llama3Scaling {
    factor: f64,
    low_freq_factor: f64,
    high_freq_factor: f64,
    /// Tokens that the unscaled model was trained on.
    original: f64,
}

impl Rotary {
    /// Rates θ^(−2i/D) for `dims` = D turned dimensions.
    pub(crate) fn new(dims: usize, theta: f64) -> Self {
        let rate = |i: usize| theta.powf(-2.0 * i as f64 / dims as f64);
        Self {
            rates: (0..dims / 2).map(rate).collect(),
        }
    }

    /// The same with rates scaled as Llama 3 scales them.
    pub(super) fn scaled(mut self, scaling: &Llama3Scaling) -> Self {
        for rate in &mut self.rates {
            *rate = scaling.apply(*rate);
        }
        self
    }

    /// The same with each rate divided by its own number, as a GGUF gives them.
    ///
    /// Errors: as many divisors as rates are needed, each positive.
    pub(crate) fn divided(mut self, divisors: &[f32]) -> Result<Self, String> {
        if divisors.len() != self.rates.len() || divisors.iter().any(|d| d.is_nan() || *d <= 0.0) {
            let want = self.rates.len();
            let have = divisors.len();
            return Err(format!(
                "expected {want} positive numbers, one for each pair of a head, found {have}"
            ));
        }
        for (rate, divisor) in self.rates.iter_mut().zip(divisors) {
            *rate /= f64::from(*divisor);
        }
        Ok(self)
    }
}

impl Llama3Scaling {
    /// Reads the keys of a rope section of type `llama3`.
    pub(super) fn from_fields(f: &Fields) -> Result<Self, ModelError> {
        let scaling = Self {
            factor: f.positive("factor")?,
            low_freq_factor: f.positive("low_freq_factor")?,
            high_freq_factor: f.positive("high_freq_factor")?,
            original: f.size("original_max_position_embeddings")? as f64,
        };
        if scaling.high_freq_factor <= scaling.low_freq_factor {
            return Err(f.wrong(
                "high_freq_factor",
                format!("must exceed low_freq_factor = {}", scaling.low_freq_factor),
            ));
        }
        Ok(scaling)
    }

    fn apply(&self, rate: f64) -> f64 {
        // Whole turns that this rate makes over the original context.
        let turns = self.original * rate / TAU;
        let ramp = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor);
        let kept = ramp.clamp(0.0, 1.0);
        rate * (kept + (1.0 - kept) / self.factor)
    }
}
