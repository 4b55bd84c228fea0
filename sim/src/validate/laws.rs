//! Laws that hold on every run, whatever the policy and the laws of service: checked exactly, in whole nanoseconds.
//!
//! Each law has two sides that are counted apart: the reducer's metrics follow levels (slots, bytes, what workers do), the probe follows items.

use super::line::SetUp;
use super::probe::Probe;
use crate::bound::Bound;
use shared::core::Activity;
use shared::metrics::{Metrics, WorkerShares};
use shared::time::Span;

/// The laws, by the names they are shown under.
pub const LAWS: [&str; 6] = [
    "Little's law",
    "utilisation law",
    "workers' time adds up",
    "no sample lost",
    "conservation of work",
    "no run beats its bound",
];

/// What a run offers to the laws.
pub(super) struct Facts<'a> {
    pub(super) set_up: &'a SetUp,
    pub(super) metrics: &'a Metrics,
    pub(super) probe: &'a Probe,
    pub(super) bound: &'a Bound,
    /// Whether items are trained the instant they are taken.
    pub(super) trained_as_taken: bool,
    /// Whether one drafter does nothing but train, on what is there at once.
    pub(super) one_drafter: bool,
}

/// The first law that a run breaks, with both sides.
pub(super) fn broken(facts: &Facts<'_>) -> Option<String> {
    let found = [
        little(facts),
        utilisation(facts),
        time(facts),
        samples(facts),
        work(facts),
        bound(facts),
    ];
    let mut broken = LAWS.iter().zip(found).filter_map(|(law, found)| {
        let sides = found?;
        Some(format!("{law}: {sides}"))
    });
    broken.next()
}

fn differ<T: PartialEq + std::fmt::Display>(left: T, right: T, of: &str) -> Option<String> {
    (left != right).then(|| format!("{left} and {right} {of}"))
}

/// L = lambda W on a path that begins and ends empty: the integral of how many are there is the sum of how long each stays. (Little 1961)
fn little(facts: &Facts<'_>) -> Option<String> {
    let peaks = &facts.metrics.peaks;
    let alive = differ(
        peaks.alive_byte_ns(),
        facts.probe.alive_byte_ns,
        "bytes x ns of hidden states",
    );
    let slots = || differ(peaks.slot_ns(), facts.probe.slot_ns, "slots x ns");
    alive.or_else(|| facts.trained_as_taken.then(slots).flatten())
}

/// U = X S: workers are busy as long as the work takes.
fn utilisation(facts: &Facts<'_>) -> Option<String> {
    let (targets, drafters) = facts.metrics.workers.split_at(facts.metrics.targets);
    let busy = |workers: &[WorkerShares]| -> u64 {
        workers
            .iter()
            .map(|w| w.span(Activity::Busy).as_ns())
            .sum::<u64>()
    };
    let sum = |spans: &[Span]| -> u64 { spans.iter().map(|s| s.as_ns()).sum() };
    let apply = facts.set_up.service.apply().as_ns();
    let applied = apply * u64::from(facts.metrics.steps) * facts.applies_each();
    let of_targets = differ(
        busy(targets),
        sum(&facts.set_up.forwards),
        "ns of target work",
    );
    let trainings = sum(&facts.set_up.trainings) + applied;
    of_targets.or_else(|| differ(busy(drafters), trainings, "ns of drafter work"))
}

impl Facts<'_> {
    /// Drafters that one optimizer step keeps busy.
    fn applies_each(&self) -> u64 {
        match self.set_up.core.policy().barrier {
            shared::policy::Barrier::All => self.set_up.core.policy().drafters.into(),
            shared::policy::Barrier::None => 1,
        }
    }
}

/// Busy, blocked, starved and the rest are the whole run, for every worker.
fn time(facts: &Facts<'_>) -> Option<String> {
    let run = facts.metrics.makespan;
    facts.metrics.workers.iter().find_map(|worker| {
        let sum: Span = worker.spans.iter().copied().sum();
        differ(
            sum.as_ns(),
            run.as_ns(),
            &format!("ns of {}", worker.worker),
        )
    })
}

/// What was planned was trained, each sample once.
fn samples(facts: &Facts<'_>) -> Option<String> {
    let ledger = &facts.metrics.ledger;
    let lost = differ(
        ledger.planned,
        ledger.trained,
        "samples planned and trained",
    );
    lost.or_else(|| (!ledger.balances()).then(|| "the ledger does not add up".to_owned()))
}

/// No order of a drafter that never rests makes work or loses any: unfinished work over time is what comes in, whatever waits for what.
/// (Kleinrock 1965, on a path)
fn work(facts: &Facts<'_>) -> Option<String> {
    if !facts.one_drafter {
        return None;
    }
    let (left, right) = facts.probe.unfinished_work(&facts.set_up.trainings);
    differ(left, right, "ns^2 of unfinished work, twice")
}

/// The work of each stage, spread evenly, is a floor under the run.
fn bound(facts: &Facts<'_>) -> Option<String> {
    let floor = facts.bound.targets.max(facts.bound.drafters);
    (facts.metrics.makespan < floor).then(|| {
        format!(
            "{} ns for what takes {} ns",
            facts.metrics.makespan.as_ns(),
            floor.as_ns()
        )
    })
}
