//! How well optimizer steps mix lengths.

use crate::core::{Core, Group};
use crate::id::{BucketId, DrafterId, MicrobatchId, StepId, Tokens};
use crate::plan::Exception;

/// One optimizer step's mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepMix {
    /// Which step.
    pub step: StepId,
    /// Its microbatches.
    pub microbatches: u32,
    /// Distinct buckets among them.
    pub distinct: u32,
    /// Total variation distance of its bucket mix from the plan's: half the sum of absolute differences of shares.
    pub tv: f64,
    /// Mean length of its samples. (tokens)
    pub mean_length: f64,
    /// Why it falls short of the mixing rule, if it does; `None` also where no rule is set.
    pub exception: Option<Exception>,
    /// Whether it holds as many microbatches as a step should.
    pub is_full: bool,
}

/// All steps' mixes in a few numbers. Full steps only, but for the exceptions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MixSummary {
    /// Steps in all.
    pub steps: u32,
    /// Full ones among them.
    pub full: u32,
    /// Fewest distinct buckets.
    pub distinct_min: u32,
    /// Mean of distinct buckets.
    pub distinct_mean: f64,
    /// Mean total variation distance.
    pub tv_mean: f64,
    /// Largest total variation distance.
    pub tv_max: f64,
    /// Steps that fall short of the mixing rule, each with its reason.
    pub exceptions: u32,
    /// Among the windows of one drafter, the share that holds at most two buckets.
    pub windows_at_most_two: f64,
    /// The longest run of microbatches of one bucket that a drafter saw.
    pub longest_run: u32,
    /// Correlation of mean length between a step and the next; `None` for fewer than three steps or constant lengths.
    pub lag1: Option<f64>,
    /// Correlation of mean length between a microbatch and the one that is trained next, whoever trains it; `None` as above.
    pub microbatch_lag1: Option<f64>,
}

#[derive(Clone, Debug)]
pub(super) struct Mixing {
    pub(super) steps: Vec<StepMix>,
    shares: Vec<f64>,
    under_way: Vec<Tally>,
    runs: Vec<(BucketId, u32)>,
    longest_run: u32,
    windows: u32,
    windows_at_most_two: u32,
    lengths: Lag1,
    /// Room for the sums of a step.
    counts: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct Tally {
    counts: Vec<u32>,
    samples: u64,
    tokens: u64,
}

/// What a step made part of the weights.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Committed {
    pub(super) tokens: Tokens,
    pub(super) samples: u64,
}

impl Mixing {
    pub(super) fn new(core: &Core) -> Self {
        let counts = core.plan().bucket_counts();
        let all: u32 = counts.iter().sum();
        let drafters = core.state().drafters.len();
        let tally = Tally {
            counts: vec![0; counts.len()],
            ..Tally::default()
        };
        Self {
            steps: Vec::new(),
            shares: counts
                .iter()
                .map(|&c| f64::from(c) / f64::from(all.max(1)))
                .collect(),
            under_way: vec![tally; drafters],
            runs: vec![(BucketId(u8::MAX), 0); drafters],
            longest_run: 0,
            windows: 0,
            windows_at_most_two: 0,
            lengths: Lag1::default(),
            counts: vec![0; counts.len()],
        }
    }

    pub(super) fn trained(&mut self, drafter: DrafterId, id: MicrobatchId, core: &Core) {
        let microbatch = core.plan().microbatch(id);
        let tally = &mut self.under_way[drafter.index()];
        tally.counts[microbatch.bucket.index()] += 1;
        tally.samples += u64::from(microbatch.sample_count());
        tally.tokens += microbatch.tokens.0;
        let run = &mut self.runs[drafter.index()];
        *run = if run.0 == microbatch.bucket {
            (run.0, run.1 + 1)
        } else {
            (microbatch.bucket, 1)
        };
        self.longest_run = self.longest_run.max(run.1);
        let samples = microbatch.sample_count().max(1);
        self.lengths
            .push(microbatch.tokens.0 as f64 / f64::from(samples));
    }

    /// A drafter is gone; what it had trained on in the step under way will be trained on again.
    pub(super) fn forget(&mut self, drafter: DrafterId) {
        let tally = &mut self.under_way[drafter.index()];
        tally.counts.fill(0);
        (tally.samples, tally.tokens) = (0, 0);
    }

    pub(super) fn applied(&mut self, step: StepId, group: Group, core: &Core) -> Committed {
        let mut counts = std::mem::take(&mut self.counts);
        counts.fill(0);
        let (mut samples, mut tokens) = (0, 0);
        let tallies = match group {
            Group::All => &mut self.under_way[..],
            Group::One(drafter) => std::slice::from_mut(&mut self.under_way[drafter.index()]),
        };
        for tally in tallies {
            let distinct = tally.counts.iter().filter(|&&count| count > 0).count();
            self.windows += u32::from(distinct > 0);
            self.windows_at_most_two += u32::from((1..=2).contains(&distinct));
            for (sum, count) in counts.iter_mut().zip(&mut tally.counts) {
                *sum += std::mem::take(count);
            }
            samples += std::mem::take(&mut tally.samples);
            tokens += std::mem::take(&mut tally.tokens);
        }
        let mean_length = tokens as f64 / samples.max(1) as f64;
        self.push(step, group, &counts, mean_length, core);
        self.counts = counts;
        Committed {
            tokens: Tokens(tokens),
            samples,
        }
    }

