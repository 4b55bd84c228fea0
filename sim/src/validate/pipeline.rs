//! A small pipeline that was simulated by other frameworks, replayed to the nanosecond.
//!
//! 5 targets with recorded service times, a store of 6 buckets that shares a capacity of 12 and blocks after service, 3 drafters that take
//! round robin with one pointer, 32 ms each, and an 8 ms optimizer step of a drafter's own after every fourth. The five integers below are
//! what a hand-written loop, two discrete-event frameworks in Rust and two in Python agree on.

use crate::engine::{Machine, simulate};
use crate::faults::FaultList;
use crate::links::Links;
use crate::service::ServiceTimes;
use shared::core::{Action, Activity, Core, Event, Outcome};
use shared::draw::Seed;
use shared::id::{BucketId, Bytes, DrafterId, TargetId};
use shared::plan::{Edges, FormationBuilder, MixRule, OrderSpec, Ordering, Plan, Tail};
use shared::policy::{Barrier, Placement, Policy, Release, Transport, preset};
use shared::time::{Span, Time};
use std::sync::Arc;

/// The five integers that all implementations of a pipeline of 5 targets and 3 drafters must agree on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    /// Until the last microbatch counted is trained. (ns)
    pub makespan: u64,
    /// Time for which targets held hidden states without a slot. (ns)
    pub blocked: u64,
    /// Time for which drafters lacked work. (ns)
    pub starved: u64,
    /// The integral of slots over time. (slots x ns)
    pub area: u64,
    /// Optimizer steps.
    pub steps: u64,
}

/// The five integers.
pub(super) const EXPECTED: Checksum = Checksum {
    makespan: 228_992_358_205,
    blocked: 32_180_257_656,
    starved: 6_939_259_346,
    area: 1_633_271_861_776,
    steps: 4_999,
};

const MICROBATCHES: u32 = 20_000;

const TARGETS: usize = 5;

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
            let now = match i.checked_sub(TARGETS) {
                None => core.target_activity(TargetId::from_index(i)),
                Some(d) => core.drafter_activity(DrafterId::from_index(d)),
            };
            let (before, since) = self.workers[i];
            if now != before {
                let span = (at - since).as_ns();
                match before {
                    Activity::Blocked => self.sum.blocked += span,
                    Activity::Starved if i >= TARGETS => self.sum.starved += span,
                    _ => {}
                }
                self.workers[i] = (now, at);
            }
        }
    }
}

impl Checksum {
    /// Runs `core` on `machine`, and sums up to the `until`-th microbatch trained.
    pub fn of(core: &mut Core, machine: Machine<'_>, until: u32) -> Self {
        let mut counter = Counter {
            until,
            trained: 0,
            sum: Self::default(),
            workers: vec![(Activity::Starved, Time::ZERO); TARGETS + 3],
            waiting: (0, Time::ZERO),
        };
        let mut observe = |at: Time, event: &Event, _: &[Action], core: &Core| {
            counter.record(at, event, core);
        };
        simulate(core, machine, &mut observe);
        counter.sum
    }
}

fn policy() -> Policy {
    Policy {
        depth_total: Some(12),
        release: Release::Taken,
        placement: Placement::Target,
        transport: Transport::Local,
        barrier: Barrier::None,
        prefetch: 0,
        ..preset("bucketed").expect("a preset")
    }
}

/// Runs the pipeline and sums up.
pub(super) fn replay() -> Checksum {
    let words: Vec<u64> = include_bytes!("../../tests/data/pipeline.bin")
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let edges = Edges::given(vec![1, 2, 3, 4, 5, 6]).expect("rising edges");
    let mut builder = FormationBuilder::new(edges, Bytes(1));
    for word in &words {
        let bucket = (word & 7) as u8;
        builder
            .push(BucketId(bucket), 1, u32::from(bucket) + 1)
            .expect("fits its bucket");
    }
    let formation = builder.build().expect("work");
    let forward = words.iter().map(|word| Span::from_ns(word >> 3)).collect();
    let train = vec![Span::from_ms(32); words.len()];
    let service = ServiceTimes::given(forward, train, Span::from_ms(8));
    let plan = Plan::order(
        &formation,
        &OrderSpec {
            ordering: Ordering::AsFormed,
            drafters: 3,
            grad_accum: 4,
            tail: Tail::Short,
            mix: MixRule::default(),
            assign: false,
            train_cost: vec![Span::ZERO; 6],
            seed: Seed(0),
        },
    );
    let mut core = Core::new(Arc::new(plan), policy(), 4, Seed(0));
    let machine = Machine {
        service: &service,
        links: Links::none(),
        devices: crate::Devices::none(),
        faults: FaultList::default(),
    };
    Checksum::of(&mut core, machine, MICROBATCHES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pipeline_of_other_frameworks_is_replayed_to_the_nanosecond() {
        assert_eq!(replay(), EXPECTED);
    }
}
