//! The throughput that no policy can exceed.

use crate::service::ServiceTimes;
use crate::spec::{Hardware, Sharing};
use shared::plan::Plan;
use shared::policy::{DeviceMap, Policy};
use shared::time::Span;

/// The least times in which a plan's work can be done, by stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// All forwards, spread evenly over the targets.
    pub targets: Span,
    /// All trainings and optimizer steps: each step takes at least the mean over the drafters and at least its longest microbatch.
    pub drafters: Span,
    /// All work on the one GPU that all workers share, at the measured speeds; zero where they do not share one.
    pub device: Span,
    /// Real tokens of the plan. (tokens)
    pub tokens: u64,
    /// Samples of the plan.
    pub samples: u64,
}

/// What a bound comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// The targets' forwards.
    Targets,
    /// The drafters' trainings and optimizer steps.
    Drafters,
    /// Both together, on the GPUs that they share.
    Device,
}

impl Bottleneck {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        ["targets", "drafters", "device"][self as usize]
    }
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
            device: Span::ZERO,
            tokens: plan.tokens().0,
            samples: plan
                .microbatches
                .iter()
                .map(|m| u64::from(m.sample_count()))
                .sum(),
        }
    }

    /// The same where all workers of `policy` share one GPU of `hardware`.
    ///
    /// Each state of so many forwards and trainings under way does so much of either kind of work a second. The least time in which
    /// states can be mixed so that all work is done is the solution of a linear program with two constraints, so two states suffice.
    pub fn on_devices(
        self,
        plan: &Plan,
        service: &ServiceTimes,
        hardware: &Hardware,
        policy: &Policy,
        step_size: u32,
    ) -> Self {
        let Some(sharing) = &hardware.sharing else {
            return self;
        };
        let map = DeviceMap::of(policy, usize::from(hardware.gpus));
        if map.gpus() != 1 {
            return self;
        }
        let steps = if plan.is_composed() {
            plan.steps.len()
        } else {
            plan.microbatches.len().div_ceil(step_size.max(1) as usize)
        };
        let sum = |span: fn(&ServiceTimes, &shared::plan::Microbatch) -> Span| {
            let spans = plan.microbatches.iter().map(|m| span(service, m));
            spans.sum::<Span>().as_ns() as f64
        };
        let forwards = sum(ServiceTimes::forward);
        let trains = sum(ServiceTimes::train) + steps as f64 * service.apply().as_ns() as f64;
        let least = least_ns(sharing, (policy.targets, policy.drafters), forwards, trains);
        Self {
            device: Span::from_ns(least as u64),
            ..self
        }
    }

    /// What binds.
    pub fn bottleneck(&self) -> Bottleneck {
        if self.device > self.targets.max(self.drafters) {
            Bottleneck::Device
        } else if self.targets >= self.drafters {
            Bottleneck::Targets
        } else {
            Bottleneck::Drafters
        }
    }

    /// The bound. (tok/s)
    pub fn tokens_per_s(&self) -> f64 {
        per_second(
            self.tokens,
            self.targets.max(self.drafters).max(self.device),
        )
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

/// The least time in which a GPU does so much of both kinds of work, given as time alone. (ns)
fn least_ns(sharing: &Sharing, workers: (u16, u16), forwards: f64, trains: f64) -> f64 {
    if sharing.kernel_ratio.is_some() {
        // Whatever the shares, no state does more work than the best one.
        let totals = (0..=workers.0).flat_map(|i| (0..=workers.1).map(move |j| (i, j)));
        let most = totals
            .map(|(i, j)| {
                let (forward, train) = sharing.rates(i, j);
                f64::from(i) * forward + f64::from(j) * train
            })
            .fold(1.0, f64::max);
        return (forwards + trains) / most;
    }
    let mut states = Vec::new();
    for i in 0..=workers.0 {
        for j in 0..=workers.1 {
            let (forward, train) = sharing.rates(i, j);
            states.push((f64::from(i) * forward, f64::from(j) * train));
        }
    }
    let mut least = f64::INFINITY;
    for (at, &(a, b)) in states.iter().enumerate() {
        let alone = (forwards / a).max(trains / b);
        if alone.is_finite() {
            least = least.min(alone);
        }
        for &(c, d) in &states[..at] {
            // x (a, b) + y (c, d) = (forwards, trains)
            let det = a * d - b * c;
            let x = (forwards * d - trains * c) / det;
            let y = (a * trains - b * forwards) / det;
            if det != 0.0 && x >= 0.0 && y >= 0.0 {
                least = least.min(x + y);
            }
        }
    }
    least
}

fn per_second(amount: u64, span: Span) -> f64 {
    if span == Span::ZERO {
        0.0
    } else {
        amount as f64 / (span.as_ns() as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SharedRate;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }

    #[test]
    fn a_shared_gpu_is_bound_by_the_sum_of_both_kinds_of_work() {
        let even = Sharing::default();
        close(least_ns(&even, (1, 1), 60.0, 40.0), 100.0);
        close(least_ns(&even, (2, 1), 60.0, 40.0), 100.0);
        let faster = SharedRate {
            forwards: 1,
            trains: 1,
            forward_rate: 0.75,
            train_rate: 0.5,
        };
        let sharing = Sharing {
            rates: vec![faster],
            ..Sharing::default()
        };
        // Together until 40 of training are done in 80, when 60 of forwards are done too.
        close(least_ns(&sharing, (1, 1), 60.0, 40.0), 80.0);
        // Together for 80, then 15 of forwards alone.
        close(least_ns(&sharing, (1, 1), 75.0, 40.0), 95.0);
        // Company that costs more than it gives is no way to be faster.
        let slower = SharedRate {
            forward_rate: 0.3,
            train_rate: 0.3,
            ..faster
        };
        let sharing = Sharing {
            rates: vec![slower],
            ..Sharing::default()
        };
        close(least_ns(&sharing, (1, 1), 60.0, 40.0), 100.0);
    }
}
