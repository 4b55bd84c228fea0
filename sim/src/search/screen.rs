//! What arithmetic alone rules out: points that cannot be set up, and points whose bound is below what another one reaches.

use crate::bound::Bound;
use crate::run::{RunError, plan};
use crate::sweep::{Point, work_of};
use crate::works::Works;
use rayon::prelude::*;

/// The bound of each point on this very work, or why it cannot run. (tok/s)
pub(super) fn bounds(
    points: &[Point],
    replication: u32,
    works: &Works,
) -> Vec<Result<f64, RunError>> {
    points
        .par_iter()
        .map(|point| {
            let (resolved, work) = work_of(point, replication, works)?;
            let plan = plan(&resolved, &work)?;
            let policy = &resolved.policy;
            let step_size = resolved.training.grad_accum * u32::from(policy.drafters);
            let (targets, drafters) = (policy.targets, policy.drafters);
            let bound = Bound::of(&plan, &work.service, targets, drafters, step_size);
            Ok(bound.tokens_per_s())
        })
        .collect()
}
