//! The fully sequential procedure KN of Kim and Nelson (ACM TOMACS 11(3), 2001): the best of several means, by elimination.
//!
//! With probability at least the confidence, the mean that is left is the highest, if it exceeds the others by the indifference zone or more,
//! and within the zone of the highest otherwise. Common random numbers are allowed: only variances of differences count.

use crate::stats::Paired;

/// What is asked of a selection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Demand {
    /// Differences below this do not matter.
    pub(super) zone: f64,
    /// Probability of a good selection.
    pub(super) confidence: f64,
    /// Contenders there were before any was eliminated, with what else may share the error.
    pub(super) contenders: usize,
    /// Replications of one contender beyond which the selection gives up.
    pub(super) replications_max: usize,
}

/// What a selection gave.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Selected {
    /// Contenders that were not eliminated.
    pub(super) left: Vec<usize>,
    /// Whether the guarantee holds: false when it was stopped or gave up.
    pub(super) is_complete: bool,
}

/// Selects the contender with the highest mean. `samples` holds the first replications of each, as many for each and at least two; `more`
/// gives the next replication of those named, in that order, or `None` to stop.
pub(super) fn select(
    samples: &mut [Vec<f64>],
    demand: Demand,
    more: &mut dyn FnMut(&[usize]) -> Option<Vec<f64>>,
) -> Selected {
    let mut left: Vec<usize> = (0..samples.len()).collect();
    let first = samples.first().map_or(0, Vec::len);
    let spread = squared_spread(demand.contenders, first, demand.confidence);
    // First-stage variances decide, whatever comes later; pairs are formed with the leader alone, which eliminates less, never wrongly.
    let initial: Vec<Vec<f64>> = samples.to_vec();
    loop {
        let taken = left.first().map_or(0, |&i| samples[i].len());
        let leader = leader(&left, samples);
        let rest = |i: usize| spread * variance(&initial[leader], &initial[i]) / demand.zone;
        left.retain(|&i| {
            let behind = sum(&samples[leader]) - sum(&samples[i]);
            let allowed = (rest(i) - taken as f64 * demand.zone).max(0.0) / 2.0;
            i == leader || behind <= allowed
        });
        let needed = left.iter().map(|&i| rest(i) / demand.zone);
        let is_complete = left.len() <= 1 || taken as f64 > needed.fold(0.0, f64::max);
        if is_complete || taken >= demand.replications_max {
            return Selected { left, is_complete };
        }
        match more(&left) {
            Some(values) => {
                for (&i, value) in left.iter().zip(values) {
                    samples[i].push(value);
                }
            }
            None => return Selected { left, is_complete },
        }
    }
}

/// The constant h² for `contenders` with so many first replications, for c = 1.
fn squared_spread(contenders: usize, first: usize, confidence: f64) -> f64 {
    let rivals = contenders.saturating_sub(1).max(1) as f64;
    let freedom = first.saturating_sub(1).max(1) as f64;
    let eta = ((2.0 * (1.0 - confidence) / rivals).powf(-2.0 / freedom) - 1.0) / 2.0;
    // With few rivals and low confidence the formula falls to nothing; a spread of 0 would eliminate on noise.
    2.0 * eta.max(0.0) * freedom
}

fn variance(first: &[f64], second: &[f64]) -> f64 {
    Paired::of(first, second).map_or(0.0, |p| p.error * p.error * p.count as f64)
}

fn sum(values: &[f64]) -> f64 {
    values.iter().sum()
}

fn leader(left: &[usize], samples: &[Vec<f64>]) -> usize {
    let highest = left.iter().copied().max_by(|&a, &b| {
        // The first among equals.
        sum(&samples[a])
            .total_cmp(&sum(&samples[b]))
            .then(b.cmp(&a))
    });
    highest.expect("somebody is left")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Words;
    use rand_distr::{Distribution as _, StandardNormal};
    use shared::draw::{Seed, Stream};

    fn normal(trial: u64, number: u64) -> f64 {
        let word = Seed(trial).draw(Stream::Decision, number);
        StandardNormal.sample(&mut Words(word))
    }

    const DEMAND: Demand = Demand {
        zone: 1.0,
        confidence: 0.95,
        contenders: 5,
        replications_max: 10_000,
    };

    /// Replication `n` of a contender: its mean, noise of its own, and noise that all share.
    fn value(trial: u64, contender: usize, mean: f64, n: usize) -> f64 {
        let own = normal(trial, (n * 100 + contender) as u64);
        mean + 2.0 * own + 5.0 * normal(trial, (n * 100 + 99) as u64)
    }

    fn race(trial: u64, means: &[f64]) -> (Selected, Vec<Vec<f64>>) {
        let of = |i: usize, n: usize| value(trial, i, means[i], n);
        let mut samples: Vec<Vec<f64>> = (0..means.len())
            .map(|i| (0..8).map(|n| of(i, n)).collect())
            .collect();
        let mut n = 8;
        let selected = select(&mut samples, DEMAND, &mut |left| {
            n += 1;
            Some(left.iter().map(|&i| of(i, n - 1)).collect())
        });
        (selected, samples)
    }

    #[test]
    fn the_best_by_the_zone_is_found_as_often_as_promised() {
        let trials = 400;
        let mut right = 0;
        for trial in 0..trials {
            // The least favourable case: all others are equal, one zone below.
            let (selected, samples) = race(trial, &[0.0, 0.0, 1.0, 0.0, 0.0]);
            assert!(selected.is_complete);
            right += u32::from(leader(&selected.left, &samples) == 2);
        }
        let share = f64::from(right) / trials as f64;
        assert!(share >= 0.95, "{share}");
    }

    #[test]
    fn clear_losers_cost_little() {
        let (selected, samples) = race(1, &[0.0, 40.0, -10.0]);
        assert_eq!((selected.left, selected.is_complete), (vec![1], true));
        assert!(samples.iter().all(|s| s.len() == 8), "no replication more");
    }

    #[test]
    fn noise_that_never_ends_is_given_up() {
        let mut samples = vec![vec![0.0, 9.0], vec![5.0, 3.0]];
        let demand = Demand {
            replications_max: 4,
            ..DEMAND
        };
        let selected = select(&mut samples, demand, &mut |left| {
            Some(vec![4.0; left.len()])
        });
        assert!(!selected.is_complete && selected.left.len() == 2);
        assert_eq!(samples[0].len(), 4);
        let stopped = select(&mut samples, DEMAND, &mut |_| None);
        assert!(!stopped.is_complete);
    }

    #[test]
    fn the_constant_is_that_of_the_paper() {
        // k = 2, n0 = 10, alpha = 0.05: eta = (0.1^(-2/9) - 1) / 2 = 0.33405, h^2 = 18 eta.
        assert!((squared_spread(2, 10, 0.95) - 18.0 * 0.334_05).abs() < 1e-3);
    }
}
