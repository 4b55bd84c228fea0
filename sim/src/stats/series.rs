//! What one run tells about its own spread: optimizer steps in batches.

use super::moments;
use shared::metrics::Applied;

/// Optimizer steps in a batch, the 5 of MSER-5; of a run so long that its steps were thinned out, five of those that were kept.
pub const BATCH_STEPS: usize = 5;

/// Time a trained token took, by batches of `steps` optimizer steps from the one at `first` on; what fills no batch at the end is left out. (ns)
pub fn batch_means(applied: &[Applied], first: usize, steps: usize) -> Vec<f64> {
    let before = |i: usize| match i {
        0 => (0, 0),
        i => (applied[i - 1].at.as_ns(), applied[i - 1].tokens.0),
    };
    let batches = applied.len().saturating_sub(first) / steps.max(1);
    let mean = |batch: usize| {
        let from = first + batch * steps;
        let ((from_ns, from_tokens), to) = (before(from), applied[from + steps - 1]);
        let tokens = to.tokens.0 - from_tokens;
        (to.at.as_ns() - from_ns) as f64 / (tokens.max(1) as f64)
    };
    (0..batches).map(mean).collect()
}

/// Batches by which the spread of a single run is judged.
const BATCHES: usize = 10;

/// Standard error of a run's throughput over its throughput, from the means of ten batches after the warm-up; `None` for a run of fewer
/// steps, or whose neighbouring batches are so alike that the batches are too short to be taken as independent.
pub fn relative_error(applied: &[Applied], first: usize) -> Option<f64> {
    let steps = applied.len().saturating_sub(first) / BATCHES;
    if steps < 2 {
        return None;
    }
    let means = batch_means(applied, first, steps);
    let (mean, variance) = moments(&means);
    if mean <= 0.0 || lag1(&means, mean) > LAG1_MAX {
        return None;
    }
    Some((variance / means.len() as f64).sqrt() / mean)
}

/// Correlation of neighbouring batches from which on they are not taken as independent: its 5 % point for ten independent ones.
const LAG1_MAX: f64 = 0.45;

fn lag1(values: &[f64], mean: f64) -> f64 {
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let products = values
        .windows(2)
        .map(|w| (w[0] - mean) * (w[1] - mean))
        .sum::<f64>();
    if squares > 0.0 {
        products / squares
    } else {
        0.0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use shared::id::Tokens;
    use shared::time::Time;

    /// Steps of one token that took so long each. (ns)
    pub(in crate::stats) fn steps(spans: &[u64]) -> Vec<Applied> {
        let mut at = 0;
        let step = |(i, span): (usize, &u64)| {
            at += span;
            Applied {
                at: Time::from_ns(at),
                tokens: Tokens(i as u64 + 1),
                samples: i as u64 + 1,
                steps: i as u32 + 1,
                has_input: true,
            }
        };
        spans.iter().enumerate().map(step).collect()
    }

    #[test]
    fn batches_are_means_of_consecutive_steps() {
        let applied = steps(&[10, 20, 30, 40, 50, 60, 70]);
        assert_eq!(batch_means(&applied, 0, 2), [15.0, 35.0, 55.0]);
        assert_eq!(batch_means(&applied, 1, 3), [30.0, 60.0]);
        assert_eq!(batch_means(&applied, 7, 3), [0.0; 0]);
    }

    #[test]
    fn a_run_knows_its_error_from_its_batches() {
        // Batches of two steps: means 90, 110, 90, …: mean 100, variance 1000/9, error sqrt(1000/90) = 3.3333.
        let spans: Vec<u64> = (0..20)
            .map(|i| if i / 2 % 2 == 0 { 90 } else { 110 })
            .collect();
        let error = relative_error(&steps(&spans), 0).unwrap();
        assert!((error - 0.033_333).abs() < 1e-5, "{error}");
        assert_eq!(relative_error(&steps(&spans), 5), None, "too short");
        let drift: Vec<u64> = (0..20).map(|i| 100 + 10 * (i / 2)).collect();
        assert_eq!(relative_error(&steps(&drift), 0), None, "batches depend");
    }
}
