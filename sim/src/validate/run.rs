//! One replication of a line, through the real engine and core, with what is measured of it.

use super::laws::{Facts, broken};
use super::line::{Cumulants, Line};
use super::probe::Probe;
use crate::bound::Bound;
use crate::engine::{Machine, Observe, simulate};
use crate::faults::FaultList;
use shared::core::{Action, Activity, Core, Event};
use shared::draw::Seed;
use shared::metrics::{Detail, Meter, Metrics};
use shared::time::{Span, Time};
use std::ops::Range;

/// What a run gave. Means are over its window, which leaves out filling and draining. Times in milliseconds, rates per millisecond.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) probe: Probe,
    pub(super) bound: Bound,
    pub(super) targets: f64,
    pub(super) drafters: f64,
    /// Mean of the drawn trainings, and of their squares. (ms, ms^2)
    pub(super) drawn: (f64, f64),
    /// The first law it breaks.
    pub(super) broken: Option<String>,
    /// What its draws were off from what they are in expectation.
    pub(super) controls: Vec<f64>,
    from: Reading,
    until: Reading,
}

/// Windows over which draws are added up for controls.
const WINDOWS: [usize; 2] = [32, 128];
/// One in so many items is trained before the window of a run, and as many after it.
const EDGE: u32 = 20;

/// Runs `items` microbatches through the line.
pub(super) fn run(line: &Line, items: u32, seed: Seed) -> Run {
    let mut set_up = line.set_up(items, seed);
    let mut meter = Meter::new(&set_up.core, Detail::default());
    let mut probe = Probe::new(&set_up.core);
    let machine = Machine {
        service: &set_up.service,
        links: set_up.links.clone(),
        devices: crate::Devices::none(),
        faults: FaultList::default(),
    };
    let (first, last) = (items / EDGE, items - items / EDGE);
    let ends = [first, last];
    let mut readings = Vec::with_capacity(2);
    let mut watch = |at: Time, event: &Event, actions: &[Action], core: &Core| {
        meter.observe(at, event, actions, core);
        probe.record(at, event, actions, core);
        let wanted = ends.get(readings.len());
        if wanted.is_some_and(|&trained| probe.trained >= trained) {
            readings.push(Reading::take(at, meter.clone(), &probe, core));
        }
    };
    simulate(&mut set_up.core, machine, &mut watch);
    let until = readings
        .pop()
        .expect("the last item of the window is trained");
    let from = readings
        .pop()
        .expect("the first item of the window is trained");
    let metrics = meter.finish(&set_up.core);
    let (targets, drafters) = (line.targets.0, line.drafters.0);
    let bound = Bound::of(
        &set_up.plan,
        &set_up.service,
        targets,
        drafters,
        set_up.step_size,
    );
    let is_plain = line.prefetch == 0 && line.steps.is_none();
    let broken = broken(&Facts {
        set_up: &set_up,
        metrics: &metrics,
        probe: &probe,
        bound: &bound,
        trained_as_taken: is_plain && line.link_ms.is_none(),
        one_drafter: is_plain && line.link_ms.is_none() && drafters == 1,
    });
    let window = first as usize..last as usize;
    Run {
        drawn: moments(&set_up.trainings),
        controls: controls(
            line,
            &set_up.forwards[window.clone()],
            &set_up.trainings[window],
        ),
        targets: targets.into(),
        drafters: drafters.into(),
        probe,
        bound,
        broken,
        from,
        until,
    }
}

/// All sums of a run at an instant.
#[derive(Debug)]
struct Reading {
    at: Time,
    metrics: Metrics,
    trained: u32,
    crowded: Span,
    at_once: u32,
    travel_ns: u128,
    stay_ns: u128,
}

impl Reading {
    fn take(at: Time, meter: Meter, probe: &Probe, core: &Core) -> Self {
        Self {
            at,
            metrics: meter.finish(core),
            trained: probe.trained,
            crowded: probe.crowded,
            at_once: probe.at_once,
            travel_ns: probe.travel_ns,
            stay_ns: probe.stay_ns,
        }
    }

    fn spent(&self, of_targets: bool, activity: Activity) -> f64 {
        let (targets, drafters) = self.metrics.workers.split_at(self.metrics.targets);
        let workers = if of_targets { targets } else { drafters };
        workers.iter().map(|worker| ms(worker.span(activity))).sum()
    }
}

impl Run {
    /// The window's length. (ms)
    fn span(&self) -> f64 {
        ms(self.until.at - self.from.at)
    }

    fn trained(&self) -> f64 {
        f64::from(self.until.trained - self.from.trained)
    }

    /// Items a millisecond.
    pub(super) fn throughput(&self) -> f64 {
        self.trained() / self.span()
    }

    /// Mean number of drafters at an activity.
    fn drafters_at(&self, activity: Activity) -> f64 {
        (self.until.spent(false, activity) - self.from.spent(false, activity)) / self.span()
    }

    fn targets_at(&self, activity: Activity) -> f64 {
        (self.until.spent(true, activity) - self.from.spent(true, activity)) / self.span()
    }

