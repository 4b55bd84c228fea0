//! One point looked at from all sides.

use super::memory::{Worst, worst};
use super::outline::Outline;
use crate::scenario::Case;
use shared::policy::{Admission, Policy, Release, Severity, check};
use sim::{Bound, Links, Overflow, Resolved, RunError, Work, prepare};
use std::sync::Arc;

/// What was found of one point.
#[derive(Debug, Default)]
pub(super) struct Examined {
    /// Why it cannot be set up; each begins with its key.
    pub(super) errors: Vec<String>,
    /// What is doubtful; each begins with its key.
    pub(super) warnings: Vec<String>,
    /// Places whose memory does not suffice at worst.
    pub(super) overflow: Vec<Overflow>,
    /// What it would be, if it can be set up.
    pub(super) found: Option<Found>,
}

/// A point that can be set up.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) outline: Outline,
    pub(super) bound: Bound,
    pub(super) memory: Worst,
    pub(super) depth: Depth,
}

/// Slots there are, and slots that keep everybody busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Depth {
    /// Cap on all slots, however it is written.
    pub(super) slots: Option<u32>,
    /// Slots below which a worker must wait even when all others keep pace.
    pub(super) busy_min: u32,
}

/// Examines points; neighbours with the same work share it.
#[derive(Default)]
pub(super) struct Examiner {
    last: Option<Prepared>,
}

/// The work of a point, and what it was made of.
struct Prepared {
    resolved: Resolved,
    lengths: Arc<Vec<u32>>,
    work: Result<Work, RunError>,
}

impl Examiner {
    pub(super) fn examine(&mut self, case: &Case) -> Examined {
        let resolved = case.file.resolved();
        let mut examined = Examined::default();
        let work = match self.work(&resolved, case) {
            Ok(work) => work,
            Err(error) => {
                examined.errors.push(error.to_string());
                return examined;
            }
        };
        for finding in check(&case.file.policy, &work.facts) {
            let line = format!("policy.{}: {}", finding.key, finding.message);
            match finding.severity {
                Severity::Error => examined.errors.push(line),
                Severity::Warning => examined.warnings.push(line),
            }
        }
        if let Err(error) = Links::new(&case.file.hardware, &case.file.policy) {
            examined.errors.push(error.to_string());
        }
        let plan = match sim::plan(&resolved, &work) {
            Ok(plan) => plan,
            Err(RunError::Policy(_)) => return examined, // among the findings
            Err(error) => {
                examined.errors.push(error.to_string());
                return examined;
            }
        };
        let policy = &case.file.policy;
        let outline = Outline::of(case, &work, &plan);
        let memory = worst(case, &plan, &work.formation.edges);
        let depth = Depth::of(policy);
        examined.warnings.extend(outline.warnings(case));
        examined.warnings.extend(depth.warning(policy));
        examined.warnings.extend(memory.warning());
        examined.overflow = memory.overflow(&case.file.hardware, policy);
        examined.found = Some(Found {
            bound: Bound::of(
                &plan,
                &work.service,
                policy.targets,
                policy.drafters,
                outline.step_size,
            ),
            outline,
            memory,
            depth,
        });
        examined
    }

    /// The work of a point. It does not depend on the policy, so the last one's often serves.
    fn work(&mut self, resolved: &Resolved, case: &Case) -> Result<Work, RunError> {
        if let Some(last) = &self.last
            && Arc::ptr_eq(&last.lengths, &case.lengths)
            && last.resolved.seed == resolved.seed
            && last.resolved.workload == resolved.workload
            && last.resolved.training == resolved.training
            && last.resolved.model == resolved.model
            && last.resolved.costs == resolved.costs
        {
            return last.work.clone();
        }
        let work = prepare(resolved, &case.lengths);
        self.last = Some(Prepared {
            resolved: resolved.clone(),
            lengths: Arc::clone(&case.lengths),
            work: work.clone(),
        });
        work
    }
}

impl Depth {
    fn of(policy: &Policy) -> Self {
        let (targets, drafters) = (u32::from(policy.targets), u32::from(policy.drafters));
        let by_drafter = policy
            .depth_per_drafter
            .map(|depth| depth.saturating_mul(drafters));
        // Under reserve a slot is held during the forward; under release = "trained" during training.
        let of_targets = match policy.admission {
            Admission::Reserve => targets,
            Admission::Block => 0,
        };
        let of_drafters = match policy.release {
            Release::Trained => drafters.saturating_mul(1 + u32::from(policy.prefetch)),
            Release::Taken | Release::Fetched => 0,
        };
        Self {
            slots: policy.depth_total.into_iter().chain(by_drafter).min(),
            busy_min: of_targets + of_drafters,
        }
    }

    fn warning(&self, policy: &Policy) -> Option<String> {
        let slots = self.slots.filter(|&slots| slots < self.busy_min)?;
        let key = match policy.depth_total {
            Some(total) if total == slots => "depth_total",
            _ => "depth_per_drafter",
        };
        Some(format!(
            "policy.{key}: {slots} slots in all cannot keep {} targets and {} drafters busy, which hold {} at once; allow at least {}",
            policy.targets, policy.drafters, self.busy_min, self.busy_min
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::Depth;
    use shared::policy::preset;

    #[test]
    fn slots_must_reach_all_workers_that_hold_one() {
        let mut policy = preset("composed").unwrap();
        let depth = Depth::of(&policy);
        assert_eq!((depth.slots, depth.busy_min), (Some(12), 8));
        assert_eq!(depth.warning(&policy), None);
        policy.depth_total = Some(7);
        let warning = Depth::of(&policy).warning(&policy).unwrap();
        assert_eq!(
            warning,
            "policy.depth_total: 7 slots in all cannot keep 5 targets and 3 drafters busy, which hold 8 at once; allow at least 8"
        );
        let staged = preset("staged-fifo").unwrap();
        assert_eq!(Depth::of(&staged).slots, Some(60));
        assert_eq!(Depth::of(&staged).busy_min, 0);
    }
}
