//! Where a run's warm-up ends: MSER-5.
//!
//! Method: White, Simulation 69 (1997), and White, Cobb and Spratt (WSC 2000), for its form with batches of five: the truncation that makes
//! the standard error of the rest least. Hoad, Robinson and Davies (WSC 2008) judged it fit for automation and take a minimum in the second
//! half of the data as a sign that the run is too short, which is the guard here.

use super::series::{BATCH_STEPS, batch_means};
use shared::metrics::{Applied, before_draining};

/// The end of a run's warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmUp {
    /// Optimizer steps left out.
    pub cut: usize,
    /// Optimizer steps that were looked at: up to the last one that was applied while targets still had input.
    pub steps: usize,
    /// Whether the rest is steady.
    pub settled: Settled,
}

/// Whether a run has a steady part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Settled {
    /// It has.
    Yes,
    /// It has not: by MSER-5 the warm-up takes more than half of the run.
    No,
    /// The run is too short to tell.
    #[default]
    Unknown,
}

/// Batches from which on MSER-5 is asked at all.
const BATCHES_MIN: usize = 10;

/// Batches from which on a minimum in the second half means something: with fewer, chance puts it there too often.
const BATCHES_JUDGED: usize = 40;

/// Batches that a candidate for the cut must leave: a quarter, for the error of a few is small by chance.
const LEFT_SHARE: usize = 4;

/// The warm-up of a run, or `None` when it has too few steps for a cut by MSER-5.
pub fn warm_up(applied: &[Applied]) -> Option<WarmUp> {
    let applied = before_draining(applied);
    let batches = batch_means(applied, 0, BATCH_STEPS);
    if batches.len() < BATCHES_MIN {
        return None;
    }
    let half = batches.len() / 2;
    let cut = mser(&batches, batches.len() - batches.len() / LEFT_SHARE);
    let settled = match (batches.len() < BATCHES_JUDGED, cut > half) {
        (true, _) => Settled::Unknown,
        (false, true) => Settled::No,
        (false, false) => Settled::Yes,
    };
    let left_out = applied[..cut.min(half) * BATCH_STEPS].last();
    let steps_at = |step: Option<&Applied>| step.map_or(0, |step| step.steps as usize);
    Some(WarmUp {
        cut: steps_at(left_out),
        steps: steps_at(applied.last()),
        settled,
    })
}

/// How many of the first `values` to leave out, at most `most`, so that the sum of squares of the rest over the square of their number is
/// least; the fewest among equals.
pub fn mser(values: &[f64], most: usize) -> usize {
    let mut best = (f64::INFINITY, 0);
    let (mut mean, mut squares) = (0.0, 0.0);
    // Welford's updates from the back, so that each candidate costs one step.
    for (left, (cut, value)) in (1_u32..).zip(values.iter().enumerate().rev()) {
        let n = f64::from(left);
        let delta = value - mean;
        mean += delta / n;
        squares += delta * (value - mean);
        let statistic = squares / (n * n);
        if cut <= most && statistic <= best.0 {
            best = (statistic, cut);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::super::series::tests::steps;
    use super::*;

    /// A level of 100 with a decaying start and a small, irregular ripple.
    fn decaying(count: u32, height: f64, decay: f64) -> Vec<f64> {
        let ripple = |i: u32| f64::from((i * 7919 + 13) % 17) / 17.0 - 0.5;
        (0..count)
            .map(|i| 100.0 + height * (-f64::from(i) / decay).exp() + ripple(i))
            .collect()
    }

    #[test]
    fn the_cut_is_that_of_the_definition() {
        // By the definition, evaluated with numpy: argmin over d of sum((y[d:] - mean)^2) / (n - d)^2.
        assert_eq!(mser(&decaying(200, 50.0, 8.0), 150), 41);
        assert_eq!(mser(&decaying(200, 50.0, 30.0), 150), 137);
        assert_eq!(mser(&decaying(200, 0.0, 1.0), 150), 0);
        assert_eq!(mser(&[5.0; 8], 4), 0, "nothing to leave out");
        assert_eq!(mser(&[9.0, 1.0, 1.0, 1.0], 2), 1);
        assert_eq!(mser(&[], 0), 0);
    }

    #[test]
    fn a_short_start_is_cut_and_a_drift_to_the_end_is_refused() {
        let settled = |spans: &[u64]| warm_up(&steps(spans)).unwrap();
        let ripple = |i: u64| i * 7919 % 17;
        let short: Vec<u64> = (0..400)
            .map(|i| 1_000 + ripple(i) + if i < 20 { 900 } else { 0 })
            .collect();
        let cut = settled(&short);
        assert_eq!((cut.cut, cut.steps, cut.settled), (20, 400, Settled::Yes));
        let drift: Vec<u64> = (0..400).map(|i| 3_000 - 5 * i + ripple(i)).collect();
        let drift = settled(&drift);
        assert_eq!((drift.cut, drift.settled), (200, Settled::No));
        assert_eq!(settled(&short[..100]).settled, Settled::Unknown);
        assert_eq!(warm_up(&steps(&short[..49])), None, "under ten batches");
    }

    #[test]
    fn steps_after_the_last_input_do_not_count() {
        let mut applied = steps(&[100; 60]);
        for step in &mut applied[52..] {
            step.has_input = false;
        }
        assert_eq!(warm_up(&applied).unwrap().steps, 52);
    }
}
