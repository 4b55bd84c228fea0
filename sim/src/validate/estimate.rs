//! An interval for a mean over replications, narrowed by controls.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The confidence of every interval of the suite.
pub const CONFIDENCE: f64 = 0.99;

/// A mean and half the width of its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) mean: f64,
    pub(super) half_width: f64,
}

/// The mean of `values` and its interval, by regression on `controls`.
///
/// A control is a list as long as `values` of something whose expectation is known exactly, written as what it was off: of a replication's own
/// draws, never of its results. What the values owe to the draws being off is taken out, so the interval is that of the rest. The
/// estimate and its variance are those of Lavenberg and Welch (Management Science 27, 1981). Controls that never vary are left out.
///
/// # Panics
/// When there are too few values for that many controls.
pub(super) fn interval(values: &[f64], controls: &[Vec<f64>]) -> Interval {
    let n = values.len() as f64;
    let mut y = Centred::of(values);
    let mut used: Vec<Centred> = Vec::new();
    let mut leverage = 1.0 / n;
    for control in controls {
        let mut c = Centred::of(control);
        let before = c.square();
        used.iter().for_each(|other| c.clear_of(other));
        // What is left of a control that others already say is rounding.
        if c.square() <= before * 1e-9 {
            continue;
        }
        y.clear_of(&c);
        leverage += c.mean * c.mean / c.square();
        used.push(c);
    }
    let free = n - 1.0 - used.len() as f64;
    let student = StudentsT::new(0.0, 1.0, free).expect("more values than controls");
    let quantile = student.inverse_cdf(0.5 + CONFIDENCE / 2.0);
    Interval {
        mean: y.mean,
        half_width: quantile * (y.square() / free * leverage).sqrt(),
    }
}

/// A list as its mean and what each value differs from it.
struct Centred {
    mean: f64,
    rest: Vec<f64>,
}

impl Centred {
    fn of(values: &[f64]) -> Self {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Self {
            mean,
            rest: values.iter().map(|value| value - mean).collect(),
        }
    }

    fn square(&self) -> f64 {
        self.rest.iter().map(|x| x * x).sum()
    }

    /// Takes out what this list owes to `other`, whose expectation is 0.
    fn clear_of(&mut self, other: &Self) {
        let product: f64 = self.rest.iter().zip(&other.rest).map(|(a, b)| a * b).sum();
        let slope = product / other.square();
        self.mean -= slope * other.mean;
        for (value, control) in self.rest.iter_mut().zip(&other.rest) {
            *value -= slope * control;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_controls_the_interval_is_students() {
        let plain = interval(&[1.0, 2.0, 3.0, 4.0], &[]);
        assert_eq!(plain.mean, 2.5);
        // t(0.995; 3) = 5.840909; s/sqrt(4) = 0.645497
        assert!((plain.half_width - 5.840_909 * 0.645_497).abs() < 1e-4);
    }

    #[test]
    fn what_a_control_explains_is_taken_out() {
        // y = 10 + 3 c exactly, and the draws were off by 0.5 on average.
        let control = vec![-0.5, 0.0, 1.0, 1.5];
        let values: Vec<f64> = control.iter().map(|c| 10.0 + 3.0 * c).collect();
        let found = interval(&values, std::slice::from_ref(&control));
        assert!((found.mean - 10.0).abs() < 1e-12 && found.half_width < 1e-6);
        // A control that says the same again, and one that never varies, change nothing.
        let twice = control.iter().map(|c| 2.0 * c).collect();
        let again = interval(&values, &[control, twice, vec![0.0; 4]]);
        assert!((again.mean - 10.0).abs() < 1e-12);
    }

    #[test]
    fn the_interval_holds_the_truth_as_often_as_it_says() {
        use crate::service::Words;
        use rand_distr::{Distribution, StandardNormal};
        let mut words = Words(11);
        let mut normal = || -> f64 { StandardNormal.sample(&mut words) };
        let mut held = 0;
        for _ in 0..2_000 {
            let controls: Vec<f64> = (0..12).map(|_| normal()).collect();
            let values: Vec<f64> = controls.iter().map(|c| 5.0 + c + 0.3 * normal()).collect();
            let found = interval(&values, &[controls]);
            held += u32::from((found.mean - 5.0).abs() <= found.half_width);
        }
        assert!((1_965..=1_995).contains(&held), "{held} of 2000");
    }
}
