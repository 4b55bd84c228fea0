//! Optimizer steps as barriers: a step ends with the slowest drafter.

use super::line::{Law, Line, Run};
use super::{WIDTH, busy_drafters, holds};
use shared::policy::Barrier;
use shared::time::Span;

/// Three drafters that never lack work: targets take next to no time, and a drafter has its next microbatch in hand.
fn line(grad_accum: u32) -> Line {
    Line {
        steps: Some((grad_accum, Barrier::All, Span::ZERO)),
        prefetch: 1,
        ..Line::new(
            (1, Law::constant(1e-6)),
            Some(24),
            (3, Law::exponential(1.0)),
        )
    }
}

fn mean_step(run: &Run) -> f64 {
    run.trained.as_ns() as f64 / 1e6 / f64::from(run.metrics.steps)
}

#[test]
fn a_step_lasts_as_long_as_its_slowest_drafter() {
    let one = "M=3 drafters; 1 exponential";
    holds(
        "barrier_step",
        one,
        &line(1),
        200_000,
        WIDTH,
        &[("mean_step", 0.0, &mean_step)],
    );
    let four = "M=3 drafters; 4 exponential";
    holds(
        "barrier_step",
        four,
        &line(4),
        400_000,
        WIDTH,
        &[
            ("mean_step", 0.0, &mean_step),
            ("barrier_efficiency", 0.0, &busy_drafters),
        ],
    );
}
