//! Statistics of simulated runs: means with intervals, warm-up, paired comparisons, many comparisons at once.

mod holm;
mod paired;
mod series;
mod warm_up;

pub use holm::holm;
pub use paired::{Paired, replications_for};
pub use series::{BATCH_STEPS, batch_means, relative_error};
pub use warm_up::{Settled, WarmUp, mser, warm_up};

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
        let (mean, variance) = moments(values);
        let half_width = if count == 1 {
            0.0
        } else {
            let quantile = t_quantile(0.5 + CONFIDENCE / 2.0, count - 1);
            quantile * (variance / count as f64).sqrt()
        };
        Self {
            mean,
            half_width,
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

/// Mean and unbiased variance; the variance of fewer than two values is 0.
pub(crate) fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    let squares = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
    let variance = if values.len() > 1 {
        squares / (n - 1.0)
    } else {
        0.0
    };
    (mean, variance)
}

/// The quantile of Student's t with so many degrees of freedom, at least one.
pub(crate) fn t_quantile(probability: f64, freedom: usize) -> f64 {
    students(freedom).inverse_cdf(probability)
}

/// The probability that Student's t exceeds `t`.
pub(crate) fn t_tail(t: f64, freedom: usize) -> f64 {
    if t.is_finite() {
        students(freedom).sf(t)
    } else if t > 0.0 {
        0.0
    } else {
        1.0
    }
}

fn students(freedom: usize) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom.max(1) as f64).expect("there are degrees of freedom")
}

#[cfg(test)]
mod tests {
    use super::Estimate;
    use rand_distr::{Distribution as _, StandardNormal};
    use shared::draw::{Seed, Stream};

    #[test]
    fn the_interval_is_students() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(estimate.mean, 2.5);
        // t(0.975; 3) = 3.182446; s = 1.290994; s/sqrt(4) = 0.645497
        assert!((estimate.half_width - 3.182_446 * 0.645_497).abs() < 1e-4);
        assert_eq!(Estimate::of(&[7.0]).half_width, 0.0);
    }

    #[test]
    fn the_interval_covers_the_truth_as_often_as_it_says() {
        let trials = 4_000;
        for replications in [3, 5, 20] {
            let covered = (0..trials).filter(|trial| {
                let values: Vec<f64> = (0..replications)
                    .map(|i| {
                        let word = Seed(*trial).draw(Stream::Decision, i);
                        let z: f64 = StandardNormal.sample(&mut crate::service::Words(word));
                        5.0 + z
                    })
                    .collect();
                let estimate = Estimate::of(&values);
                estimate.low() <= 5.0 && 5.0 <= estimate.high()
            });
            let share = covered.count() as f64 / trials as f64;
            // Three standard errors of a share of 0.95 over 4,000 trials are 0.0103.
            assert!(
                (share - 0.95).abs() < 0.0103,
                "{replications} replications: {share}"
            );
        }
    }
}
