//! What the same GPUs would give if each of them held a target and a drafter and took turns: an estimate by arithmetic.
//!
//! Every GPU runs a microbatch's forward and trains on it at once, so no hidden states travel or wait. What remains of dispatch is the
//! barrier: a step's microbatches are spread over all GPUs, longest first, each to the GPU that is free first. Time for switching
//! between the two models is not counted.

use crate::memory::Part;
use crate::run::{Resolved, RunError, Work, plan};
use crate::service::ServiceTimes;
use shared::id::Bytes;
use shared::plan::{Microbatch, Plan};
use shared::time::Span;
use std::cmp::Reverse;

/// The estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Colocated {
    /// GPUs that take turns: those of the policy's targets and drafters.
    pub gpus: u16,
    /// Microbatches of an optimizer step, as the policy has them.
    pub step: u32,
    /// Throughput with these steps. (tok/s)
    pub tokens_per_s: f64,
    /// Microbatches of a step of `grad_accum` on each GPU.
    pub wide_step: u32,
    /// Throughput with these wider steps, which change what is trained. (tok/s)
    pub wide_tokens_per_s: f64,
    /// Memory of each GPU: both models, the activations of the one that computes, one microbatch of hidden states.
    pub gpu: Part,
    /// Memory that a GPU has.
    pub there: Bytes,
}

impl Colocated {
    /// The estimate for a point.
    ///
    /// # Errors
    /// As [`plan`]: a point that cannot be simulated has none.
    pub fn of(point: &Resolved, work: &Work) -> Result<Self, RunError> {
        let plan = plan(point, work)?;
        let policy = &point.policy;
        let gpus = policy.targets + policy.drafters;
        let step = point.training.grad_accum * u32::from(policy.drafters);
        let wide_step = point.training.grad_accum * u32::from(gpus);
        let service = &work.service;
        Ok(Self {
            gpus,
            step,
            tokens_per_s: throughput(&plan, service, gpus, &steps(&plan, step)),
            wide_step,
            wide_tokens_per_s: throughput(&plan, service, gpus, &chunks(&plan, wide_step)),
            gpu: memory(point, &plan),
            there: point.hardware.gpu_memory.bytes(),
        })
    }

    /// Whether both models fit one GPU.
    pub fn fits(&self) -> bool {
        self.gpu.total() <= self.there
    }
}

/// The plan's own steps, or chunks of `size` where it has none.
fn steps(plan: &Plan, size: u32) -> Vec<&[Microbatch]> {
    if !plan.is_composed() {
        return chunks(plan, size);
    }
    let of_step = |step: &shared::plan::PlannedStep| {
        &plan.microbatches[step.microbatches.start as usize..step.microbatches.end as usize]
    };
    plan.steps.iter().map(of_step).collect()
}

fn chunks(plan: &Plan, size: u32) -> Vec<&[Microbatch]> {
    plan.microbatches.chunks(size.max(1) as usize).collect()
}

fn throughput(plan: &Plan, service: &ServiceTimes, gpus: u16, steps: &[&[Microbatch]]) -> f64 {
    let step = |step: &&[Microbatch]| {
        let spans = step.iter().map(|m| service.forward(m) + service.train(m));
        packed(spans.collect(), gpus) + service.apply()
    };
    let all: Span = steps.iter().map(step).sum();
    if all == Span::ZERO {
        return 0.0;
    }
    plan.tokens().0 as f64 / (all.as_ns() as f64 / 1e9)
}

/// When the last of `gpus` is done, if each piece, longest first, goes to the one that is free first.
fn packed(mut spans: Vec<Span>, gpus: u16) -> Span {
    spans.sort_unstable_by_key(|&span| Reverse(span));
    let mut ends = vec![Span::ZERO; usize::from(gpus.max(1))];
    for span in spans {
        let first = ends.iter_mut().min().expect("there is a GPU");
        *first += span;
    }
    ends.into_iter().max().unwrap_or_default()
}

fn memory(point: &Resolved, plan: &Plan) -> Part {
    let model = &point.model;
    let target = model.target_activations.bytes();
    let drafter = model.drafter_activations.bytes();
    Part {
        weights: model.target_weights.bytes() + model.drafter_state.bytes(),
        activations: target.max(drafter),
        overhead: model.process_overhead.bytes(),
        hidden: plan.bytes_max(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_go_longest_first_to_whoever_is_free() {
        let spans = |ms: &[u64]| ms.iter().map(|&ms| Span::from_ns(ms)).collect::<Vec<_>>();
        assert_eq!(packed(spans(&[3, 3, 2, 2, 2]), 2), Span::from_ns(7));
        assert_eq!(packed(spans(&[5]), 8), Span::from_ns(5));
        assert_eq!(packed(Vec::new(), 3), Span::ZERO);
    }
}
