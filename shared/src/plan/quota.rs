//! How many microbatches of each bucket each step takes.
//!
//! Three passes over a table of steps by buckets, whose last row is what is left after the last full step:
//!
//! 1. *fill*: each place of a step goes to the bucket that is farthest behind its share of the pool at the step's end, so every
//!    prefix of steps holds nearly the pool's mix and all buckets end together;
//! 2. *even*: a step whose own mix is off swaps with one nearby that it does not spoil;
//! 3. *enforce*: a step that breaks a mixing rule gets what it lacks from a later step. Where nothing later has it, the rule
//!    cannot be kept, by any order that kept it before.

use super::shuffle::shuffle;
use crate::draw::{Seed, Stream};

/// At least `need` microbatches of a step must count, when no more than `cap` of one bucket do.
///
/// With `cap` 1 that is a number of distinct buckets. With `cap` = drafters and `need` = drafters x n it says that the step can be
/// dealt so that each drafter holds n distinct buckets (Gale and Ryser).
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) cap: u32,
    pub(super) need: u32,
}

impl Rule {
    /// Whether a step that takes `row` of each bucket meets the rule.
    pub(super) fn met(self, row: &[u32]) -> bool {
        self.counted(row) >= u64::from(self.need)
    }

    fn counted(self, row: &[u32]) -> u64 {
        row.iter().map(|&n| u64::from(n.min(self.cap))).sum()
    }
}

/// The table.
pub(super) struct Quota {
    /// Microbatches of each bucket in the pool.
    pool: Vec<u32>,
    /// Microbatches of a step.
    size: u32,
    /// Microbatches in the pool.
    total: i128,
    /// Full steps.
    steps: usize,
    /// Row by row: the full steps, then the rest.
    counts: Vec<u32>,
}

/// Each bucket as often as `counts` says.
fn every(counts: &[u32]) -> Vec<usize> {
    let of = |(bucket, &n): (usize, &u32)| std::iter::repeat_n(bucket, n as usize);
    counts.iter().enumerate().flat_map(of).collect()
}

impl Quota {
    /// Spreads `pool`, microbatches of each bucket, over as many full steps of `size` as it fills.
    pub(super) fn plan(pool: &[u32], size: u32, rules: &[Rule]) -> Self {
        let total: u64 = pool.iter().map(|&n| u64::from(n)).sum();
        let steps = (total / u64::from(size)) as usize;
        let mut counts = vec![0; steps * pool.len()];
        counts.extend(pool);
        let mut quota = Self {
            pool: pool.to_vec(),
            size,
            total: i128::from(total),
            steps,
            counts,
        };
        if steps > 0 {
            quota.fill();
            quota.even();
            quota.enforce(rules);
        }
        quota
    }

    /// Deals the pool in a shuffled order.
    pub(super) fn random(pool: &[u32], size: u32, seed: Seed) -> Self {
        let mut places = every(pool);
        shuffle(&mut places, seed.derive(0), Stream::Order);
        Self::dealt(pool, size, places)
    }

    /// Full steps of each bucket, in a shuffled order, then mixed ones of what is left.
    pub(super) fn one_bucket(pool: &[u32], size: u32, seed: Seed) -> Self {
        let whole: Vec<u32> = pool.iter().map(|n| n / size).collect();
        let mut steps = every(&whole);
        shuffle(&mut steps, seed.derive(0), Stream::Order);
        let mut places: Vec<usize> = steps
            .into_iter()
            .flat_map(|bucket| std::iter::repeat_n(bucket, size as usize))
            .collect();
        let left: Vec<u32> = pool.iter().map(|n| n % size).collect();
        let mut left = every(&left);
        shuffle(&mut left, seed.derive(1), Stream::Order);
        places.extend(left);
        Self::dealt(pool, size, places)
    }

    /// Steps of the buckets in `places`, in that order.
    fn dealt(pool: &[u32], size: u32, places: Vec<usize>) -> Self {
        let steps = places.len() / size as usize;
        let mut counts = vec![0; (steps + 1) * pool.len()];
        for (place, bucket) in places.into_iter().enumerate() {
            counts[place / size as usize * pool.len() + bucket] += 1;
        }
        Self {
            pool: pool.to_vec(),
            size,
            total: pool.iter().map(|&n| i128::from(n)).sum(),
            steps,
            counts,
        }
    }

    /// The number of full steps.
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// What a step takes of each bucket; row [`steps`](Self::steps) is what is left over.
    pub(super) fn row(&self, step: usize) -> &[u32] {
        &self.counts[step * self.pool.len()..][..self.pool.len()]
    }

