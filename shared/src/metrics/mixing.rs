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

/// Follows what optimizer steps are made of.
#[derive(Clone, Debug)]
pub(super) struct Mixing {
    /// Every step's mix, if it is to be kept.
    steps: Option<Vec<StepMix>>,
    summary: Steps,
    /// The plan's share of each bucket.
    shares: Vec<f64>,
    windows: Vec<Window>,
    longest_run: u32,
    windows_filled: u32,
    windows_at_most_two: u32,
    lengths: Lag1,
    /// Room for the sums of a step.
    counts: Vec<u32>,
}

/// What a drafter has trained on: in the step under way, and last.
#[derive(Clone, Debug)]
struct Window {
    /// Microbatches by bucket.
    counts: Vec<u32>,
    samples: u64,
    tokens: u64,
    /// The bucket it trained on last, and how often in a row.
    run: (BucketId, u32),
}

/// What a step made part of the weights.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Committed {
    pub(super) tokens: Tokens,
    pub(super) samples: u64,
}

impl Mixing {
    pub(super) fn new(core: &Core, keep_steps: bool) -> Self {
        // Before the first event that is the whole plan.
        let counts = &core.state().untaken_of_bucket;
        let all: u32 = counts.iter().sum();
        let window = Window {
            counts: vec![0; counts.len()],
            samples: 0,
            tokens: 0,
            run: (BucketId(u8::MAX), 0),
        };
        Self {
            steps: keep_steps.then(Vec::new),
            summary: Steps::default(),
            shares: counts
                .iter()
                .map(|&c| f64::from(c) / f64::from(all.max(1)))
                .collect(),
            windows: vec![window; core.state().drafters.len()],
            longest_run: 0,
            windows_filled: 0,
            windows_at_most_two: 0,
            lengths: Lag1::default(),
            counts: vec![0; counts.len()],
        }
    }

    #[inline]
    pub(super) fn trained(&mut self, drafter: DrafterId, id: MicrobatchId, core: &Core) {
        let microbatch = core.plan().microbatch(id);
        let (bucket, samples) = (microbatch.bucket, microbatch.sample_count());
        let window = &mut self.windows[drafter.index()];
        window.counts[bucket.index()] += 1;
        window.samples += u64::from(samples);
        window.tokens += microbatch.tokens.0;
        let before = if window.run.0 == bucket {
            window.run.1
        } else {
            0
        };
        window.run = (bucket, before + 1);
        self.longest_run = self.longest_run.max(before + 1);
        self.lengths
            .push(microbatch.tokens.0 as f64 / f64::from(samples.max(1)));
    }

    /// A drafter is gone; what it had trained on in the step under way will be trained on again.
    pub(super) fn forget(&mut self, drafter: DrafterId) {
        let window = &mut self.windows[drafter.index()];
        window.counts.fill(0);
        (window.samples, window.tokens) = (0, 0);
    }

    pub(super) fn applied(&mut self, step: StepId, group: Group, core: &Core) -> Committed {
        let (mut samples, mut tokens) = (0, 0);
        self.counts.fill(0);
        let windows = match group {
            Group::All => &mut self.windows[..],
            Group::One(drafter) => std::slice::from_mut(&mut self.windows[drafter.index()]),
        };
        for window in windows {
            let mut distinct = 0;
            for (sum, count) in self.counts.iter_mut().zip(&mut window.counts) {
                distinct += u32::from(*count > 0);
                *sum += std::mem::take(count);
            }
            self.windows_filled += u32::from(distinct > 0);
            self.windows_at_most_two += u32::from((1..=2).contains(&distinct));
            samples += std::mem::take(&mut window.samples);
            tokens += std::mem::take(&mut window.tokens);
        }
        let mean_length = tokens as f64 / samples.max(1) as f64;
        let mix = self.mix(step, group, mean_length, core);
        self.summary.push(&mix);
        if let Some(steps) = &mut self.steps {
            steps.push(mix);
        }
        Committed {
            tokens: Tokens(tokens),
            samples,
        }
    }

    /// The mix of a step of `self.counts` microbatches by bucket.
    fn mix(&self, step: StepId, group: Group, mean_length: f64, core: &Core) -> StepMix {
        let (mut microbatches, mut distinct) = (0, 0);
        for &count in &self.counts {
            microbatches += count;
            distinct += u32::from(count > 0);
        }
        let differences = self.counts.iter().zip(&self.shares);
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
        StepMix {
            step,
            microbatches,
            distinct,
            tv,
            mean_length,
            exception,
            is_full,
        }
    }

    /// The steps in a few numbers, and each of them if they were to be kept.
    pub(super) fn finish(self) -> (MixSummary, Vec<StepMix>) {
        let summary = MixSummary {
            windows_at_most_two: f64::from(self.windows_at_most_two)
                / f64::from(self.windows_filled.max(1)),
            longest_run: self.longest_run,
            microbatch_lag1: self.lengths.correlation(),
            ..self.summary.summary()
        };
        (summary, self.steps.unwrap_or_default())
    }
}

/// Sums over steps, of full ones but for the first and the last of these numbers.
#[derive(Clone, Debug)]
struct Steps {
    all: u32,
    full: u32,
    distinct_min: u32,
    distinct_sum: f64,
    tv_sum: f64,
    tv_max: f64,
    lengths: Lag1,
    exceptions: u32,
}

impl Default for Steps {
    fn default() -> Self {
        Self {
            all: 0,
            full: 0,
            distinct_min: u32::MAX,
            // What an empty sum of floats is.
            distinct_sum: -0.0,
            tv_sum: -0.0,
            tv_max: 0.0,
            lengths: Lag1::default(),
            exceptions: 0,
        }
    }
}

impl Steps {
    fn push(&mut self, mix: &StepMix) {
        self.all += 1;
        self.exceptions += u32::from(mix.exception.is_some());
        if mix.is_full {
            self.full += 1;
            self.distinct_min = self.distinct_min.min(mix.distinct);
            self.distinct_sum += f64::from(mix.distinct);
            self.tv_sum += mix.tv;
            self.tv_max = self.tv_max.max(mix.tv);
            self.lengths.push(mix.mean_length);
        }
    }

    fn summary(&self) -> MixSummary {
        let full = f64::from(self.full.max(1));
        MixSummary {
            steps: self.all,
            full: self.full,
            distinct_min: if self.full > 0 { self.distinct_min } else { 0 },
            distinct_mean: self.distinct_sum / full,
            tv_mean: self.tv_sum / full,
            tv_max: self.tv_max,
            exceptions: self.exceptions,
            lag1: self.lengths.correlation(),
            ..MixSummary::default()
        }
    }
}

/// Pearson correlation of a series with itself one later, in sums, so that the series is not kept. All terms are relative to the first, so
/// that little is lost.
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
    use super::Lag1;

    fn lag1(series: impl IntoIterator<Item = f64>) -> Option<f64> {
        let mut sums = Lag1::default();
        series.into_iter().for_each(|x| sums.push(x));
        sums.correlation()
    }

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
