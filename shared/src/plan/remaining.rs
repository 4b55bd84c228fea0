//! What is left of a plan once some of its microbatches are trained.

use super::{Plan, PlannedStep, bucket_counts};
use crate::id::StepId;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// Microbatches that are trained, by their [`Microbatch::key`](super::Microbatch::key): ranges, ascending and apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Done(Vec<Range<u32>>);

impl Done {
    /// From keys in any order.
    pub fn of(keys: impl IntoIterator<Item = u32>) -> Self {
        let mut keys: Vec<u32> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for key in keys {
            match ranges.last_mut() {
                Some(last) if last.end == key => last.end = key + 1,
                _ => ranges.push(key..key + 1),
            }
        }
        Self(ranges)
    }

    /// Both together.
    pub fn union(&self, more: &Self) -> Self {
        Self::of(self.keys().chain(more.keys()))
    }

    /// Whether the microbatch with this key is trained.
    pub fn contains(&self, key: u32) -> bool {
        let after = self.0.partition_point(|range| range.start <= key);
        after > 0 && self.0[after - 1].contains(&key)
    }

    /// All keys, ascending.
    pub fn keys(&self) -> impl Iterator<Item = u32> {
        self.0.iter().cloned().flatten()
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.iter().map(ExactSizeIterator::len).sum()
    }
}

impl fmt::Display for Done {
    /// `0-12 20-33`: first and last-plus-one key of each range.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.0.iter().enumerate() {
            let blank = if i == 0 { "" } else { " " };
            write!(f, "{blank}{}-{}", range.start, range.end)?;
        }
        Ok(())
    }
}

/// Text that lists no microbatches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{part:?} is no range of microbatches such as 0-12, ascending and apart from the one before"
)]
pub struct DoneError {
    /// The first part that is wrong.
    part: String,
}

impl FromStr for Done {
    type Err = DoneError;

    fn from_str(text: &str) -> Result<Self, DoneError> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for part in text.split_whitespace() {
            let free = ranges.last().map_or(0, |last| last.end);
            let range = part.split_once('-').and_then(|(start, end)| {
                let (start, end) = (start.parse().ok()?, end.parse().ok()?);
                (free <= start && start < end).then_some(start..end)
            });
            ranges.push(range.ok_or_else(|| DoneError { part: part.into() })?);
        }
        Ok(Self(ranges))
    }
}

