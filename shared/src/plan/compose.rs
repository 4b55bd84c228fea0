//! Steps composed from different buckets.
//!
//! [`Quota`] says how many microbatches of each bucket a step takes; which ones is a shuffle's choice. Within a step the order of
//! buckets is shuffled too, and, where drafters are assigned, dealt so that every drafter gets its first microbatch before any
//! gets its second.

use super::order::{Order, epochs};
use super::packing::{Job, pack};
use super::quota::{Quota, Rule};
use super::shuffle::shuffle;
use super::{Exception, Fill, Formation, Microbatch, OrderSpec, PlannedStep, Tail};
use crate::draw::{Seed, Stream};
use crate::id::{DrafterId, StepId};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// Composes the steps of every epoch.
pub(super) fn compose(formation: &Formation, spec: &OrderSpec, fill: Fill) -> Order {
    let mut composer = Composer::new(formation, spec);
    let mut epochs = epochs(formation).enumerate().peekable();
    while let Some((epoch, mut rows)) = epochs.next() {
        let seed = spec.seed.derive(epoch as u64);
        // What an earlier epoch carried over stands in front and is taken first.
        shuffle(&mut rows, seed, Stream::Order);
        for row in rows {
            let bucket = composer.microbatch(row).bucket;
            composer.waiting[bucket.index()].push_back(row);
        }
        let pool: Vec<u32> = composer
            .waiting
            .iter()
            .map(|rows| rows.len() as u32)
            .collect();
        let quota = match fill {
            Fill::Even => Quota::plan(&pool, spec.step_size(), &composer.rules),
            Fill::Random => Quota::random(&pool, spec.step_size(), seed),
            Fill::OneBucket => Quota::one_bucket(&pool, spec.step_size(), seed),
        };
        for step in 0..quota.steps() {
            let rows = composer.take(quota.row(step));
            composer.emit(rows, seed, Exception::DryBucket);
        }
        let rest = quota.row(quota.steps());
        match spec.tail {
            Tail::Carry if epochs.peek().is_some() => {}
            Tail::Short | Tail::Carry => {
                let rows = composer.take(rest);
                if !rows.is_empty() {
                    composer.emit(rows, seed, Exception::Tail);
                }
            }
            Tail::Drop => {
                let rows = composer.take(rest);
                composer.order.dropped.extend(rows);
            }
        }
    }
    composer.order
}

struct Composer<'a> {
    formation: &'a Formation,
    spec: &'a OrderSpec,
    rules: Vec<Rule>,
    /// Padded tokens of each bucket's largest microbatch, which the estimated costs are for.
    full: Vec<u64>,
    /// Rows of each bucket, next first.
    waiting: Vec<VecDeque<u32>>,
    order: Order,
}

impl<'a> Composer<'a> {
    fn new(formation: &'a Formation, spec: &'a OrderSpec) -> Self {
        let buckets = formation.edges.len();
        let mut full = vec![0; buckets];
        for microbatch in &formation.microbatches {
            let full: &mut u64 = &mut full[microbatch.bucket.index()];
            *full = (*full).max(microbatch.padded.0);
        }
        let mut rules = vec![Rule {
            cap: 1,
            need: u32::from(spec.mix.step_min),
        }];
        if spec.assign {
            let drafters = u32::from(spec.drafters);
            rules.push(Rule {
                cap: drafters,
                need: drafters * u32::from(spec.mix.window_min),
            });
        }
        rules.retain(|rule| rule.need > 0);
        let waiting = vec![VecDeque::new(); buckets];
        Self {
            formation,
            spec,
            rules,
            full,
            waiting,
            order: Order::default(),
        }
    }

    fn microbatch(&self, row: u32) -> &'a Microbatch {
        &self.formation.microbatches[row as usize]
    }

    fn take(&mut self, counts: &[u32]) -> Vec<u32> {
        let per_bucket = self.waiting.iter_mut().zip(counts);
        per_bucket
            .flat_map(|(rows, &count)| rows.drain(..count as usize))
            .collect()
    }

    /// Appends a step of these rows; `exception` is its excuse should it break a mixing rule.
    fn emit(&mut self, mut rows: Vec<u32>, epoch_seed: Seed, exception: Exception) {
        let seed = epoch_seed.derive(self.order.steps.len() as u64);
        let mut counts = vec![0; self.waiting.len()];
        rows.iter()
            .for_each(|&row| counts[self.microbatch(row).bucket.index()] += 1);
        let kept = self.rules.iter().all(|rule| rule.met(&counts));

        let step = StepId::from_index(self.order.steps.len());
        let first = self.order.rows.len();
        shuffle(&mut rows, seed, Stream::Order);
        if self.spec.assign {
            self.assign(&rows, seed)
        } else {
            self.order.rows.extend(rows)
        }
        let end = self.order.rows.len();
        self.order.step_of.resize(end, step);
        self.order.steps.push(PlannedStep {
            microbatches: first as u32..end as u32,
            exception: (!kept).then_some(exception),
        });
    }

    /// Appends a step's rows with their drafters: first every drafter's first microbatch, the busiest drafter's before the others'.
    fn assign(&mut self, rows: &[u32], seed: Seed) {
        let jobs: Vec<Job> = rows
            .iter()
            .map(|&row| self.job(self.microbatch(row)))
            .collect();
        let (drafters, window_min) = (self.spec.drafters, self.spec.mix.window_min);
        let mut shares = pack(&jobs, drafters, self.waiting.len(), window_min);
        // Packing favours low places; by a shuffle no drafter gets the longest microbatch of every step.
        shuffle(&mut shares, seed.derive(0), Stream::Order);
        let mut busiest_first: Vec<usize> = (0..shares.len()).collect();
        busiest_first.sort_by_key(|&drafter| Reverse(shares[drafter].load));
        for (drafter, share) in shares.iter_mut().enumerate() {
            shuffle(
                &mut share.jobs,
                seed.derive(1 + drafter as u64),
                Stream::Order,
            );
        }
        let longest = shares
            .iter()
            .map(|share| share.jobs.len())
            .max()
            .unwrap_or(0);
        for place in 0..longest {
            for &drafter in &busiest_first {
                if let Some(&job) = shares[drafter].jobs.get(place) {
                    self.order.rows.push(rows[job]);
                    self.order.drafter_of.push(DrafterId::from_index(drafter));
                }
            }
        }
    }

    /// A microbatch's estimated cost: its bucket's, by its share of the padded tokens of the bucket's largest.
    fn job(&self, microbatch: &Microbatch) -> Job {
        let bucket = microbatch.bucket;
        let (full, cost) = (
            self.full[bucket.index()],
            self.spec.train_cost[bucket.index()].as_ns(),
        );
        // Work without tokens costs what its bucket costs.
        let scaled = (u128::from(cost) * u128::from(microbatch.padded.0)).checked_div(full.into());
        Job {
            cost: scaled.map_or(cost, |scaled| scaled as u64),
            bucket,
        }
    }
}

#[cfg(test)]
mod tests;