    fn fill(&mut self) {
        let buckets = self.pool.len();
        let mut left = self.pool.clone();
        let mut behind = vec![0_i128; buckets];
        let ceilings: Vec<u32> = (0..buckets).map(|b| self.share(b).1).collect();
        for row in self.counts[..self.steps * buckets].chunks_mut(buckets) {
            for (bucket, behind) in behind.iter_mut().enumerate() {
                *behind += i128::from(self.pool[bucket]) * i128::from(self.size);
            }
            for _ in 0..self.size {
                // Above its ceiling a bucket comes last; among equals the lowest comes first.
                let urgency = |&b: &usize| (row[b] < ceilings[b], behind[b], std::cmp::Reverse(b));
                let bucket = (0..buckets).filter(|&b| left[b] > 0).max_by_key(urgency);
                let bucket = bucket.expect("full steps hold no more than the pool");
                row[bucket] += 1;
                left[bucket] -= 1;
                behind[bucket] -= self.total;
            }
        }
        self.counts[self.steps * buckets..].copy_from_slice(&left);
    }

    /// The whole numbers next to a bucket's even share of a step, below and above.
    fn share(&self, bucket: usize) -> (u32, u32) {
        let (part, total) = (
            u128::from(self.pool[bucket]) * u128::from(self.size),
            self.total as u128,
        );
        ((part / total) as u32, part.div_ceil(total) as u32)
    }

    /// How far a count is above a bucket's even share of a step, times the pool.
    fn above(&self, bucket: usize, count: u32) -> i128 {
        i128::from(count) * self.total - i128::from(self.pool[bucket]) * i128::from(self.size)
    }

    fn even(&mut self) {
        let shares: Vec<(u32, u32)> = (0..self.pool.len()).map(|b| self.share(b)).collect();
        let mut off: Vec<i128> = (0..self.steps).map(|step| self.off(step)).collect();
        for step in 0..self.steps {
            for _ in 0..self.size {
                let (most, least) = self.extremes(step);
                let row = self.row(step);
                let inside = row[most] <= shares[most].1 && row[least] >= shares[least].0;
                if inside && off[step] * EVEN_ENOUGH <= i128::from(self.size) * self.total {
                    break;
                }
                let Some((peer, after)) = self.peer(step, (most, least), &shares, &off) else {
                    break;
                };
                self.swap(step, most, peer, least);
                (off[step], off[peer]) = after;
            }
        }
    }

    /// The step nearby with which trading `most` for `least` leaves the worse of the two best, and how far off both are then.
    fn peer(
        &self,
        step: usize,
        (most, least): (usize, usize),
        shares: &[(u32, u32)],
        off: &[i128],
    ) -> Option<(usize, (i128, i128))> {
        let traded = |off: i128, row: &[u32], gives: usize, takes: usize| {
            let change =
                |bucket, from, to| self.above(bucket, to).abs() - self.above(bucket, from).abs();
            off + change(gives, row[gives], row[gives] - 1)
                + change(takes, row[takes], row[takes] + 1)
        };
        let mine = traded(off[step], self.row(step), most, least);
        let mut best: Option<(usize, (i128, i128))> = None;
        for distance in 1..=NEARBY {
            for peer in [step.checked_sub(distance), Some(step + distance)]
                .into_iter()
                .flatten()
            {
                if peer >= self.steps {
                    continue;
                }
                let row = self.row(peer);
                if row[least] <= shares[least].0 || row[most] >= shares[most].1 {
                    continue;
                }
                let theirs = traded(off[peer], row, least, most);
                let worst = mine.max(theirs);
                if worst < best.map_or(off[step], |(_, (a, b))| a.max(b)) {
                    best = Some((peer, (mine, theirs)));
                }
            }
        }
        best
    }

    /// How far a step's mix is off the pool's: twice the total variation distance, times the step, times the pool.
    fn off(&self, step: usize) -> i128 {
        self.row(step)
            .iter()
            .enumerate()
            .map(|(b, &count)| self.above(b, count).abs())
            .sum()
    }

    /// The buckets that a step has most and least of, against their shares.
    fn extremes(&self, step: usize) -> (usize, usize) {
        let row = self.row(step);
        let above = |&b: &usize| self.above(b, row[b]);
        let most = (0..row.len()).max_by_key(above).expect("there is a bucket");
        let least = (0..row.len()).min_by_key(above).expect("there is a bucket");
        (most, least)
    }