    /// Mean number of busy drafters.
    pub(super) fn busy_drafters(&self) -> f64 {
        self.drafters_at(Activity::Busy)
    }

    /// Mean number of busy targets.
    pub(super) fn busy_targets(&self) -> f64 {
        self.targets_at(Activity::Busy)
    }

    /// Mean number of targets that hold hidden states without a slot or wait for one.
    pub(super) fn blocked_targets(&self) -> f64 {
        self.targets_at(Activity::Blocked)
    }

    /// Mean number of drafters without work.
    pub(super) fn starved_drafters(&self) -> f64 {
        self.drafters_at(Activity::Starved)
    }

    /// Mean wait for a drafter. (ms)
    pub(super) fn wait(&self) -> f64 {
        self.wait_of_buckets(0..self.until.metrics.delays.len())
    }

    /// Mean wait of one bucket. (ms)
    pub(super) fn wait_of(&self, bucket: usize) -> f64 {
        self.wait_of_buckets(bucket..bucket + 1)
    }

    fn wait_of_buckets(&self, buckets: Range<usize>) -> f64 {
        let sum = |reading: &Reading| {
            let delays = reading.metrics.delays[buckets.clone()].iter();
            delays.fold((0.0, 0.0), |(span, count), delay| {
                (span + ms(delay.sum), count + f64::from(delay.count))
            })
        };
        let ((from, before), (until, after)) = (sum(&self.from), sum(&self.until));
        (until - from) / (after - before)
    }

    /// Mean number of slots in use.
    pub(super) fn slots(&self) -> f64 {
        let slot_ns = |reading: &Reading| reading.metrics.peaks.slot_ns();
        (slot_ns(&self.until) - slot_ns(&self.from)) as f64 / 1e6 / self.span()
    }

    /// Mean time from the end of a forward to the end of its training. (ms)
    pub(super) fn stay(&self) -> f64 {
        (self.until.stay_ns - self.from.stay_ns) as f64 / 1e6 / self.trained()
    }

    /// Mean time on the link. (ms)
    pub(super) fn travel(&self) -> f64 {
        (self.until.travel_ns - self.from.travel_ns) as f64 / 1e6 / self.trained()
    }

    /// Mean time of an optimizer step, trainings included. (ms)
    pub(super) fn mean_step(&self) -> f64 {
        self.span() / f64::from(self.until.metrics.steps - self.from.metrics.steps)
    }

    /// Share of the time with at least [`CROWD`](super::probe::CROWD) items between forward and end of training.
    pub(super) fn crowded(&self) -> f64 {
        (ms(self.until.crowded) - ms(self.from.crowded)) / self.span()
    }

    /// Share of the items that had to wait.
    pub(super) fn waiting_share(&self) -> f64 {
        1.0 - f64::from(self.until.at_once - self.from.at_once) / self.trained()
    }
}

fn ms(span: Span) -> f64 {
    span.as_ns() as f64 / 1e6
}

fn moments(spans: &[Span]) -> (f64, f64) {
    let n = spans.len() as f64;
    let (sum, squares) = spans.iter().fold((0.0, 0.0), |(sum, squares), &span| {
        (sum + ms(span), squares + ms(span) * ms(span))
    });
    (sum / n, squares / n)
}

/// What a run's draws were off from what they are in expectation, which follows from the laws alone: the means of both stages, and how draws
/// clump: powers of what drafters get to do less the time they have for it, added up over windows of items. A queue at 80 % load owes
/// most of its length to such clumps.
fn controls(line: &Line, forwards: &[Span], trainings: &[Span]) -> Vec<f64> {
    let Cumulants(between) = line.targets.1.cumulants(&line.mix);
    let Cumulants(service) = line.drafters.1.cumulants(&line.mix);
    let (targets, drafters) = (f64::from(line.targets.0), f64::from(line.drafters.0));
    let mut sums = Vec::with_capacity(forwards.len() + 1);
    let mut sum = 0.0;
    sums.push(sum);
    for (&forward, &training) in forwards.iter().zip(trainings) {
        sum += (ms(training) - service[0]) / drafters - (ms(forward) - between[0]) / targets;
        sums.push(sum);
    }
    let cumulant = |power: i32| {
        let i = power as usize - 1;
        service[i] / drafters.powi(power) + between[i] / (-targets).powi(power)
    };
    let (second, third, fourth) = (cumulant(2), cumulant(3), cumulant(4));
    let mut controls = vec![
        moments(forwards).0 - between[0],
        moments(trainings).0 - service[0],
    ];
    for window in WINDOWS.map(|window| window.min(sums.len() - 1)) {
        let mut powers = [0.0; 3];
        for (from, to) in sums.iter().zip(&sums[window..]) {
            let (step, square) = (to - from, (to - from) * (to - from));
            powers[0] += square;
            powers[1] += square * step;
            powers[2] += square * square;
        }
        let n = (sums.len() - window) as f64;
        let w = window as f64;
        controls.push(powers[0] / n - w * second);
        controls.push(powers[1] / n - w * third);
        controls.push(powers[2] / n - w * fourth - 3.0 * (w * second).powi(2));
    }
    controls
}
