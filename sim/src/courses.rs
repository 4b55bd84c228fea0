//! Points that go the same way are simulated once.
//!
//! A cap that never stood in the way might as well have been another one that would not have: of two points that differ in nothing but
//! such caps, one run tells all about both. Where depth is swept, most points beyond the few slots that a run really uses are of this
//! kind. The result is exact and does not depend on which of them was simulated.

use crate::course::Course;
use crate::links::Links;
use crate::run::{Nobody, Outcome, Resolved, RunError, Work, plan};
use shared::id::Bytes;
use shared::metrics::Detail;
use shared::policy::Policy;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Courses of one work in which no cap stood in the way, by all else that decides them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Courses(Arc<Mutex<HashMap<String, Arc<Free>>>>);

/// A course without a refusal, and under which policy.
#[derive(Debug)]
struct Free {
    policy: Policy,
    course: Course,
}

impl Courses {
    /// The course of a point whose microbatches have at most `largest` bytes: a known one that goes for it too, else what `simulate`
    /// finds.
    pub(crate) fn get(
        &self,
        point: &Resolved,
        largest: Bytes,
        simulate: impl FnOnce() -> Course,
    ) -> Course {
        let without_caps = point.policy.without_caps();
        let key = format!("{without_caps:?}|{:?}|{:?}", point.hardware, point.faults);
        let courses = || self.0.lock().expect("no thread panicked");
        let known = courses().get(&key).cloned();
        if let Some(free) = known
            && free
                .course
                .most
                .goes_alike(&free.policy, &point.policy, largest)
        {
            return free.course.clone();
        }
        let course = simulate();
        if course
            .most
            .goes_alike(&point.policy, &without_caps, largest)
        {
            let policy = point.policy.clone();
            let course = course.clone();
            courses().insert(key, Arc::new(Free { policy, course }));
        }
        course
    }
}

/// Simulates a point without watching, or takes the course of another one that went the same way. What grows with the length of the
/// run is left out.
pub(crate) fn run_or_share(point: &Resolved, work: &Work) -> Result<Outcome, RunError> {
    let plan = plan(point, work)?;
    let links = Links::new(&point.hardware, &point.policy)?;
    let course = work.courses.get(point, work.facts.bytes_max, || {
        let detail = Detail::default();
        let mut course = Course::simulate(point, work, (&plan, links), detail, &mut Nobody);
        course.metrics.forget_steps();
        course
    });
    Ok(course.conclude(point, work, &plan))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::{Point, simulate_once};
    use crate::works::Works;
    use crate::works::tests::point;

    /// What the points give, each from work of its own or all from the same.
    fn outcomes(points: &[Point], share: bool) -> Vec<String> {
        let runs = || points.iter().map(|point| (point, 0));
        let all = Works::expecting(runs());
        let outcome = |(point, replication)| {
            let alone = Works::default();
            let works = if share { &all } else { &alone };
            format!("{:?}", simulate_once(point, replication, works))
        };
        runs().map(outcome).collect()
    }

    #[test]
    fn a_shared_course_is_the_one_the_point_would_have_taken() {
        let mut base = point("composed");
        base.workload.samples = 4_000;
        let lengths = Arc::new(crate::draw_lengths(&base.workload, base.seed).unwrap());
        for preset in ["composed", "bucketed", "drafter-queues", "staged-fifo"] {
            for drafters in [2, 3] {
                let depths = (1..=30).rev().chain(1..=30).map(|depth| {
                    let mut resolved = base.clone();
                    resolved.policy = point(preset).policy;
                    resolved.policy.drafters = drafters;
                    resolved.policy.depth_total = Some(depth);
                    let lengths = Arc::clone(&lengths);
                    Point { resolved, lengths }
                });
                let points: Vec<Point> = depths.collect();
                assert_eq!(
                    outcomes(&points, true),
                    outcomes(&points, false),
                    "{preset}"
                );
            }
        }
    }

    #[test]
    fn points_that_no_cap_hinders_are_simulated_once_and_others_each() {
        let mut base = point("composed");
        base.workload.samples = 4_000;
        let lengths = crate::draw_lengths(&base.workload, base.seed).unwrap();
        let work = crate::prepare(&base, &lengths).unwrap();
        let with_depth = |depth| {
            let mut point = base.clone();
            point.policy.depth_total = depth;
            point
        };
        let most = run_or_share(&with_depth(None), &work)
            .unwrap()
            .metrics
            .peaks
            .slots;
        let is_known = |depth| {
            let point = with_depth(depth);
            let mut is_known = true;
            work.courses.get(&point, work.facts.bytes_max, || {
                is_known = false;
                let plan = plan(&point, &work).expect("a plan");
                let links = Links::new(&point.hardware, &point.policy).expect("a link");
                let detail = Detail::default();
                Course::simulate(&point, &work, (&plan, links), detail, &mut Nobody)
            });
            is_known
        };
        assert!(is_known(Some(most + 1)) && is_known(Some(1_000)) && is_known(None));
        assert!(!is_known(Some(most)) && !is_known(Some(most - 1)));
    }
}
