//! Closed populations: credits that go round.

use super::sampled;
use crate::validate::case::{Case, measure};
use crate::validate::line::{Law, Line};
use crate::validate::run::Run;

pub(super) fn cases() -> Vec<Case> {
    vec![repair(), three_stations(), ring()]
}

/// A machine that is up is a target at work, a broken one waits for the drafter or is with it.
fn repair() -> Case {
    let law = Law::exponential;
    let line = Line::new((10, law(5.0)), None, (1, law(1.0))).with_credits(10);
    let measures = vec![
        measure("throughput", Run::throughput).as_drawn(),
        measure("response", Run::stay),
        measure("mean_at_repair", |r| r.targets - r.busy_targets()),
        measure("utilization", Run::busy_drafters).as_drawn(),
    ];
    let how =
        "ten credits: a machine that is up is a target at work, a broken one waits for the drafter";
    sampled("machine_repair", "", how, line, 400_000, measures)
}

/// Target, link and drafter. On a link that all transfers share, the laws of stations' queues are those of first in, first out with
/// exponential service (Baskett, Chandy, Muntz, Palacios 1975), whatever the sizes.
fn three_stations() -> Case {
    let law = Law::exponential;
    let line = Line {
        link_ms: Some(vec![0.3]),
        ..Line::new((1, law(0.4)), None, (1, law(0.2))).with_credits(8)
    };
    let at_link = |r: &Run| r.travel() * r.throughput();
    let at_drafter = |r: &Run| (r.stay() - r.travel()) * r.throughput();
    // What is neither on the link nor with the drafter waits for the target or is with it.
    let at_target = |r: &Run| 8.0 - r.stay() * r.throughput();
    let measures = vec![
        measure("throughput", Run::throughput).as_drawn(),
        measure("Q1", at_target),
        measure("Q2", at_link),
        measure("Q3", at_drafter),
        measure("cycle_time", |r| 8.0 / r.throughput()).as_drawn(),
    ];
    let how = "eight credits round a target, a shared link and a drafter; sharing has the same queues as first in, first out";
    sampled("closed_MVA3", "", how, line, 2_000_000, measures)
}

fn ring() -> Case {
    let law = Law::exponential;
    let line = Line::new((1, law(1.0)), None, (1, law(1.0))).with_credits(6);
    let measures = vec![measure("throughput", Run::throughput).as_drawn()];
    let how = "six credits round one target and one drafter";
    sampled("closed_balanced2", "", how, line, 400_000, measures)
}
