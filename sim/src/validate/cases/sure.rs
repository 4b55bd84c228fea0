//! Cases without chance: exact to the nanosecond, or as far as a number of so many digits goes.

use super::bounded::{SHAPES, parameters};
use crate::validate::case::{Case, Kind, Sure};
use crate::validate::line::{Law, Line};
use crate::validate::pipeline::{self, Checksum};
use crate::validate::reference::{Exact, exact};
use crate::validate::run::run;
use shared::draw::Seed;
use shared::policy::Barrier;
use shared::time::{Span, Time};

pub(super) fn cases() -> Vec<Case> {
    let sure = |name, how, values| Case {
        name,
        parameters: String::new(),
        how,
        kind: Kind::Sure(values),
    };
    vec![
        sure(
            "pipeline_NKM_BAS",
            "the bound that every run is measured by",
            || bounds("pipeline_NKM_BAS"),
        ),
        sure(
            "pipeline_NKM_credit",
            "the bound that every run is measured by",
            || bounds("pipeline_NKM_credit"),
        ),
        sure(
            "deterministic_line",
            "constant service, to the nanosecond",
            lines,
        ),
        sure(
            "saturation_bound",
            "the bound counts the optimizer step",
            saturation,
        ),
        sure(
            "pipeline_of_peers",
            "a run that SimPy, salabim, nexosim and desque agree on, to the nanosecond",
            peers,
        ),
    ]
}

/// The bounds of the table have this many digits.
const DIGITS: f64 = 1e-11;

fn bounds(case: &str) -> Vec<Sure> {
    let bound = |shape: (u16, u32, u16, f64, f64)| {
        let (targets, store, drafters, forward, train) = shape;
        let law = Law::constant;
        let line = Line::new((targets, law(forward)), Some(store), (drafters, law(train)));
        // One sample of one token is an item.
        let simulated = run(&line, 30_000, Seed(1)).bound.tokens_per_s() / 1e3;
        Sure {
            exact: exact(case, &parameters(shape), "bound_min(N/E1,M/E2)").clone(),
            simulated,
            tolerance: DIGITS,
        }
    };
    SHAPES.map(bound).into()
}

/// The exact makespans' unit of time. (ns)
const UNIT: u64 = 1_000;

fn lines() -> Vec<Sure> {
    let constant = |units: u64| Law::constant((units * UNIT) as f64 / 1e6);
    let two =
        |first, second, slots| Line::new((1, constant(first)), Some(slots), (1, constant(second)));
    let wide = Line::new((5, constant(55_860)), Some(12), (3, constant(34_000)));
    let steps = Line {
        drafters: (3, constant(32_000)),
        steps: Some((4, Barrier::None, Span::from_ns(8_000 * UNIT))),
        ..wide.clone()
    };
    let makespan = |parameters: &str, line: &Line, items| {
        let trained = run(line, items, Seed(1)).probe.end - Time::ZERO;
        Sure {
            exact: exact("deterministic_line", parameters, "makespan").clone(),
            simulated: trained.as_ns() as f64 / UNIT as f64,
            tolerance: 0.0,
        }
    };
    vec![
        makespan("N=1 S1=3; M=1 S2=5", &two(3, 5, 1), 100),
        makespan("N=1 S1=3; M=1 S2=5", &two(3, 5, 50), 100),
        makespan("N=1 S1=5; M=1 S2=3", &two(5, 3, 1), 100),
        makespan("N=1 S1=5; M=1 S2=3", &two(5, 3, 50), 100),
        makespan("N=5 S1=55860; M=3 S2=34000", &wide, 1_000),
        makespan("N=5 S1=55860; M=3 S2=32000 + 8000", &steps, 1_000),
    ]
}

/// The bound of lines with an optimizer step, with and without a barrier.
fn saturation() -> Vec<Sure> {
    let of = |barrier| {
        let line = Line {
            steps: Some((4, barrier, Span::from_ms(8))),
            prefetch: 1,
            ..Line::new(
                (5, Law::constant(55.86)),
                Some(48),
                (3, Law::constant(32.0)),
            )
        };
        Sure {
            exact: exact("saturation_bound", "", "throughput_per_s").clone(),
            simulated: run(&line, 12_000, Seed(1)).bound.tokens_per_s(),
            tolerance: DIGITS,
        }
    };
    vec![of(Barrier::None), of(Barrier::All)]
}

fn peers() -> Vec<Sure> {
    let found = pipeline::replay();
    let Checksum {
        makespan,
        blocked,
        starved,
        area,
        steps,
    } = pipeline::EXPECTED;
    let row = |metric: &str, exact: u64, simulated: u64| Sure {
        exact: Exact {
            case: "pipeline_of_peers".to_owned(),
            parameters: "5 targets; store 12; 3 drafters; 20000 microbatches".to_owned(),
            metric: metric.to_owned(),
            value: exact as f64,
            source: "seven implementations in four frameworks and two languages".to_owned(),
        },
        simulated: simulated as f64,
        tolerance: 0.0,
    };
    vec![
        row("makespan_ns", makespan, found.makespan),
        row("blocked_ns", blocked, found.blocked),
        row("starved_ns", starved, found.starved),
        row("slots_x_ns", area, found.area),
        row("steps", steps, found.steps),
    ]
}
