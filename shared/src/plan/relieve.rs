//! Changes between two drafters' shares that relieve the more loaded one.
//!
//! A move or a swap first. When none helps and the two hold few jobs, all ways to split these are tried, which a row of moves and
//! swaps, each an improvement, need not find.

use super::packing::{Packing, Share};
use std::cmp::Reverse;

impl Packing<'_> {
    /// Relieves the most loaded drafter until that fails or the bound `least` is reached. Shares keep a job and `window` distinct
    /// buckets.
    pub(super) fn improve(&mut self, window: u32, least: u128) {
        for _ in 0..2 * self.jobs.len() {
            let load = |&drafter: &usize| (self.shares[drafter].load, Reverse(drafter));
            let most = (0..self.shares.len())
                .max_by_key(load)
                .expect("there is a drafter");
            if self.shares[most].load <= least {
                break;
            }
            if let Some(change) = self.best_change(most, window) {
                self.change(most, change);
            } else if let Some(split) = self.best_split(most, window) {
                self.split(most, split);
            } else {
                break;
            }
        }
    }

    /// The move or swap that lowers the peak of the two drafters most, or none when no one lowers it.
    fn best_change(&self, most: usize, window: u32) -> Option<Change> {
        let mine = &self.shares[most];
        let mut best = None;
        let mut peak_best = mine.load;
        for (other, theirs) in self.shares.iter().enumerate().filter(|&(d, _)| d != most) {
            for (gives, &given) in mine.jobs.iter().enumerate() {
                let swaps = (0..theirs.jobs.len()).map(Some);
                for takes in swaps.chain((mine.jobs.len() > 1).then_some(None)) {
                    let taken = takes.map(|place| theirs.jobs[place]);
                    let (goes, comes) = (self.cost(given), taken.map_or(0, |job| self.cost(job)));
                    let peak = (mine.load - goes + comes).max(theirs.load - comes + goes);
                    if peak < peak_best && self.change_mixes(window, (mine, theirs), given, taken) {
                        peak_best = peak;
                        best = Some(Change {
                            other,
                            gives,
                            takes,
                        });
                    }
                }
            }
        }
        best
    }

    fn change(
        &mut self,
        most: usize,
        Change {
            other,
            gives,
            takes,
        }: Change,
    ) {
        let given = self.remove(most, gives);
        if let Some(place) = takes {
            let taken = self.remove(other, place);
            self.add(most, taken);
        }
        self.add(other, given);
    }

    /// The split of two drafters' jobs that lowers their peak most, or none when no one lowers it.
    fn best_split(&self, most: usize, window: u32) -> Option<Split> {
        let mut best = None;
        let mut peak_best = self.shares[most].load;
        for other in (0..self.shares.len()).filter(|&drafter| drafter != most) {
            let jobs = [&self.shares[most].jobs[..], &self.shares[other].jobs].concat();
            if jobs.len() > SPLIT_MAX {
                continue;
            }
            let total = self.shares[most].load + self.shares[other].load;
            // The last job stays on one side: the two sides are alike. Neither is empty.
            let mut loads = vec![0; 1 << (jobs.len() - 1)];
            for side in 1..loads.len() {
                let first = jobs[side.trailing_zeros() as usize];
                loads[side] = loads[side & (side - 1)] + self.cost(first);
                let peak = loads[side].max(total - loads[side]);
                if peak < peak_best && self.split_mixes(window, &jobs, side) {
                    peak_best = peak;
                    best = Some(Split {
                        other,
                        jobs: jobs.clone(),
                        side,
                    });
                }
            }
        }
        best
    }

    fn split(&mut self, most: usize, Split { other, jobs, side }: Split) {
        for drafter in [most, other] {
            while !self.shares[drafter].jobs.is_empty() {
                self.remove(drafter, 0);
            }
        }
        for (place, job) in jobs.into_iter().enumerate() {
            self.add(if side >> place & 1 == 1 { most } else { other }, job);
        }
    }

    fn cost(&self, job: usize) -> u128 {
        u128::from(self.jobs[job].cost)
    }

    /// Whether both shares hold `window` distinct buckets after a change.
    fn change_mixes(
        &self,
        window: u32,
        (mine, theirs): (&Share, &Share),
        given: usize,
        taken: Option<usize>,
    ) -> bool {
        let bucket = |job: usize| self.jobs[job].bucket.index();
        let distinct = |share: &Share, out: Option<usize>, into: Option<usize>| {
            if out.map(bucket) == into.map(bucket) {
                return share.distinct;
            }
            let lost = out.is_some_and(|job| share.counts[bucket(job)] == 1);
            let gained = into.is_some_and(|job| share.counts[bucket(job)] == 0);
            share.distinct + u32::from(gained) - u32::from(lost)
        };
        window == 0
            || (distinct(mine, Some(given), taken) >= window
                && distinct(theirs, taken, Some(given)) >= window)
    }

    /// Whether both sides of a split hold `window` distinct buckets.
    fn split_mixes(&self, window: u32, jobs: &[usize], side: usize) -> bool {
        let mixes = |bit: usize| {
            let on_side = (0..jobs.len()).filter(|&place| side >> place & 1 == bit);
            let mut buckets: Vec<_> = on_side.map(|place| self.jobs[jobs[place]].bucket).collect();
            buckets.sort_unstable();
            buckets.dedup();
            buckets.len() >= window as usize
        };
        window == 0 || (mixes(0) && mixes(1))
    }
}

/// The most loaded drafter's job at place `gives` goes to `other`, whose job at place `takes` comes back.
#[derive(Clone, Copy)]
struct Change {
    other: usize,
    gives: usize,
    takes: Option<usize>,
}

/// The jobs of the most loaded drafter and `other`; the former keeps those whose bit is set in `side`.
struct Split {
    other: usize,
    jobs: Vec<usize>,
    side: usize,
}

/// Most jobs that are split in all ways: two drafters' shares at a grad_accum of 5.
const SPLIT_MAX: usize = 10;
