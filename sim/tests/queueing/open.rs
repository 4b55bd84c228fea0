//! Open queues: one saturated target in front of a store without limit is a Poisson source.
//!
//! At 80 % load waits are correlated over thousands of items: an interval 1 % wide would take twenty million of them.

use super::line::{Law, Line, Run};
use super::{Metric, busy_drafters, holds, slots, wait};
use shared::policy::Queue;
use sim::spec::Distribution;

const WIDTH: f64 = 0.05;

/// A Poisson source in front of servers.
fn open(mean_between: f64, servers: (u16, Law)) -> Line {
    Line::new((1, Law::exponential(mean_between)), None, servers)
}

/// A sigma of 0.2, as the spread that gives it.
fn lognormal(means_ms: Vec<f64>) -> Law {
    Law {
        means_ms,
        distribution: Distribution::Lognormal,
        spread: (0.04_f64.exp() - 1.0).sqrt(),
    }
}

fn in_system(run: &Run, servers: f64) -> f64 {
    slots(run) + servers * busy_drafters(run)
}

/// Wait and service; the mean service as measured, by the utilisation law.
fn response(run: &Run, servers: f64) -> f64 {
    wait(run) + servers * busy_drafters(run) / run.throughput()
}

#[test]
fn one_server() {
    let length = |r: &Run| in_system(r, 1.0);
    let time = |r: &Run| response(r, 1.0);
    let all: [Metric<'_>; 4] = [
        ("Wq", 0.0, &wait),
        ("W", 0.0, &time),
        ("Lq", 0.0, &slots),
        ("L", 0.0, &length),
    ];
    let markov = open(1.25, (1, Law::exponential(1.0)));
    holds("MM1", "", &markov, 500_000, WIDTH, &all);
    holds(
        "MM1",
        "",
        &markov,
        100_000,
        WIDTH,
        &[("utilization", 0.0, &busy_drafters)],
    );
    holds(
        "MD1",
        "",
        &open(1.25, (1, Law::constant(1.0))),
        200_000,
        WIDTH,
        &all,
    );
    let general = open(1.25, (1, lognormal(vec![1.0])));
    let without_time: [Metric<'_>; 3] = [all[0], all[2], all[3]];
    holds("MG1_lognormal", "", &general, 200_000, WIDTH, &without_time);
}

#[test]
fn several_servers() {
    let length = |r: &Run| in_system(r, 5.0);
    let time = |r: &Run| response(r, 5.0);
    let markov = open(0.25, (5, Law::exponential(1.0)));
    holds(
        "MMc",
        "",
        &markov,
        1_000_000,
        WIDTH,
        &[
            ("Wq", 0.0, &wait),
            ("W", 0.0, &time),
            ("Lq", 0.0, &slots),
            ("L", 0.0, &length),
            ("utilization", 0.0, &busy_drafters),
        ],
    );
    let constant = open(1.0 / 2.4, (3, Law::constant(1.0)));
    holds(
        "MDc",
        "",
        &constant,
        400_000,
        WIDTH,
        &[("Wq", 0.0, &wait), ("Lq", 0.0, &slots)],
    );
}

#[test]
fn one_server_for_six_buckets() {
    let mut line = open(
        55.86 / 0.8,
        (1, lognormal(vec![20.0, 35.0, 52.0, 70.0, 110.0, 155.0])),
    );
    line.targets.1.means_ms = vec![55.86 / 0.8; 6];
    line.mix = vec![0.25, 0.25, 0.18, 0.14, 0.11, 0.07];
    let time = |r: &Run| response(r, 1.0);
    holds(
        "MG1_bucket_mixture",
        "",
        &line,
        1_200_000,
        WIDTH,
        &[
            ("Wq_ms", 0.0, &wait),
            ("W_ms", 0.0, &time),
            ("Lq", 0.0, &slots),
        ],
    );
}

/// Any order that does not look at service times keeps the sum of load times wait: round robin over buckets moves waits, not the sum.
#[test]
fn round_robin_over_buckets_conserves_work() {
    let rates = [0.2, 0.1, 0.05];
    let services = [1.0, 3.0, 6.0];
    let mut line = open(
        1.0 / 0.35,
        (
            1,
            Law {
                means_ms: services.to_vec(),
                ..Law::constant(1.0)
            },
        ),
    );
    line.targets.1.means_ms = vec![1.0 / 0.35; 3];
    line.mix = rates.map(|rate| rate / 0.35).to_vec();
    let weighted = |r: &Run| {
        let waits = r.metrics.delays.iter().zip(rates).zip(services);
        waits
            .map(|((d, rate), s)| rate * s * d.sum.as_ns() as f64 / f64::from(d.count) / 1e6)
            .sum()
    };
    holds(
        "MG1_conservation",
        "3 buckets lambda=.2/.1/.05 constant S=1/3/6; one server; non-preemptive; FIFO",
        &line,
        400_000,
        WIDTH,
        &[("Wq_every_bucket", 0.0, &wait)],
    );
    line.queue = Queue::Bucketed;
    holds(
        "MG1_conservation",
        "3 buckets lambda=.2/.1/.05 constant S=1/3/6; one server; non-preemptive; round",
        &line,
        400_000,
        WIDTH,
        &[("sum rho_i*Wq_i", 0.0, &weighted)],
    );
}
