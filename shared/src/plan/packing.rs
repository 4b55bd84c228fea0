//! A step's microbatches over the drafters, so that the last drafter is done as early as can be.
//!
//! Longest processing time first (Graham, 1969: within 4/3 of the best), then changes that relieve the most loaded drafter until
//! none does. With a mixing rule for each drafter's share, the microbatches that the rule needs are dealt first.

use super::Plan;
use crate::id::BucketId;
use crate::time::Span;
use std::cmp::Reverse;

/// The least time each planned step can take `drafters` drafters: the mean over drafters, rounded up, or the longest microbatch.
/// (ns)
///
/// `costs` holds the drafter time of each microbatch, by row. Empty when the plan composes no steps.
///
/// # Panics
/// When `costs` has not one entry a microbatch, or there are no drafters.
pub fn packing_bound(plan: &Plan, costs: &[Span], drafters: u16) -> Vec<Span> {
    assert_eq!(
        costs.len(),
        plan.microbatches.len(),
        "each microbatch has a cost"
    );
    assert!(drafters > 0, "there is a drafter");
    plan.steps
        .iter()
        .map(|step| {
            let range = step.microbatches.start as usize..step.microbatches.end as usize;
            Span::from_ns(least(
                costs[range].iter().map(|cost| cost.as_ns()),
                drafters,
            ))
        })
        .collect()
}

fn least(costs: impl Iterator<Item = u64>, drafters: u16) -> u64 {
    let (sum, longest) = costs.fold((0_u128, 0), |(sum, longest), cost| {
        (sum + u128::from(cost), longest.max(cost))
    });
    // The mean exceeds a u64 only when the sum of a step does, which is 584 years of work.
    let mean = u64::try_from(sum.div_ceil(u128::from(drafters))).unwrap_or(u64::MAX);
    mean.max(longest)
}

/// A microbatch as packing sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// Estimated drafter time. (ns)
    pub(super) cost: u64,
    /// Its bucket.
    pub(super) bucket: BucketId,
}

/// Each drafter's share of `jobs`, as places in `jobs`, with its total cost.
///
/// Every drafter gets a job when there are that many. Each share holds at least `window_min` distinct buckets if the jobs can be
/// dealt that way at all.
pub(super) fn pack(jobs: &[Job], drafters: u16, buckets: usize, window_min: u8) -> Vec<Share> {
    let mut longest_first: Vec<usize> = (0..jobs.len()).collect();
    longest_first.sort_by_key(|&job| Reverse(jobs[job].cost));
    let least = u128::from(least(jobs.iter().map(|job| job.cost), drafters));

    let mut packing = Packing::new(jobs, drafters, buckets);
    longest_first
        .iter()
        .for_each(|&job| packing.add(packing.least_loaded(), job));
    packing.improve(0, least);
    let window = u32::from(window_min);
    if packing.shares.iter().all(|share| share.distinct >= window) || !packing.can_mix(window) {
        return packing.shares;
    }
    let mut packing = Packing::new(jobs, drafters, buckets);
    let rest = packing.deal_windows(window, longest_first);
    rest.into_iter()
        .for_each(|job| packing.add(packing.least_loaded(), job));
    packing.improve(window, least);
    packing.shares
}

/// What one drafter gets.
#[derive(Clone, Debug)]
pub(super) struct Share {
    /// Places in the list of jobs.
    pub(super) jobs: Vec<usize>,
    /// Their total cost. (ns)
    pub(super) load: u128,
    /// Jobs of each bucket.
    pub(super) counts: Vec<u32>,
    /// Buckets with a job.
    pub(super) distinct: u32,
}

/// Shares in the making.
pub(super) struct Packing<'a> {
    pub(super) jobs: &'a [Job],
    pub(super) shares: Vec<Share>,
}

impl<'a> Packing<'a> {
    fn new(jobs: &'a [Job], drafters: u16, buckets: usize) -> Self {
        let empty = Share {
            jobs: Vec::new(),
            load: 0,
            counts: vec![0; buckets],
            distinct: 0,
        };
        Self {
            jobs,
            shares: vec![empty; usize::from(drafters)],
        }
    }

    fn least_loaded(&self) -> usize {
        let key = |&d: &usize| (self.shares[d].load, self.shares[d].jobs.len());
        (0..self.shares.len())
            .min_by_key(key)
            .expect("there is a drafter")
    }

    pub(super) fn add(&mut self, drafter: usize, job: usize) {
        let Job { cost, bucket } = self.jobs[job];
        let share = &mut self.shares[drafter];
        share.jobs.push(job);
        share.load += u128::from(cost);
        share.counts[bucket.index()] += 1;
        share.distinct += u32::from(share.counts[bucket.index()] == 1);
    }

    pub(super) fn remove(&mut self, drafter: usize, place: usize) -> usize {
        let share = &mut self.shares[drafter];
        let job = share.jobs.swap_remove(place);
        let Job { cost, bucket } = self.jobs[job];
        share.load -= u128::from(cost);
        share.counts[bucket.index()] -= 1;
        share.distinct -= u32::from(share.counts[bucket.index()] == 0);
        job
    }

