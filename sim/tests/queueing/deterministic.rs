//! Lines without chance: exact to the nanosecond.

use super::line::{Law, Line, run};
use super::reference::exact;
use shared::draw::Seed;
use shared::policy::Barrier;
use shared::time::Span;

/// The exact values' unit of time. (ns)
const UNIT: u64 = 1_000;

fn constant(units: u64) -> Law {
    Law::constant((units * UNIT) as f64 / 1e6)
}

#[track_caller]
fn makespan_is_exact(parameters: &str, line: &Line, items: u32) {
    let exact = exact("deterministic_line", parameters, "makespan") as u64;
    let trained = run(line, items, Seed(1)).trained;
    assert_eq!(trained.as_ns(), exact * UNIT, "{parameters}");
}

#[test]
fn one_machine_after_another() {
    for slots in [1, 2, 50] {
        let line =
            |first, second| Line::new((1, constant(first)), Some(slots), (1, constant(second)));
        makespan_is_exact("N=1 S1=3; M=1 S2=5", &line(3, 5), 100);
        makespan_is_exact("N=1 S1=5; M=1 S2=3", &line(5, 3), 100);
    }
}

#[test]
fn five_targets_and_three_drafters() {
    let line = Line::new((5, constant(55_860)), Some(12), (3, constant(34_000)));
    makespan_is_exact("N=5 S1=55860; M=3 S2=34000", &line, 1_000);
    let line = Line {
        drafters: (3, constant(32_000)),
        steps: Some((4, Barrier::None, Span::from_ns(8_000 * UNIT))),
        ..line
    };
    makespan_is_exact("N=5 S1=55860; M=3 S2=32000 + 8000", &line, 1_000);
}

/// The bound counts the optimizer step, no run exceeds it, and a deep queue comes within a tenth of a percent of it.
#[test]
fn a_saturated_line_runs_at_the_bound() {
    let exact = exact("saturation_bound", "", "throughput_per_s");
    for barrier in [Barrier::None, Barrier::All] {
        let line = Line {
            steps: Some((4, barrier, Span::from_ms(8))),
            prefetch: 1,
            ..Line::new(
                (5, Law::constant(55.86)),
                Some(48),
                (3, Law::constant(32.0)),
            )
        };
        let run = run(&line, 12_000, Seed(1));
        let bound = run.bound.tokens_per_s();
        assert!(
            (bound / exact - 1.0).abs() < 1e-9,
            "{barrier:?}: the bound is {bound}, exact {exact}"
        );
        let share = run.metrics.run_tokens_per_s() / bound;
        assert!(
            (0.999..=1.0).contains(&share),
            "{barrier:?}: {share} of the bound"
        );
    }
}
