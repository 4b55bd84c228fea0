//! The numbers of one run.

use super::mixing::{MixSummary, StepMix};
use super::series::{Interval, Point};
use super::shares::{WorkerShares, ratio};
use super::{Peaks, Place};
use crate::core::Activity;
use crate::id::{BucketId, Bytes, SampleId, Tokens};
use crate::time::{Span, Time};

/// Where every sample went. The counts add up to what was planned, over all epochs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Planned, over all epochs, those dropped and over-long included.
    pub planned: u64,
    /// Trained on and part of the weights.
    pub trained: u64,
    /// Not begun when the run ended.
    pub waiting: u64,
    /// Begun and not yet part of the weights when the run ended.
    pub in_flight: u64,
    /// Given up after repeated failures.
    pub failed: Vec<SampleId>,
    /// Left undone by an orderly stop.
    pub skipped: u64,
    /// Left out by the tail rule.
    pub dropped: Vec<SampleId>,
    /// Left out because they exceed the last edge.
    pub over_long: Vec<SampleId>,
}

impl Ledger {
    /// Whether every planned sample is accounted for.
    pub fn balances(&self) -> bool {
        let listed = self.failed.len() + self.dropped.len() + self.over_long.len();
        self.planned == self.trained + self.waiting + self.in_flight + self.skipped + listed as u64
    }
}

/// How long hidden states of one bucket waited for a drafter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketDelay {
    /// Which bucket.
    pub bucket: BucketId,
    /// Microbatches that waited.
    pub count: u32,
    /// Their waits, added up.
    pub sum: Span,
    /// The longest.
    pub max: Span,
}

/// The part of a run between filling and draining: from one optimizer step to a later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steady {
    /// Its length.
    pub span: Span,
    /// Real tokens of the steps applied in it, the first one left out.
    pub tokens: Tokens,
    /// Samples of these.
    pub samples: u64,
    /// Steps.
    pub steps: u32,
}

/// An optimizer step as it was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// When.
    pub at: Time,
    /// Real tokens that were part of the weights then, its own included.
    pub tokens: Tokens,
    /// Samples of these.
    pub samples: u64,
    /// Steps that had been applied then, itself included.
    pub steps: u32,
    /// Whether targets still had input to begin.
    pub has_input: bool,
}

/// The steps up to the last one that was applied while targets still had input: after it a run drains.
pub fn before_draining(applied: &[Applied]) -> &[Applied] {
    let last = applied.iter().rposition(|step| step.has_input);
    last.map_or(&[], |last| &applied[..=last])
}

/// From the one at `first` to the last before the run drains; empty if that is not later.
pub(super) fn steady(applied: &[Applied], first: usize) -> Steady {
    let counted = before_draining(applied);
    match (applied.get(first), counted.last()) {
        (Some(from), Some(to)) if counted.len() > first + 1 => Steady {
            span: to.at - from.at,
            tokens: Tokens(to.tokens.0 - from.tokens.0),
            samples: to.samples - from.samples,
            steps: to.steps - from.steps,
        },
        _ => Steady {
            span: Span::ZERO,
            ..Steady::default()
        },
    }
}

/// The numbers of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// From the beginning to the last event.
    pub makespan: Span,
    /// Real tokens that are part of the weights.
    pub tokens: Tokens,
    /// Tokens computed for them, padding included.
    pub padded: Tokens,
    /// Samples that are part of the weights.
    pub samples: u64,
    /// Microbatches that are part of the weights.
    pub microbatches: u32,
    /// Optimizer steps applied.
    pub steps: u32,
    /// The steady part: without a warm-up of one step in ten, unless [`Self::cut_warm_up`] chose another.
    pub steady: Steady,
    /// Optimizer steps in order: all, or one in so many of a long run's.
    pub applied: Vec<Applied>,
    /// Every worker's time by activity.
    pub workers: Vec<WorkerShares>,
    /// The number of targets among these, which come first.
    pub targets: usize,
    /// Hidden states at their peaks.
    pub peaks: Peaks,
    /// Steps' mixes in a few numbers.
    pub mix: MixSummary,
    /// Every step's mix.
    pub step_mixes: Vec<StepMix>,
    /// Waits by bucket.
    pub delays: Vec<BucketDelay>,
    /// Where every sample went.
    pub ledger: Ledger,
    /// Slots over time, if asked for.
    pub points: Vec<Point>,
    /// Bars of the first steps, if asked for.
    pub timeline: Vec<Interval>,
}

impl Metrics {
    /// Leaves so many first steps out of the steady part, but for the end of the last of them, with which it begins.
    pub fn cut_warm_up(&mut self, steps: usize) {
        let left_out = self.steps_up_to(steps);
        self.steady = steady(&self.applied, left_out.saturating_sub(1));
    }

    /// How many of [`Self::applied`] are among so many first steps.
    pub fn steps_up_to(&self, steps: usize) -> usize {
        self.applied
            .partition_point(|step| step.steps as usize <= steps)
    }

    /// Leaves out what grows with the length of the run: sums stay.
    pub fn forget_steps(&mut self) {
        self.applied = Vec::new();
        self.step_mixes = Vec::new();
    }

    /// Trained tokens per second over the steady part, or over the whole run when it is too short to have one. (tok/s)
    pub fn tokens_per_s(&self) -> f64 {
        if self.steady.steps > 0 {
            per_second(self.steady.tokens.0, self.steady.span)
        } else {
            self.run_tokens_per_s()
        }
    }

    /// Trained tokens per second over the whole run, filling and draining included. (tok/s)
    pub fn run_tokens_per_s(&self) -> f64 {
        per_second(self.tokens.0, self.makespan)
    }

    /// Samples per second, as [`Self::tokens_per_s`]. (samples/s)
    pub fn samples_per_s(&self) -> f64 {
        if self.steady.steps > 0 {
            per_second(self.steady.samples, self.steady.span)
        } else {
            per_second(self.samples, self.makespan)
        }
    }

    /// Optimizer steps per second. Not for ranking: steps differ in size between policies. (steps/s)
    pub fn steps_per_s(&self) -> f64 {
        per_second(u64::from(self.steps), self.makespan)
    }

    /// Mean share of `activity` over the targets.
    pub fn target_share(&self, activity: Activity) -> f64 {
        mean_share(&self.workers[..self.targets], activity)
    }

    /// Mean share of `activity` over the drafters.
    pub fn drafter_share(&self, activity: Activity) -> f64 {
        mean_share(&self.workers[self.targets..], activity)
    }

    /// Share of the computed tokens that are padding.
    pub fn padding(&self) -> f64 {
        1.0 - ratio(self.tokens.0, self.padded.0.max(1))
    }

    /// Peak bytes of hidden states at a place.
    pub fn peak_at(&self, place: Place) -> Bytes {
        match place {
            Place::Host => self.peaks.host,
            Place::Target(target) => self.peaks.targets[target],
            Place::Drafter(drafter) => self.peaks.drafters[drafter],
        }
    }

    /// The instant the run ended.
    pub fn end(&self) -> Time {
        Time::ZERO + self.makespan
    }
}

fn mean_share(workers: &[WorkerShares], activity: Activity) -> f64 {
    let sum: f64 = workers.iter().map(|w| w.share(activity)).sum();
    sum / workers.len().max(1) as f64
}

fn per_second(amount: u64, span: Span) -> f64 {
    if span == Span::ZERO {
        0.0
    } else {
        amount as f64 / (span.as_ns() as f64 / 1e9)
    }
}
