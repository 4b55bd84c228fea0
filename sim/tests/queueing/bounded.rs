//! Bounded queues: blocking after service, credits, and lines closed by their credits.

use super::line::{Law, Line, Run, run};
use super::reference::exact;
use super::{Metric, WIDTH, busy_drafters, holds, slots, wait};
use shared::core::Activity;
use shared::draw::Seed;
use shared::policy::{Admission, Release};

/// The four shapes of this project's own line: targets, store, drafters, mean services.
const SHAPES: [(u16, u32, u16, f64, f64); 4] = [
    (5, 12, 3, 55.86, 34.0),
    (5, 12, 3, 60.0, 30.0),
    (2, 1, 1, 2.0, 1.0),
    (6, 4, 2, 60.0, 20.0),
];

fn shape((targets, store, drafters, forward, train): (u16, u32, u16, f64, f64)) -> (Line, String) {
    let law = Law::exponential;
    let line = Line::new((targets, law(forward)), Some(store), (drafters, law(train)));
    let parameters = format!("N={targets} targets mean {forward}; store K={store}");
    (line, parameters)
}

#[test]
fn targets_that_block_after_service() {
    for numbers in SHAPES {
        let (line, parameters) = shape(numbers);
        let (targets, store, drafters) = (
            f64::from(numbers.0),
            f64::from(numbers.1),
            f64::from(numbers.2),
        );
        let held = |r: &Run| targets * r.metrics.target_share(Activity::Blocked);
        let starved = |r: &Run| drafters * r.metrics.drafter_share(Activity::Starved);
        holds(
            "pipeline_NKM_BAS",
            &parameters,
            &line,
            600_000,
            WIDTH,
            &[
                ("throughput", 0.0, &Run::throughput),
                ("mean_store", store, &slots),
                ("mean_wait_in_store", store * numbers.4 / drafters, &wait),
                ("mean_starved_drafters", drafters, &starved),
                ("mean_held_targets", targets, &held),
            ],
        );
    }
}

#[test]
fn targets_that_need_a_credit_before_they_begin() {
    for numbers in SHAPES {
        let (line, parameters) = shape(numbers);
        let line = Line {
            admission: Admission::Reserve,
            ..line
        };
        let (targets, store, drafters) = (
            f64::from(numbers.0),
            f64::from(numbers.1),
            f64::from(numbers.2),
        );
        let held = |r: &Run| targets * r.metrics.target_share(Activity::Blocked);
        let starved = |r: &Run| drafters * r.metrics.drafter_share(Activity::Starved);
        // Slots hold what targets are still computing as well.
        let stored = |r: &Run| slots(r) - targets * r.metrics.target_share(Activity::Busy);
        holds(
            "pipeline_NKM_credit",
            &parameters,
            &line,
            250_000,
            WIDTH,
            &[
                ("throughput", 0.0, &Run::throughput),
                ("mean_store", store, &stored),
                ("mean_wait_in_store", store * numbers.4 / drafters, &wait),
                ("mean_starved_drafters", drafters, &starved),
                ("mean_held_targets", targets, &held),
            ],
        );
    }
}

#[test]
fn the_bound_is_the_lesser_of_the_stages_capacities() {
    for numbers in SHAPES {
        let (mut line, parameters) = shape(numbers);
        (line.targets.1, line.drafters.1) = (Law::constant(numbers.3), Law::constant(numbers.4));
        let bound = run(&line, 2_000, Seed(1)).bound.tokens_per_s() / 1e3;
        for case in ["pipeline_NKM_BAS", "pipeline_NKM_credit"] {
            let exact = exact(case, &parameters, "bound");
            assert!(
                (bound / exact - 1.0).abs() < 1e-6,
                "{parameters}: {bound} is {exact}"
            );
        }
    }
}

#[test]
fn two_machines_in_tandem() {
    for (rate, buffer) in [(1.0, 0), (1.0, 2), (1.1, 12), (0.9, 4)] {
        let law = Law::exponential;
        let parameters = format!("mu1={rate:.1}; mu2=1; B={buffer} between");
        // Slots last until the end of the training here, so the place in service is one of them.
        let line = Line {
            release: Release::Trained,
            ..Line::new((1, law(1.0 / rate)), Some(buffer + 1), (1, law(1.0)))
        };
        let starved = |r: &Run| r.metrics.drafter_share(Activity::Starved);
        let blocked = |r: &Run| r.metrics.target_share(Activity::Blocked);
        let mut metrics: Vec<Metric<'_>> = vec![("throughput", 0.0, &Run::throughput)];
        if buffer == 12 {
            metrics.push(("P_station2_starved", 1.0, &starved));
        }
        let before = Line {
            admission: Admission::Reserve,
            ..line.clone()
        };
        holds(
            "tandem_finite_BBS",
            &parameters,
            &before,
            250_000,
            WIDTH,
            &metrics,
        );
        if buffer == 12 {
            metrics.push(("P_station1_blocked", 1.0, &blocked));
        }
        holds(
            "tandem_finite_BAS",
            &parameters,
            &line,
            250_000,
            WIDTH,
            &metrics,
        );
    }
}

#[test]
fn a_ring_of_six_credits() {
    let law = Law::exponential;
    let line = Line {
        admission: Admission::Reserve,
        release: Release::Trained,
        ..Line::new((1, law(1.0)), Some(6), (1, law(1.0)))
    };
    holds(
        "closed_balanced2",
        "",
        &line,
        250_000,
        WIDTH,
        &[("throughput", 0.0, &Run::throughput)],
    );
}

#[test]
fn ten_machines_and_one_repairer() {
    let law = Law::exponential;
    // A machine that is up is a target at work, a broken one waits for the drafter or is with it: ten credits go round.
    let line = Line {
        admission: Admission::Reserve,
        release: Release::Trained,
        ..Line::new((10, law(5.0)), Some(10), (1, law(1.0)))
    };
    let repaired = |r: &Run| 10.0 - 10.0 * r.metrics.target_share(Activity::Busy);
    let response = |r: &Run| wait(r) + busy_drafters(r) / r.throughput();
    holds(
        "machine_repair",
        "",
        &line,
        250_000,
        WIDTH,
        &[
            ("throughput", 0.0, &Run::throughput),
            ("response", 0.0, &response),
            ("mean_at_repair", 10.0, &repaired),
            ("utilization", 0.0, &busy_drafters),
        ],
    );
}
