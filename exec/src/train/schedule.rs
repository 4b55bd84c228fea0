//! The learning rate over a run.

/// Linear warm-up to a peak, then half a cosine down to a minimum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Learning rate at the end of the warm-up.
    pub peak: f64,
    /// Learning rate of the last step and of any after it.
    pub minimum: f64,
    /// Steps of warm-up.
    pub warmup_steps: u64,
    /// Steps of the whole run.
    pub total_steps: u64,
}

impl Schedule {
    /// The published recipe: warm-up over 4 % of the run, then down to 0.
    pub fn cosine(peak: f64, total_steps: u64) -> Self {
        Self {
            peak,
            minimum: 0.0,
            warmup_steps: total_steps / 25,
            total_steps,
        }
    }

    /// The same rate at every step.
    pub fn constant(rate: f64) -> Self {
        Self {
            peak: rate,
            minimum: rate,
            warmup_steps: 0,
            total_steps: 0,
        }
    }

    /// The learning rate of a step, counted from 1. Step 1 has the first non-zero rate, step
    /// `warmup_steps` the peak, step `total_steps` the minimum.
    pub fn rate(&self, step: u64) -> f64 {
        if step <= self.warmup_steps {
            return self.peak * step as f64 / self.warmup_steps as f64;
        }
        let falling = self.total_steps.saturating_sub(self.warmup_steps);
        if step >= self.total_steps || falling == 0 {
            return self.minimum;
        }
        let progress = (step - self.warmup_steps) as f64 / falling as f64;
        let half_cosine = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
        self.minimum + (self.peak - self.minimum) * half_cosine
    }
}

#[cfg(test)]
mod tests {
    use super::Schedule;

    #[test]
    fn rises_to_the_peak_and_falls_to_the_minimum() {
        let s = Schedule {
            peak: 8.0,
            minimum: 2.0,
            warmup_steps: 4,
            total_steps: 14,
        };
        assert_eq!([1, 4].map(|step| s.rate(step)), [2.0, 8.0]);
        assert!((s.rate(9) - 5.0).abs() < 1e-12, "half way down");
        assert_eq!([14, 99].map(|step| s.rate(step)), [2.0, 2.0]);
        let rates: Vec<f64> = (4..=14).map(|step| s.rate(step)).collect();
        assert!(rates.windows(2).all(|w| w[1] < w[0]), "{rates:?}");
    }

    #[test]
    fn a_constant_rate_stays() {
        assert_eq!(
            [1, 7].map(|step| Schedule::constant(0.3).rate(step)),
            [0.3, 0.3]
        );
    }
}