    /// Whether each drafter can get `window` distinct buckets: a bucket serves at most one place in each share.
    fn can_mix(&self, window: u32) -> bool {
        let drafters = self.shares.len() as u64;
        let buckets = self.shares[0].counts.len();
        let of = |b: usize| {
            self.shares
                .iter()
                .map(|s| u64::from(s.counts[b]))
                .sum::<u64>()
        };
        (0..buckets).map(|b| of(b).min(drafters)).sum::<u64>() >= drafters * u64::from(window)
    }

    /// Gives each drafter `window` jobs of distinct buckets and returns the other jobs in their order.
    ///
    /// Bucket by bucket, a job goes to each of the drafters that lack most; so none lacks over one more than another, and the
    /// deal fails only if no deal exists.
    fn deal_windows(&mut self, window: u32, jobs: Vec<usize>) -> Vec<usize> {
        let buckets = self.shares[0].counts.len();
        let mut dealt = vec![false; jobs.len()];
        for bucket in 0..buckets {
            let of_bucket: Vec<usize> = jobs
                .iter()
                .copied()
                .filter(|&job| self.jobs[job].bucket.index() == bucket)
                .collect();
            let mut drafters: Vec<usize> = (0..self.shares.len()).collect();
            drafters.sort_by_key(|&d| (self.shares[d].distinct, self.shares[d].load));
            drafters.retain(|&d| self.shares[d].distinct < window);
            for (drafter, job) in drafters.into_iter().zip(of_bucket) {
                self.add(drafter, job);
                dealt[job] = true;
            }
        }
        jobs.into_iter().filter(|&job| !dealt[job]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Seed, Stream};

    fn jobs(seed: u64, count: u64, buckets: u64) -> Vec<Job> {
        (0..count)
            .map(|i| {
                let bucket = Seed(seed).below(Stream::Length, 2 * i, buckets);
                let cost = 100 + 60 * bucket + Seed(seed).below(Stream::Length, 2 * i + 1, 40);
                Job {
                    cost,
                    bucket: BucketId(bucket as u8),
                }
            })
            .collect()
    }

    fn peak(shares: &[Share]) -> u128 {
        shares.iter().map(|share| share.load).max().unwrap()
    }

    /// The least peak over all ways to deal `jobs`.
    fn brute_force(jobs: &[Job], loads: &mut [u128]) -> u128 {
        let Some((job, rest)) = jobs.split_first() else {
            return *loads.iter().max().unwrap();
        };
        let mut best = u128::MAX;
        for drafter in 0..loads.len() {
            loads[drafter] += u128::from(job.cost);
            best = best.min(brute_force(rest, loads));
            loads[drafter] -= u128::from(job.cost);
            if loads[drafter] == 0 {
                break;
            }
        }
        best
    }

    #[test]
    fn packing_is_within_four_thirds_of_the_best_and_mostly_the_best() {
        let (mut cases, mut best_found) = (0, 0);
        for seed in 0..120 {
            for (count, drafters) in [(4, 2), (6, 2), (8, 2), (6, 3), (8, 3), (9, 4)] {
                let jobs = jobs(seed, count, 6);
                let least = brute_force(&jobs, &mut vec![0; drafters]);
                let packed = peak(&pack(&jobs, drafters as u16, 6, 0));
                assert!(
                    packed >= least && 3 * packed <= 4 * least,
                    "{packed} against {least}"
                );
                cases += 1;
                best_found += u32::from(packed == least);
            }
        }
        assert!(best_found * 100 >= cases * 90, "{best_found} of {cases}");
    }

    #[test]
    fn every_job_is_dealt_and_every_drafter_gets_one() {
        for seed in 0..200 {
            let count = Seed(seed).below(Stream::Fault, 0, 14);
            let mut jobs = jobs(seed, count, 4);
            if seed % 5 == 0 {
                jobs.iter_mut().for_each(|job| job.cost = 0);
            }
            let shares = pack(&jobs, 4, 4, (seed % 3) as u8);
            let mut dealt: Vec<usize> = shares.iter().flat_map(|s| s.jobs.clone()).collect();
            dealt.sort_unstable();
            assert!(dealt.into_iter().eq(0..jobs.len()));
            assert!(jobs.len() < 4 || shares.iter().all(|share| !share.jobs.is_empty()));
        }
    }

    #[test]
    fn shares_mix_whenever_some_deal_mixes_them() {
        let mut mixed = 0;
        for seed in 0..300 {
            let jobs = jobs(seed, 12, 4);
            let mut counts = [0_u32; 4];
            jobs.iter().for_each(|job| counts[job.bucket.index()] += 1);
            for window in 1..=3 {
                let shares = pack(&jobs, 3, 4, window);
                let possible =
                    counts.iter().map(|&n| n.min(3)).sum::<u32>() >= 3 * u32::from(window);
                let met = shares
                    .iter()
                    .all(|share| share.distinct >= u32::from(window));
                assert_eq!(met, possible, "window {window} of {counts:?}");
                mixed += u32::from(met);
            }
        }
        assert!(mixed > 600, "{mixed}");
    }

    #[test]
    fn the_bound_is_the_mean_or_the_longest() {
        assert_eq!(least([3, 3, 4].into_iter(), 3), 4);
        assert_eq!(least([3, 3, 5, 5].into_iter(), 3), 6);
        assert_eq!(least([9, 1].into_iter(), 3), 9);
        assert_eq!(least(std::iter::empty(), 3), 0);
    }
}