    fn enforce(&mut self, rules: &[Rule]) {
        if rules.is_empty() {
            return;
        }
        let buckets = self.pool.len();
        let holds = |quota: &Self, step: usize, bucket| quota.row(step)[bucket] > 0;
        let mut left = self.pool.clone();
        let mut last = vec![self.steps; buckets];
        for step in 0..self.steps {
            for &rule in rules {
                while !rule.met(self.row(step)) {
                    let row = self.row(step);
                    // Later steps are best spared by taking from the bucket they hold most of.
                    let lacking = |&b: &usize| row[b] < rule.cap && left[b] > row[b];
                    let Some(takes) = (0..buckets)
                        .filter(lacking)
                        .max_by_key(|&b| left[b] - row[b])
                    else {
                        break;
                    };
                    let spare = (0..buckets).filter(|&b| row[b] > rule.cap);
                    let Some(gives) = spare.max_by_key(|&b| self.above(b, row[b])) else {
                        break;
                    };
                    while !holds(self, last[takes], takes) {
                        last[takes] -= 1;
                    }
                    let near = (step + 1..=self.steps.min(step + NEARBY)).find(|&later| {
                        holds(self, later, takes) && self.spares(later, takes, gives, rules)
                    });
                    let later = near.unwrap_or(last[takes]);
                    self.swap(step, gives, later, takes);
                    last[gives] = last[gives].max(later);
                }
            }
            for (left, &count) in left.iter_mut().zip(self.row(step)) {
                *left -= count;
            }
        }
    }

    /// Whether a step meets every rule when one of bucket `takes` leaves it and one of bucket `gives` joins.
    fn spares(&self, step: usize, takes: usize, gives: usize, rules: &[Rule]) -> bool {
        let row = self.row(step);
        rules.iter().all(|rule| {
            let lost = u64::from(row[takes] <= rule.cap);
            let gained = u64::from(row[gives] < rule.cap);
            rule.counted(row) + gained >= u64::from(rule.need) + lost
        })
    }

    /// Step `one` gives a microbatch of bucket `gives` to step `other` and takes one of bucket `takes` for it.
    fn swap(&mut self, one: usize, gives: usize, other: usize, takes: usize) {
        let buckets = self.pool.len();
        self.counts[one * buckets + gives] -= 1;
        self.counts[other * buckets + gives] += 1;
        self.counts[other * buckets + takes] -= 1;
        self.counts[one * buckets + takes] += 1;
    }
}

/// A step is even enough when it is off by at most 1 / this: a total variation distance of 1/8.
const EVEN_ENOUGH: i128 = 4;

/// How far away a step looks for another to swap with. (steps)
const NEARBY: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn distinct(row: &[u32]) -> usize {
        row.iter().filter(|&&n| n > 0).count()
    }

    #[test]
    fn every_microbatch_goes_to_one_step_or_is_left_over() {
        let quota = Quota::plan(&[50, 0, 31, 7], 12, &[]);
        assert_eq!(quota.steps(), 7);
        let mut pool = vec![0; 4];
        for step in 0..=7 {
            let row = quota.row(step);
            assert_eq!(row.iter().sum::<u32>(), if step < 7 { 12 } else { 4 });
            pool.iter_mut().zip(row).for_each(|(pool, &n)| *pool += n);
        }
        assert_eq!(pool, [50, 0, 31, 7]);
    }

    #[test]
    fn rare_buckets_do_not_meet_in_one_step() {
        // Filled by deficit alone, all three rare buckets would fall due at once and push all frequent ones aside.
        let quota = Quota::plan(&[990, 990, 990, 10, 10, 10], 3, &[]);
        assert!((0..quota.steps()).all(|step| quota.row(step)[3..].iter().sum::<u32>() <= 1));
    }

    #[test]
    fn a_step_that_lacks_a_bucket_gets_it_from_a_later_one() {
        let rule = Rule { cap: 1, need: 2 };
        let quota = Quota::plan(&[36, 4], 4, &[rule]);
        let kinds: Vec<usize> = (0..10).map(|step| distinct(quota.row(step))).collect();
        assert_eq!(
            kinds,
            [2, 2, 2, 2, 1, 1, 1, 1, 1, 1],
            "kept until the second bucket is dry"
        );
    }

    #[test]
    fn a_pool_smaller_than_a_step_is_all_left_over() {
        let quota = Quota::plan(&[2, 1], 4, &[Rule { cap: 1, need: 2 }]);
        assert_eq!((quota.steps(), quota.row(0)), (0, &[2, 1][..]));
        let empty = Quota::plan(&[0, 0], 4, &[]);
        assert_eq!((empty.steps(), empty.row(0)), (0, &[0, 0][..]));
    }
}
