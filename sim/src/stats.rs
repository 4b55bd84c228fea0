//! Means over independent replications, with the interval that Student's t gives them.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean with its confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the interval's width; 0 for a single replication, which has no interval.
    pub half_width: f64,
    /// Replications.
    pub count: usize,
}

/// The confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;

impl Estimate {
    /// The mean of `values` and its 95 % interval.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len();
        if count == 0 {
            return Self::default();
        }
        let n = count as f64;
        let mean = values.iter().sum::<f64>() / n;
        if count == 1 {
            return Self {
                mean,
                half_width: 0.0,
                count,
            };
        }
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let t = StudentsT::new(0.0, 1.0, n - 1.0).expect("there are degrees of freedom");
        let quantile = t.inverse_cdf(0.5 + CONFIDENCE / 2.0);
        Self {
            mean,
            half_width: quantile * (variance / n).sqrt(),
            count,
        }
    }

    /// Lower end.
    pub fn low(&self) -> f64 {
        self.mean - self.half_width
    }

    /// Upper end.
    pub fn high(&self) -> f64 {
        self.mean + self.half_width
    }
}

#[cfg(test)]
mod tests {
    use super::Estimate;

    #[test]
    fn the_interval_is_students() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(estimate.mean, 2.5);
        // t(0.975; 3) = 3.182446; s = 1.290994; s/sqrt(4) = 0.645497
        assert!((estimate.half_width - 3.182_446 * 0.645_497).abs() < 1e-4);
        assert_eq!(Estimate::of(&[7.0]).half_width, 0.0);
    }
}
