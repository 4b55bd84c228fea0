//! The throughput that no policy can exceed.

use crate::service::ServiceTimes;
use shared::plan::Plan;
use shared::time::Span;

/// The least times in which a plan's work can be done, by stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// All forwards, spread evenly over the targets.
    pub targets: Span,
    /// All trainings and optimizer steps: each step takes at least the mean over the drafters and at least its longest microbatch.
    pub drafters: Span,
    /// Real tokens of the plan. (tokens)
    pub tokens: u64,
    /// Samples of the plan.
    pub samples: u64,
}

impl Bound {
    /// The bound of a plan whose steps hold `step_size` consecutive microbatches where they are not composed.
    pub fn of(
        plan: &Plan,
        service: &ServiceTimes,
        targets: u16,
        drafters: u16,
        step_size: u32,
    ) -> Self {
        let forwards: Span = plan.microbatches.iter().map(|m| service.forward(m)).sum();
        let step = |microbatches: &[shared::plan::Microbatch]| {
            let spans = microbatches.iter().map(|m| service.train(m));
            let longest = spans.clone().max().unwrap_or_default();
            let mean = spans.sum::<Span>().as_ns().div_ceil(u64::from(drafters));
            Span::from_ns(mean).max(longest) + service.apply()
        };
        let trainings = if plan.is_composed() {
            let ranges = plan.steps.iter().map(|s| {
                &plan.microbatches[s.microbatches.start as usize..s.microbatches.end as usize]
            });
            ranges.map(step).sum()
        } else {
            // Any grouping is possible here, so only the mean binds.
            let steps = plan.microbatches.len().div_ceil(step_size.max(1) as usize) as u64;
            let sum: Span = plan.microbatches.iter().map(|m| service.train(m)).sum();
            Span::from_ns(sum.as_ns() / u64::from(drafters) + steps * service.apply().as_ns())
        };
        Self {
            targets: Span::from_ns(forwards.as_ns() / u64::from(targets)),
            drafters: trainings,
            tokens: plan.tokens().0,
            samples: plan
                .microbatches
                .iter()
                .map(|m| u64::from(m.sample_count()))
                .sum(),
        }
    }

    /// The stage that binds: "targets" or "drafters".
    pub fn bottleneck(&self) -> &'static str {
        if self.targets >= self.drafters {
            "targets"
        } else {
            "drafters"
        }
    }

    /// The bound. (tok/s)
    pub fn tokens_per_s(&self) -> f64 {
        per_second(self.tokens, self.targets.max(self.drafters))
    }

    /// What the targets could feed. (tok/s)
    pub fn target_tokens_per_s(&self) -> f64 {
        per_second(self.tokens, self.targets)
    }

    /// What the drafters could train. (tok/s)
    pub fn drafter_tokens_per_s(&self) -> f64 {
        per_second(self.tokens, self.drafters)
    }
}

fn per_second(amount: u64, span: Span) -> f64 {
    if span == Span::ZERO {
        0.0
    } else {
        amount as f64 / (span.as_ns() as f64 / 1e9)
    }
}
