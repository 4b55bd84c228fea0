//! Running totals, and what two of them say about the time between.

use super::Bottleneck;
use shared::core::Activity;
use shared::id::Tokens;
use shared::time::{Span, Time};

/// Everything counted since the run began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) at: Time,
    pub(super) forwarded: Tokens,
    pub(super) trained: Tokens,
    /// Time of all targets, by activity.
    pub(super) targets: [Span; Activity::ALL.len()],
    /// Time of all drafters, by activity.
    pub(super) drafters: [Span; Activity::ALL.len()],
}

/// Rates and shares over a stretch of time. A rate is `None` while there is nothing to take it from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    /// Tokens trained. [tokens/s]
    pub(super) throughput: Option<f64>,
    /// Tokens through one busy target. [tokens/s]
    pub(super) forwarded_busy: Option<f64>,
    /// Tokens through one busy drafter. [tokens/s]
    pub(super) trained_busy: Option<f64>,
    /// Share of the drafters' time that they wait.
    pub(super) waiting: f64,
    targets: Shares,
    drafters: Shares,
}

/// Shares of the time of workers that were there.
type Shares = [f64; Activity::ALL.len()];

impl Rates {
    pub(super) fn between(from: &Totals, to: &Totals) -> Self {
        let targets = difference(&from.targets, &to.targets);
        let drafters = difference(&from.drafters, &to.drafters);
        let busy = Activity::Busy.index();
        let forwarded = to.forwarded.0 - from.forwarded.0;
        let trained = to.trained.0 - from.trained.0;
        let drafter_shares = shares(&drafters);
        Self {
            throughput: rate(trained, to.at - from.at),
            forwarded_busy: rate(forwarded, targets[busy]),
            trained_busy: rate(trained, drafters[busy]),
            waiting: [Activity::Starved, Activity::Copying, Activity::Barrier]
                .iter()
                .map(|activity| drafter_shares[activity.index()])
                .sum(),
            targets: shares(&targets),
            drafters: drafter_shares,
        }
    }

    /// Whoever is busy nearly always holds the others up. When nobody is, the time goes into copies or the barrier.
    pub(super) fn bottleneck(&self) -> Option<Bottleneck> {
        self.throughput?;
        let share = |shares: &Shares, activity: Activity| shares[activity.index()];
        let targets = share(&self.targets, Activity::Busy);
        let drafters = share(&self.drafters, Activity::Busy);
        let barrier = share(&self.drafters, Activity::Barrier);
        let copies =
            share(&self.targets, Activity::Copying).max(share(&self.drafters, Activity::Copying));
        let busiest = if targets >= drafters {
            Bottleneck::Targets
        } else {
            Bottleneck::Drafters
        };
        let lost = 1.0 - targets.max(drafters);
        Some(if lost < BUSY_ENOUGH || copies.max(barrier) < lost / 2.0 {
            busiest
        } else if copies >= barrier {
            Bottleneck::Copies
        } else {
            Bottleneck::Barrier
        })
    }
}

/// The busiest kind of worker is the bottleneck when it idles less than this share of the time.
const BUSY_ENOUGH: f64 = 0.1;

fn rate(tokens: u64, span: Span) -> Option<f64> {
    (tokens > 0 && span > Span::ZERO).then(|| tokens as f64 / (span.as_ns() as f64 / 1e9))
}

fn difference(from: &[Span], to: &[Span; Activity::ALL.len()]) -> [Span; Activity::ALL.len()] {
    std::array::from_fn(|i| Span::from_ns(to[i].as_ns() - from[i].as_ns()))
}

pub(super) fn shares(spans: &[Span; Activity::ALL.len()]) -> Shares {
    let all: Span = spans.iter().copied().sum();
    let there = all.as_ns() - spans[Activity::Absent.index()].as_ns();
    std::array::from_fn(|i| spans[i].as_ns() as f64 / there.max(1) as f64)
}
