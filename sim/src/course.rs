//! How a run goes, and what that means for a point.

use crate::bound::Bound;
use crate::devices::Devices;
use crate::engine::{End, Machine, Observe, simulate};
use crate::faults::FaultList;
use crate::links::Links;
use crate::memory::Memory;
use crate::run::{Outcome, Resolved, Work};
use crate::stats::{WarmUp, relative_error, warm_up};
use shared::core::{Action, Core, Event, Most};
use shared::metrics::{Detail, Meter, Metrics, before_draining};
use shared::plan::Plan;
use shared::time::Time;
use std::sync::Arc;

/// How a run went.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    end: End,
    pub(crate) metrics: Metrics,
    warm_up: Option<WarmUp>,
    relative_error: Option<f64>,
    /// How near it came to the policy's caps.
    pub(crate) most: Most,
}

impl Course {
    /// Simulates a point on its plan and its links; `observer` sees every record.
    pub(crate) fn simulate(
        point: &Resolved,
        work: &Work,
        (plan, links): (&Arc<Plan>, Links),
        detail: Detail,
        observer: &mut impl Observe,
    ) -> Self {
        let grad_accum = point.training.grad_accum;
        let mut core = Core::new(
            Arc::clone(plan),
            point.policy.clone(),
            grad_accum,
            point.seed,
        );
        let mut meter = Meter::new(&core, detail);
        let machine = Machine {
            service: &work.service,
            links,
            devices: Devices::new(&point.hardware, &point.policy),
            faults: FaultList::new(&point.faults),
        };
        let mut both = |at: Time, event: &Event, actions: &[Action], core: &Core| {
            meter.observe(at, event, actions, core);
            observer.record(at, event, actions, core);
        };
        let end = simulate(&mut core, machine, &mut both);
        let mut metrics = meter.finish(&core);
        let warm_up = warm_up(&metrics.applied);
        if let Some(warm_up) = warm_up {
            metrics.cut_warm_up(warm_up.cut);
        }
        let counted = before_draining(&metrics.applied);
        let relative_error =
            warm_up.and_then(|w| relative_error(counted, metrics.steps_up_to(w.cut)));
        Self {
            end,
            metrics,
            warm_up,
            relative_error,
            most: *core.most(),
        }
    }

    /// What a course means for a point: its bound, and whether the memory there is suffices.
    pub(crate) fn conclude(self, point: &Resolved, work: &Work, plan: &Plan) -> Outcome {
        let step_size = point.training.grad_accum * u32::from(point.policy.drafters);
        let bound = Bound::of(
            plan,
            &work.service,
            point.policy.targets,
            point.policy.drafters,
            step_size,
        )
        .on_devices(
            plan,
            &work.service,
            &point.hardware,
            &point.policy,
            step_size,
        );
        let memory = Memory::at_peak(point, &self.metrics.peaks);
        let overflow = memory.overflow(&point.hardware, &point.policy);
        Outcome {
            end: self.end,
            metrics: self.metrics,
            warm_up: self.warm_up,
            relative_error: self.relative_error,
            bound,
            memory,
            overflow,
        }
    }
}
