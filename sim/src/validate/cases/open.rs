//! Open queues: a saturated target in front of a store without limit is a Poisson source, drafters are the servers.

use super::sampled;
use crate::validate::case::{Case, Measure, measure};
use crate::validate::line::{Law, Line};
use crate::validate::run::Run;
use shared::policy::{Queue, Take};

/// A Poisson source in front of servers.
fn open(mean_between_ms: f64, servers: (u16, Law)) -> Line {
    Line::new((1, Law::exponential(mean_between_ms)), None, servers)
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![markov(), markov_tails()];
    cases.extend([several_servers(), constant(), lognormal(), buckets()]);
    cases.extend([shared_link(&[1.0], 2_000_000, "every transfer alike")]);
    cases.extend([shared_link(
        &[0.5, 1.5],
        12_000_000,
        "half of the transfers three times as long",
    )]);
    cases.extend([three_constant_servers()]);
    cases.extend(orders());
    cases
}

fn in_queue_and_service() -> [Measure; 4] {
    [
        measure("L", |r| r.slots() + r.busy_drafters()),
        measure("Lq", Run::slots),
        measure("W", Run::stay),
        measure("Wq", Run::wait),
    ]
}

fn markov() -> Case {
    let mut measures = vec![measure("utilization", Run::busy_drafters).as_drawn()];
    measures.extend(in_queue_and_service());
    measures.push(measure("P(N>=5)", Run::crowded).out_of(1.0));
    measures.push(measure("W_p50", |r| r.probe.quantile(0.5)));
    let how = "a saturated target is a Poisson source, one drafter the server";
    let line = open(1.25, (1, Law::exponential(1.0)));
    sampled("MM1", "", how, line, 10_000_000, measures)
}

fn markov_tails() -> Case {
    let measures = vec![
        measure("W_p95", |r| r.probe.quantile(0.95)),
        measure("W_p99", |r| r.probe.quantile(0.99)),
    ];
    let how = "the same line, run longer for its tail";
    let line = open(1.25, (1, Law::exponential(1.0)));
    sampled("MM1", "", how, line, 50_000_000, measures)
}

fn several_servers() -> Case {
    let mut measures = vec![measure("P_wait", Run::waiting_share).out_of(1.0)];
    measures.extend(in_queue_and_service());
    measures.push(measure("utilization", |r| r.busy_drafters() / r.drafters).as_drawn());
    let how = "five drafters share one queue";
    let line = open(0.25, (5, Law::exponential(1.0)));
    sampled("MMc", "", how, line, 12_000_000, measures)
}

fn constant() -> Case {
    let how = "one drafter that always takes as long";
    let line = open(1.25, (1, Law::constant(1.0)));
    let measures = in_queue_and_service().to_vec();
    sampled("MD1", "", how, line, 4_000_000, measures)
}

fn lognormal() -> Case {
    let [length, queue, _, wait] = in_queue_and_service();
    let squares = measure("E[S^2]", |r| r.drawn.1).as_drawn();
    let how = "one drafter with the noise that scenarios have";
    let line = open(1.25, (1, Law::lognormal(1.0, 0.2)));
    let measures = vec![squares, wait, queue, length];
    sampled("MG1_lognormal", "", how, line, 5_500_000, measures)
}

fn buckets() -> Case {
    let mix = [0.25, 0.25, 0.18, 0.14, 0.11, 0.07];
    let means = [20.0, 35.0, 52.0, 70.0, 110.0, 155.0];
    let line = Line {
        mix: mix.to_vec(),
        ..open(55.86 / 0.8, (1, Law::lognormal(1.0, 0.2).by_bucket(&means)))
    };
    let scv = |r: &Run| r.drawn.1 / (r.drawn.0 * r.drawn.0) - 1.0;
    let measures = vec![
        measure("E[S]_ms", |r| r.drawn.0).as_drawn(),
        measure("E[S^2]_ms2", |r| r.drawn.1).as_drawn(),
        measure("scv", scv).as_drawn(),
        measure("Wq_ms", Run::wait),
        measure("W_ms", Run::stay),
        measure("Lq", Run::slots),
    ];
    let how = "one drafter, six buckets in one queue";
    sampled("MG1_bucket_mixture", "", how, line, 9_000_000, measures)
}

/// Processor sharing: the mean stay depends on the mean size alone.
fn shared_link(sizes_ms: &[f64], items: u32, how: &'static str) -> Case {
    let line = Line {
        mix: match sizes_ms.len() {
            1 => vec![1.0],
            _ => vec![0.5, 0.5],
        },
        link_ms: Some(sizes_ms.to_vec()),
        ..open(1.25, (1, Law::constant(1e-6)))
    };
    let measures = vec![measure("W", Run::travel)];
    sampled("MG1_PS", "", how, line, items, measures)
}

fn three_constant_servers() -> Case {
    let how = "three drafters that always take as long";
    let line = open(1.0 / 2.4, (3, Law::constant(1.0)));
    let measures = vec![measure("Lq", Run::slots), measure("Wq", Run::wait)];
    sampled("MDc", "", how, line, 6_000_000, measures)
}

const RATES: [f64; 3] = [0.2, 0.1, 0.05];
const SERVICES: [f64; 3] = [1.0, 3.0, 6.0];

/// Waits of the buckets, weighted by the load that each brings.
fn weighted(run: &Run) -> f64 {
    let loads = RATES.iter().zip(SERVICES).map(|(rate, s)| rate * s);
    loads
        .enumerate()
        .map(|(b, load)| load * run.wait_of(b))
        .sum()
}

/// One server and three buckets, served in three orders.
fn orders() -> Vec<Case> {
    let fifo = Line {
        mix: RATES.map(|rate| rate / 0.35).to_vec(),
        ..open(1.0 / 0.35, (1, Law::constant(1.0).by_bucket(&SERVICES)))
    };
    let by_bucket = |take| Line {
        queue: Queue::Bucketed,
        take,
        ..fifo.clone()
    };
    let waits = vec![
        measure("Wq_bucket1", |r| r.wait_of(0)),
        measure("Wq_bucket2", |r| r.wait_of(1)),
        measure("Wq_bucket3", |r| r.wait_of(2)),
    ];
    let any = "3 buckets lambda=.2/.1/.05 constant S=1/3/6; one server; non-preemptive; ANY";
    let every = "3 buckets lambda=.2/.1/.05 constant S=1/3/6; one server; non-preemptive;";
    let conserved = || vec![measure("sum rho_i*Wq_i", weighted)];
    let priority = || by_bucket(Take::Shortest);
    let items = 6_500_000;
    vec![
        sampled(
            "MG1_priority",
            "",
            "buckets taken shortest first",
            priority(),
            12_000_000,
            waits,
        ),
        sampled(
            "MG1_conservation",
            any,
            "buckets taken shortest first",
            priority(),
            items,
            conserved(),
        ),
        sampled(
            "MG1_conservation",
            any,
            "buckets taken in turn",
            by_bucket(Take::RoundRobin),
            items,
            conserved(),
        ),
        sampled(
            "MG1_conservation",
            every,
            "one queue, first in, first out",
            fifo,
            items,
            vec![
                measure("sum rho_i*Wq_i", weighted),
                measure("Wq_every_bucket", Run::wait),
            ],
        ),
    ]
}
