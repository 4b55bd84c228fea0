//! A part of a point's work, for runs that cost less: fewer samples of the same lengths in the same buckets.

use crate::lengths::unit;
use crate::run::edges;
use crate::spec::{Buckets, Lengths};
use crate::sweep::Point;
use shared::draw::{Seed, Stream};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Samples are chosen by draws of a seed of their own, so that data in any order is thinned out evenly.
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
        let thinned = || {
            let seed = seed.derive(THINNING);
            let kept = (0_u64..).zip(whole.iter());
            let kept = kept.filter(|(i, _)| unit(seed.draw(Stream::Length, *i)) < share);
            Arc::new(kept.map(|(_, &length)| length).collect())
        };
        Arc::clone(self.0.entry(key).or_insert_with(thinned))
    }
}
