//! A part of a point's work, for runs that cost less: fewer samples of the same lengths in the same buckets.

use crate::lengths::unit;
use crate::run::edges;
use crate::spec::{Buckets, Lengths};
use crate::sweep::Point;
use shared::draw::{Seed, Stream};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Ties between equal lengths go by draws of a seed of their own, so that data in any order is thinned out evenly.
const THINNING: u64 = 0x7061_7274;

/// Shorter workloads, kept so that points that share samples still do.
#[derive(Default)]
pub(super) struct Parts(BTreeMap<(usize, u64), Arc<Vec<u32>>>);

impl Parts {
    /// The point with this share of its work; the whole of it where faults name times of the whole run.
    pub(super) fn of(&mut self, point: &Point, share: f64) -> Point {
        let mut part = point.clone();
        if share >= 1.0 || !point.resolved.faults.is_empty() {
            return part;
        }
        let workload = &mut part.resolved.workload;
        let epochs = share * f64::from(workload.epochs);
        let within = epochs.min(1.0);
        workload.epochs = (epochs.ceil() as u16).max(1);
        if let Lengths::Microbatches { count, .. } = &mut workload.lengths {
            *count = ((f64::from(*count) * within).ceil() as u32).max(1);
            return part;
        }
        // Edges belong to the whole data, whatever part of it is looked at.
        if let Ok(edges) = edges(&workload.buckets, &point.lengths) {
            workload.buckets = Buckets::Edges(edges.as_slice().to_vec());
        }
        let seed = point.resolved.seed;
        part.lengths = self.lengths(&point.lengths, within, seed);
        workload.samples = part.lengths.len() as u32;
        part
    }

    fn lengths(&mut self, whole: &Arc<Vec<u32>>, share: f64, seed: Seed) -> Arc<Vec<u32>> {
        let key = (Arc::as_ptr(whole) as usize, share.to_bits() ^ seed.0);
        let thinned = || Arc::new(thinned(whole, share, seed.derive(THINNING)));
        Arc::clone(self.0.entry(key).or_insert_with(thinned))
    }
}

/// A share of these lengths in their order, taken at even steps from the shortest to the longest: it has their distribution, tail included,
/// which a plain draw would miss where few samples hold most of the tokens.
fn thinned(whole: &[u32], share: f64, seed: Seed) -> Vec<u32> {
    let mut by_length: Vec<usize> = (0..whole.len()).collect();
    by_length.sort_by_key(|&i| (whole[i], seed.draw(Stream::Length, i as u64)));
    let start = unit(seed.draw(Stream::Length, whole.len() as u64));
    let passed = |place: usize| (place as f64 * share + start).floor();
    let taken = by_length.iter().enumerate();
    let taken = taken.filter(|&(place, _)| passed(place + 1) > passed(place));
    let mut kept: Vec<usize> = taken.map(|(_, &i)| i).collect();
    kept.sort_unstable();
    kept.into_iter().map(|i| whole[i]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_keeps_the_distribution_and_the_order() {
        // One in a hundred is long; data in any order.
        let whole: Vec<u32> = (0..10_000)
            .map(|i| if i * 7919 % 100 == 0 { 9_000 } else { i % 50 })
            .collect();
        let part = thinned(&whole, 0.1, Seed(4));
        assert_eq!(part.len(), 1_000);
        let long = |lengths: &[u32]| lengths.iter().filter(|&&length| length == 9_000).count();
        assert_eq!(long(&part) * 10, long(&whole));
        let mean = |lengths: &[u32]| {
            let sum: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
            sum as f64 / lengths.len() as f64
        };
        assert!((mean(&part) / mean(&whole) - 1.0).abs() < 1e-3);
        let mut left = whole.iter();
        assert!(part.iter().all(|length| left.any(|other| other == length)));
        assert_ne!(part, thinned(&whole, 0.1, Seed(5)));
    }
}
