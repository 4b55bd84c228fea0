//! The difference of two policies on the same seeds, replication by replication.

use super::{moments, t_quantile, t_tail};

/// Replications of two policies, paired by their seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// Mean of the differences, first minus second.
    pub mean: f64,
    /// Standard error of that mean.
    pub error: f64,
    /// Pairs.
    pub count: usize,
    /// Variance of the difference had the runs been independent, over that of the paired runs: above 1 where common random numbers
    /// helped. `None` if it cannot be told.
    pub variance_ratio: Option<f64>,
}

impl Paired {
    /// Pairs the first of both; `None` for fewer than two pairs.
    pub fn of(first: &[f64], second: &[f64]) -> Option<Self> {
        let count = first.len().min(second.len());
        if count < 2 {
            return None;
        }
        let (first, second) = (&first[..count], &second[..count]);
        let differences: Vec<f64> = first.iter().zip(second).map(|(a, b)| a - b).collect();
        let (mean, variance) = moments(&differences);
        let independent = moments(first).1 + moments(second).1;
        Some(Self {
            mean,
            error: (variance / count as f64).sqrt(),
            count,
            variance_ratio: (variance > 0.0).then(|| independent / variance),
        })
    }

    /// Half the width of the two-sided interval at this confidence.
    pub fn half_width(&self, confidence: f64) -> f64 {
        t_quantile(0.5 + confidence / 2.0, self.freedom()) * self.error
    }

    /// The p-value of the hypothesis that the true difference is at most `limit`.
    pub fn p_at_most(&self, limit: f64) -> f64 {
        self.tail(self.mean - limit)
    }

    /// The p-value of the hypothesis that the true difference is at least `limit`.
    pub fn p_at_least(&self, limit: f64) -> f64 {
        self.tail(limit - self.mean)
    }

    fn tail(&self, distance: f64) -> f64 {
        if self.error > 0.0 {
            t_tail(distance / self.error, self.freedom())
        } else if distance > 0.0 {
            0.0
        } else {
            1.0
        }
    }

    const fn freedom(&self) -> usize {
        self.count - 1
    }
}

/// Replications that bring the half-width of a mean's interval at `confidence` from a standard deviation of `deviation` down to
/// `wanted`: the least n with t(n - 1) · deviation / √n ≤ wanted, at most `most`.
pub fn replications_for(deviation: f64, wanted: f64, confidence: f64, most: usize) -> usize {
    let reached = |n: usize| {
        let quantile = t_quantile(0.5 + confidence / 2.0, n - 1);
        quantile * deviation / (n as f64).sqrt() <= wanted
    };
    let (mut low, mut high) = (2, most.max(2));
    while low < high {
        let middle = low.midpoint(high);
        if reached(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairing_takes_out_what_both_share() {
        let first = [10.0, 12.0, 11.0, 15.0];
        let second = [9.0, 11.1, 9.9, 14.0];
        let paired = Paired::of(&first, &second).unwrap();
        assert!((paired.mean - 1.0).abs() < 1e-12);
        // Differences 1, 0.9, 1.1, 1: variance 0.02/3, error sqrt(0.02/12).
        assert!((paired.error - (0.02_f64 / 12.0).sqrt()).abs() < 1e-12);
        assert!(paired.variance_ratio.unwrap() > 1_000.0);
        // t(0.975; 3) = 3.182446
        assert!((paired.half_width(0.95) - 3.182_446 * 0.040_825).abs() < 1e-5);
        assert!(paired.p_at_most(0.0) < 1e-4 && paired.p_at_most(1.0) == 0.5);
        assert!(paired.p_at_least(1.2) < 0.01 && paired.p_at_least(0.5) > 0.99);
        assert_eq!(Paired::of(&first[..1], &second), None);
    }

    #[test]
    fn equal_runs_have_no_doubt() {
        let paired = Paired::of(&[3.0, 4.0], &[3.0, 4.0]).unwrap();
        assert_eq!((paired.mean, paired.error), (0.0, 0.0));
        assert_eq!(paired.variance_ratio, None);
        assert_eq!((paired.p_at_most(-1.0), paired.p_at_most(0.0)), (0.0, 1.0));
    }

    #[test]
    fn replications_are_the_fewest_that_suffice() {
        // scipy: n = 18 gives t(0.975; 17) / sqrt(18) = 0.49729, n = 17 gives 0.51416.
        assert_eq!(replications_for(1.0, 0.5, 0.95, 1_000), 18);
        assert_eq!(replications_for(0.0, 0.5, 0.95, 1_000), 2);
        assert_eq!(replications_for(9.0, 1e-9, 0.95, 1_000), 1_000);
    }
}
