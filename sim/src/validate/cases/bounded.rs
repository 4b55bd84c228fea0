//! Queues with room for so many: sources that rest while it is full, blocking after service, and credits asked for before.

use super::sampled;
use crate::validate::case::{Case, Measure, measure};
use crate::validate::line::{Law, Line};
use crate::validate::run::Run;
use shared::policy::{Admission, Release};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = losses();
    cases.extend(tandems());
    cases.extend(SHAPES.iter().zip(ITEMS).flat_map(|(&shape, items)| {
        [
            of_shape(shape, items, "pipeline_NKM_BAS", Admission::Block),
            of_shape(shape, items, "pipeline_NKM_credit", Admission::Reserve),
        ]
    }));
    cases
}

const LOSS: &str = "a source that rests while the system is full makes all that a lossy one lets in: nothing is remembered of the rest";

/// Items between forward and end of training.
fn in_system(run: &Run) -> f64 {
    run.slots() - run.busy_targets()
}

/// A Poisson source in front of servers, with so many places in the whole system.
fn lossy(mean_between_ms: f64, servers: u16, places: u32) -> Line {
    let law = Law::exponential;
    Line::new((1, law(mean_between_ms)), None, (servers, law(1.0))).with_credits(places)
}

fn losses() -> Vec<Case> {
    let lost = measure("P_block", Run::blocked_targets)
        .out_of(1.0)
        .as_drawn();
    let one = vec![
        lost,
        measure("throughput", Run::throughput).as_drawn(),
        measure("L", in_system),
        measure("W", Run::stay),
    ];
    let none = vec![
        lost,
        measure("mean_busy_servers", Run::busy_drafters).as_drawn(),
    ];
    let several = vec![
        lost,
        measure("throughput", Run::throughput).as_drawn(),
        measure("L", in_system),
        measure("Lq", |r| in_system(r) - r.busy_drafters()),
        measure("Wq_accepted", Run::wait),
    ];
    vec![
        sampled("MM1K", "", LOSS, lossy(1.0 / 1.2, 1, 12), 400_000, one),
        sampled("MMcc_ErlangB", "", LOSS, lossy(0.25, 5, 5), 400_000, none),
        sampled("MMcK", "", LOSS, lossy(0.2, 5, 17), 1_500_000, several),
    ]
}

/// Two machines with so many places between them. Slots last until the end of the training, so the place in service is one of them.
fn tandems() -> Vec<Case> {
    let mut cases = Vec::new();
    for (rate, buffer) in [(1.0, 0), (1.0, 2), (1.1, 12), (0.9, 4)] {
        let law = Law::exponential;
        let parameters = format!("mu1={rate:.1}; mu2=1; B={buffer} between");
        let after = Line {
            release: Release::Trained,
            ..Line::new((1, law(1.0 / rate)), Some(buffer + 1), (1, law(1.0)))
        };
        let before = after.clone().with_credits(buffer + 1);
        let mut measures = vec![measure("throughput", Run::throughput).as_drawn()];
        if buffer == 12 {
            measures.push(
                measure("P_station2_starved", Run::starved_drafters)
                    .out_of(1.0)
                    .as_drawn(),
            );
        }
        let how = "admission = reserve: a target asks for its slot before the forward";
        cases.push(sampled(
            "tandem_finite_BBS",
            parameters.clone(),
            how,
            before,
            400_000,
            measures.clone(),
        ));
        if buffer == 12 {
            measures.push(
                measure("P_station1_blocked", Run::blocked_targets)
                    .out_of(1.0)
                    .as_drawn(),
            );
        }
        let how = "admission = block: a target asks for its slot after the forward and holds the hidden states";
        cases.push(sampled(
            "tandem_finite_BAS",
            parameters,
            how,
            after,
            400_000,
            measures,
        ));
    }
    cases
}

/// The four shapes of this project's own line: targets, store, drafters, mean services. (ms)
pub(super) const SHAPES: [(u16, u32, u16, f64, f64); 4] = [
    (5, 12, 3, 55.86, 34.0),
    (5, 12, 3, 60.0, 30.0),
    (2, 1, 1, 2.0, 1.0),
    (6, 4, 2, 60.0, 20.0),
];

/// Microbatches of each: where little waits, its mean varies most.
const ITEMS: [u32; 4] = [1_400_000, 4_000_000, 700_000, 1_600_000];

/// The beginning of a shape's parameters in the table.
pub(super) fn parameters(shape: (u16, u32, u16, f64, f64)) -> String {
    let (targets, store, drafters, forward, train) = shape;
    format!(
        "N={targets} targets mean {forward}; store K={store} shared; M={drafters} drafters mean {train};"
    )
}

fn of_shape(
    shape: (u16, u32, u16, f64, f64),
    items: u32,
    name: &'static str,
    admission: Admission,
) -> Case {
    let (targets, store, drafters, forward, train) = shape;
    let law = Law::exponential;
    let line = Line {
        admission,
        ..Line::new((targets, law(forward)), Some(store), (drafters, law(train)))
    };
    // Under credits, slots hold what targets are still computing as well.
    let (stored, how): (fn(&Run) -> f64, _) = match admission {
        Admission::Block => (Run::slots, "admission = block"),
        Admission::Reserve => (in_system, "admission = reserve"),
    };
    let measures: Vec<Measure> = vec![
        measure("throughput", Run::throughput).as_drawn(),
        measure("mean_store", stored),
        measure("mean_wait_in_store", Run::wait),
        measure("mean_starved_drafters", Run::starved_drafters)
            .out_of(drafters.into())
            .as_drawn(),
        measure("mean_held_targets", Run::blocked_targets)
            .out_of(targets.into())
            .as_drawn(),
    ];
    sampled(name, parameters(shape), how, line, items, measures)
}