    fn push(&mut self, step: StepId, group: Group, counts: &[u32], mean_length: f64, core: &Core) {
        let microbatches: u32 = counts.iter().sum();
        let distinct = counts.iter().filter(|&&c| c > 0).count() as u32;
        let differences = counts.iter().zip(&self.shares);
        let tv = differences
            .map(|(&c, share)| (f64::from(c) / f64::from(microbatches.max(1)) - share).abs())
            .sum::<f64>()
            / 2.0;
        let whole = match group {
            Group::All => core.grad_accum() * u32::from(core.policy().drafters),
            Group::One(_) => core.grad_accum(),
        };
        let is_full = microbatches >= whole;
        let planned = core
            .plan()
            .steps
            .get(step.index())
            .and_then(|s| s.exception);
        let short = distinct < u32::from(core.policy().mix_step_min);
        let found = if is_full {
            Exception::DryBucket
        } else {
            Exception::Tail
        };
        let exception = short.then_some(planned.unwrap_or(found));
        self.steps.push(StepMix {
            step,
            microbatches,
            distinct,
            tv,
            mean_length,
            exception,
            is_full,
        });
    }

    pub(super) fn summary(&self) -> MixSummary {
        let full: Vec<_> = self.steps.iter().filter(|s| s.is_full).collect();
        let n = full.len().max(1) as f64;
        let means: Vec<_> = full.iter().map(|s| s.mean_length).collect();
        MixSummary {
            steps: self.steps.len() as u32,
            full: full.len() as u32,
            distinct_min: full.iter().map(|s| s.distinct).min().unwrap_or(0),
            distinct_mean: full.iter().map(|s| f64::from(s.distinct)).sum::<f64>() / n,
            tv_mean: full.iter().map(|s| s.tv).sum::<f64>() / n,
            tv_max: full.iter().map(|s| s.tv).fold(0.0, f64::max),
            exceptions: self.steps.iter().filter(|s| s.exception.is_some()).count() as u32,
            windows_at_most_two: f64::from(self.windows_at_most_two)
                / f64::from(self.windows.max(1)),
            longest_run: self.longest_run,
            lag1: lag1(means),
            microbatch_lag1: self.lengths.correlation(),
        }
    }
}

/// Pearson correlation of a series with itself one later.
fn lag1(series: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sums = Lag1::default();
    series.into_iter().for_each(|x| sums.push(x));
    sums.correlation()
}

/// The same in sums, for series that are not kept. All terms are relative to the first, so that little is lost.
#[derive(Clone, Copy, Debug, Default)]
struct Lag1 {
    count: u64,
    first: f64,
    last: f64,
    sum: f64,
    squares: f64,
    products: f64,
}

impl Lag1 {
    fn push(&mut self, x: f64) {
        if self.count == 0 {
            self.first = x;
        }
        let x = x - self.first;
        self.products += self.last * x;
        self.sum += x;
        self.squares += x * x;
        self.last = x;
        self.count += 1;
    }

    fn correlation(&self) -> Option<f64> {
        if self.count < 3 {
            return None;
        }
        let n = self.count as f64;
        let mean = self.sum / n;
        let variance = self.squares - n * mean * mean;
        // Of the pairs' sums, one lacks the last term and the other the first, which is 0.
        let covariance =
            self.products - mean * (2.0 * self.sum - self.last) + (n - 1.0) * mean * mean;
        (variance > self.squares * 1e-12).then(|| covariance / variance)
    }
}

#[cfg(test)]
mod tests {
    use super::lag1;

    #[test]
    fn a_sawtooth_is_anticorrelated_and_a_ramp_correlated() {
        let sawtooth: Vec<_> = (0..100).map(|i| f64::from(i % 2)).collect();
        let ramp: Vec<_> = (0..100).map(f64::from).collect();
        assert!(lag1(sawtooth).unwrap() < -0.95);
        assert!(lag1(ramp).unwrap() > 0.95);
        assert_eq!(lag1([1.0, 1.0, 1.0]), None);
        // Mean 3; pairs (-2)(0) + (0)(-1) + (-1)(3) = -3 over 4 + 0 + 1 + 9 = 14.
        let found = lag1([1.0, 3.0, 2.0, 6.0]).unwrap();
        assert!((found + 3.0 / 14.0).abs() < 1e-12, "{found}");
    }
}
