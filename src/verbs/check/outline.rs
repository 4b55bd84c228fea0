//! A plan in a few numbers: how much work, in which buckets, how well its steps mix.

use crate::scenario::Case;
use shared::plan::Plan;
use sim::Work;

/// A plan's numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outline {
    pub(super) microbatches: usize,
    /// Samples in them, over all epochs.
    pub(super) samples: u64,
    /// Optimizer steps, the short one at the end included.
    pub(super) steps: usize,
    /// Microbatches in a full step.
    pub(super) step_size: u32,
    /// Microbatches in steps that are not full.
    pub(super) tail: u64,
    /// Share of the computed tokens that are padding.
    pub(super) padding: f64,
    /// Upper edge, microbatches and samples of each bucket.
    pub(super) buckets: Vec<(u32, usize, u64)>,
    /// Samples left out by the tail rule.
    pub(super) dropped: u64,
    /// Samples longer than the last edge, left out.
    pub(super) over_long: usize,
    /// How well steps mix, where they are composed.
    pub(super) mixing: Option<PlannedMixing>,
}

/// How well a composed plan's full steps mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PlannedMixing {
    /// Fewest distinct buckets in a full step.
    pub(super) distinct_min: u32,
    /// Total variation distance of a full step's bucket mix from the plan's, on average.
    pub(super) tv_mean: f64,
    /// The same at worst.
    pub(super) tv_max: f64,
    /// Steps recorded as exceptions from the mixing rule.
    pub(super) exceptions: usize,
}

impl Outline {
    pub(super) fn of(case: &Case, work: &Work, plan: &Plan) -> Self {
        let step_size = case.file.training.grad_accum * u32::from(case.file.policy.drafters);
        let full = step_size as usize;
        let short = |count: usize| if count < full { count as u64 } else { 0 };
        let (steps, tail) = if plan.is_composed() {
            let sizes = plan.steps.iter().map(|step| step.microbatches.len());
            (plan.steps.len(), sizes.map(short).sum())
        } else {
            let count = plan.microbatches.len();
            (count.div_ceil(full), (count % full) as u64)
        };
        let padded: u64 = plan.microbatches.iter().map(|m| m.padded.0).sum();
        let mut buckets: Vec<_> = work
            .formation
            .edges
            .as_slice()
            .iter()
            .map(|&edge| (edge, 0, 0))
            .collect();
        for microbatch in &plan.microbatches {
            let bucket = &mut buckets[microbatch.bucket.index()];
            bucket.1 += 1;
            bucket.2 += u64::from(microbatch.sample_count());
        }
        Self {
            microbatches: plan.microbatches.len(),
            samples: buckets.iter().map(|bucket| bucket.2).sum(),
            steps,
            step_size,
            tail,
            padding: 1.0 - plan.tokens().0 as f64 / padded.max(1) as f64,
            buckets,
            dropped: plan
                .dropped
                .iter()
                .map(|m| u64::from(m.sample_count()))
                .sum(),
            over_long: plan.over_long.len(),
            mixing: plan.is_composed().then(|| PlannedMixing::of(plan, full)),
        }
    }

    /// What is doubtful about a plan; each begins with its key.
    pub(super) fn warnings(&self, case: &Case) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.microbatches < self.step_size as usize {
            warnings.push(format!(
                "workload: {} microbatches do not fill one optimizer step of {}; give more samples, or lower training.grad_accum",
                self.microbatches, self.step_size
            ));
        }
        let Some(mixing) = &self.mixing else {
            return warnings;
        };
        if let Some(max) = case.search.mix_tv_max.filter(|&max| mixing.tv_max > max) {
            warnings.push(format!(
                "search.mix_tv_max: {max} is below the plan's worst step, {:.3}, so the search leaves policy \"{}\" out; raise it, or raise training.grad_accum",
                mixing.tv_max, case.file.policy.name
            ));
        }
        let asked = case.search.mix_step_min.map_or(0, u32::from);
        if mixing.distinct_min < asked {
            warnings.push(format!(
                "search.mix_step_min: {asked} is above the plan's worst step, {}, so the search leaves policy \"{}\" out; lower it, or raise policy.mix_step_min",
                mixing.distinct_min, case.file.policy.name
            ));
        }
        warnings
    }
}

impl PlannedMixing {
    fn of(plan: &Plan, full: usize) -> Self {
        let counts = &plan.bucket_counts;
        let all = plan.microbatches.len().max(1) as f64;
        let mut distinct_min = u32::MAX;
        let mut distances = Vec::new();
        for step in &plan.steps {
            let range = step.microbatches.start as usize..step.microbatches.end as usize;
            if range.len() < full {
                continue;
            }
            let mut held = vec![0_u32; counts.len()];
            for microbatch in &plan.microbatches[range.clone()] {
                held[microbatch.bucket.index()] += 1;
            }
            distinct_min = distinct_min.min(held.iter().filter(|&&count| count > 0).count() as u32);
            let share = |count: u32, of: f64| f64::from(count) / of;
            let apart = held.iter().zip(counts);
            let apart = apart.map(|(&h, &c)| (share(h, range.len() as f64) - share(c, all)).abs());
            distances.push(apart.sum::<f64>() / 2.0);
        }
        Self {
            distinct_min: if distances.is_empty() {
                0
            } else {
                distinct_min
            },
            tv_mean: distances.iter().sum::<f64>() / distances.len().max(1) as f64,
            tv_max: distances.iter().copied().fold(0.0, f64::max),
            exceptions: plan.steps.iter().filter(|s| s.exception.is_some()).count(),
        }
    }
}