impl Plan {
    /// The plan without what is done: the same order, steps and drafters for the rest, numbered from 0 again.
    ///
    /// A microbatch keeps its key, and so its samples, its noise and its anchors: training the rest after a restart is what
    /// training on would have been. A composed step that is partly done keeps what is left of it.
    pub fn remaining(&self, done: &Done) -> Self {
        let is_left = |row: usize| !done.contains(self.microbatches[row].key);
        let rows: Vec<usize> = (0..self.microbatches.len())
            .filter(|&row| is_left(row))
            .collect();
        let mut steps = Vec::new();
        let mut step_of = Vec::new();
        let mut begun = 0;
        for step in &self.steps {
            let left = step
                .microbatches
                .clone()
                .filter(|&row| is_left(row as usize));
            let count = left.count() as u32;
            if count == 0 {
                continue;
            }
            step_of.extend((0..count).map(|_| StepId(steps.len() as u32)));
            steps.push(PlannedStep {
                microbatches: begun..begun + count,
                exception: step.exception,
            });
            begun += count;
        }
        let microbatches = rows.iter().map(|&row| self.microbatches[row].clone());
        let microbatches: Vec<_> = microbatches.collect();
        Self {
            samples: self.samples.clone(),
            bucket_counts: bucket_counts(&microbatches, self.buckets().into()),
            microbatches,
            steps,
            step_of,
            drafter_of: match self.drafter_of.as_slice() {
                [] => Vec::new(),
                drafters => rows.iter().map(|&row| drafters[row]).collect(),
            },
            dropped: self.dropped.clone(),
            over_long: self.over_long.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Seed;
    use crate::id::Bytes;
    use crate::plan::{
        Edges, Fill, FormSpec, Limits, MixRule, OrderSpec, Ordering, OverLong, Tail,
    };
    use crate::time::Span;

    fn plan(ordering: Ordering) -> Plan {
        let lengths: Vec<u32> = (0..400).map(|i| 1 + i * 37 % 64).collect();
        let form = FormSpec {
            edges: Edges::given(vec![16, 32, 48, 64]).unwrap(),
            limits: Limits {
                token_budget: 128,
                batch_max: 4,
            },
            over_long: OverLong::Skip,
            epochs: 2,
            bytes_per_token: Bytes(8),
            seed: Seed(3),
        };
        let order = OrderSpec {
            ordering,
            drafters: 2,
            grad_accum: 3,
            tail: Tail::Short,
            mix: MixRule::default(),
            assign: true,
            train_cost: vec![Span::from_ns(10); 4],
            seed: Seed(3),
        };
        Plan::form_and_order(&lengths, &form, &order).unwrap()
    }

    fn keys(plan: &Plan, rows: Range<u32>) -> Vec<u32> {
        let rows = &plan.microbatches[rows.start as usize..rows.end as usize];
        rows.iter().map(|m| m.key).collect()
    }

    #[test]
    fn the_rest_of_composed_steps_is_what_would_have_followed() {
        let whole = plan(Ordering::Composed(Fill::Even));
        let cut = 7;
        let done = Done::of(
            whole.steps[..cut]
                .iter()
                .flat_map(|step| keys(&whole, step.microbatches.clone())),
        );
        let rest = whole.remaining(&done);
        assert_eq!(rest.steps.len(), whole.steps.len() - cut);
        for (i, (a, b)) in rest.steps.iter().zip(&whole.steps[cut..]).enumerate() {
            let (rows, all) = (a.microbatches.clone(), b.microbatches.clone());
            assert_eq!(keys(&rest, rows.clone()), keys(&whole, all.clone()));
            assert_eq!(a.exception, b.exception);
            for (row, one) in rows.zip(all) {
                assert_eq!(rest.step_of[row as usize], StepId(i as u32));
                assert_eq!(
                    rest.drafter_of[row as usize],
                    whole.drafter_of[one as usize]
                );
            }
        }
        assert_eq!(
            rest.tokens().0 + done_tokens(&whole, &done),
            whole.tokens().0
        );
        assert_ne!(rest.digest(), whole.digest());
    }

    fn done_tokens(plan: &Plan, done: &Done) -> u64 {
        let trained = plan.microbatches.iter().filter(|m| done.contains(m.key));
        trained.map(|m| m.tokens.0).sum()
    }

    #[test]
    fn a_stream_loses_what_is_done_wherever_it_stands() {
        let whole = plan(Ordering::Shuffled);
        let done = Done::of(whole.microbatches.iter().step_by(3).map(|m| m.key));
        let rest = whole.remaining(&done);
        assert!(!rest.is_composed() && rest.drafter_of.is_empty());
        let left = whole.microbatches.iter().filter(|m| !done.contains(m.key));
        assert!(rest.microbatches.iter().eq(left));
        let sample = |m: usize| {
            rest.samples_of(crate::id::MicrobatchId::from_index(m))
                .len()
        };
        assert_eq!(sample(0), rest.microbatches[0].sample_count() as usize);
    }

    #[test]
    fn nothing_done_leaves_the_plan_and_all_done_leaves_none() {
        for ordering in [Ordering::Composed(Fill::Even), Ordering::AsFormed] {
            let whole = plan(ordering);
            assert_eq!(whole.remaining(&Done::default()), whole);
            let all = Done::of(whole.microbatches.iter().map(|m| m.key));
            let rest = whole.remaining(&all);
            assert!(rest.microbatches.is_empty() && rest.steps.is_empty());
        }
    }

    #[test]
    fn a_step_that_is_partly_done_keeps_its_rest() {
        let whole = plan(Ordering::Composed(Fill::Even));
        let first = keys(&whole, whole.steps[0].microbatches.clone());
        let rest = whole.remaining(&Done::of(first[1..3].iter().copied()));
        assert_eq!(rest.steps.len(), whole.steps.len());
        assert_eq!(
            rest.steps[0].microbatches.len(),
            whole.steps[0].microbatches.len() - 2
        );
        assert_eq!(rest.microbatches.len(), whole.microbatches.len() - 2);
    }

    #[test]
    fn a_ledger_reads_back_and_a_wrong_one_is_refused() {
        let done = Done::of([7, 3, 4, 5, 9, 4]);
        assert_eq!(done.to_string(), "3-6 7-8 9-10");
        assert_eq!(done.to_string().parse(), Ok(done.clone()));
        assert_eq!(done.count(), 5);
        assert!(done.contains(5) && !done.contains(6) && !done.contains(0));
        assert_eq!(done.union(&Done::of([6, 8])).to_string(), "3-10");
        for wrong in ["3", "3-3", "5-4", "3-6 4-8", "a-b"] {
            assert!(wrong.parse::<Done>().is_err(), "{wrong}");
        }
        assert_eq!("".parse(), Ok(Done::default()));
    }
}
