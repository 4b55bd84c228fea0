//! The five integers that all implementations of the pipeline agree on.

use super::Case;
use shared::core::{Action, Activity, Core, Event, Outcome};
use shared::id::{DrafterId, TargetId};
use shared::time::Time;
use sim::simulate;

/// What every implementation of the pipeline must agree on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checksum {
    /// Until the last microbatch counted is trained. (ns)
    pub(crate) makespan: u64,
    /// Targets' time blocked. (ns)
    pub(crate) blocked: u64,
    /// Drafters' time starved. (ns)
    pub(crate) starved: u64,
    /// The store's length over time. (microbatches x ns)
    pub(crate) area: u64,
    /// Optimizer steps.
    pub(crate) steps: u64,
}

/// Sums what has ended by the time the `until`-th microbatch is trained.
struct Counter {
    until: u32,
    trained: u32,
    sum: Checksum,
    workers: Vec<(Activity, Time)>,
    waiting: (u64, Time),
}

impl Counter {
    fn record(&mut self, at: Time, event: &Event, core: &Core) {
        if self.trained == self.until {
            return;
        }
        if matches!(
            event,
            Event::TrainEnded {
                outcome: Outcome::Done,
                ..
            }
        ) {
            self.trained += 1;
            self.sum.makespan = at.as_ns();
            if self.trained == self.until {
                return;
            }
        }
        // The store is summed up to its last change.
        let waiting = u64::from(core.state().hs.slots.count);
        if waiting != self.waiting.0 {
            self.sum.area += self.waiting.0 * (at - self.waiting.1).as_ns();
            self.waiting = (waiting, at);
        }
        self.sum.steps += u64::from(matches!(event, Event::StepApplied { .. }));
        for i in 0..self.workers.len() {
            let now = match i.checked_sub(5) {
                None => core.target_activity(TargetId::from_index(i)),
                Some(d) => core.drafter_activity(DrafterId::from_index(d)),
            };
            let (before, since) = self.workers[i];
            if now != before {
                let span = (at - since).as_ns();
                match before {
                    Activity::Blocked => self.sum.blocked += span,
                    Activity::Starved if i >= 5 => self.sum.starved += span,
                    _ => {}
                }
                self.workers[i] = (now, at);
            }
        }
    }
}

impl Checksum {
    /// The checksum of a case of 5 targets and 3 drafters, up to the `until`-th microbatch trained.
    pub(crate) fn of(case: &Case, until: u32) -> Self {
        let mut counter = Counter {
            until,
            trained: 0,
            sum: Self::default(),
            workers: vec![(Activity::Starved, Time::ZERO); 8],
            waiting: (0, Time::ZERO),
        };
        let mut observe = |at: Time, event: &Event, _: &[Action], core: &Core| {
            counter.record(at, event, core);
        };
        simulate(&mut case.core(), case.machine(), &mut observe);
        counter.sum
    }
}
