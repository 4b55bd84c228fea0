//! Optimizer steps as barriers: a step ends with the slowest drafter.

use super::sampled;
use crate::validate::case::{Case, measure};
use crate::validate::line::{Law, Line};
use crate::validate::run::Run;
use shared::policy::Barrier;
use shared::time::Span;

pub(super) fn cases() -> Vec<Case> {
    let step = measure("mean_step", Run::mean_step).as_drawn();
    let busy = measure("barrier_efficiency", |r| r.busy_drafters() / r.drafters);
    let how = "barrier = all, with drafters that never lack work";
    vec![
        sampled(
            "barrier_step",
            "M=3 drafters; 1 exponential",
            how,
            line(1),
            1_000_000,
            vec![step],
        ),
        sampled(
            "barrier_step",
            "M=3 drafters; 4 exponential",
            how,
            line(4),
            1_000_000,
            vec![step, busy.out_of(1.0).as_drawn()],
        ),
    ]
}

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
