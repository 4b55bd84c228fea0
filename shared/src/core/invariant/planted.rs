//! The test of the tests: each broken promise is reported, by its name.

use super::{RULES, check};
use crate::core::{Actions, Core, Event, Life, Outcome, Phase, Slot, State, Status, TargetTask};
use crate::draw::Seed;
use crate::id::{BucketId, Bytes, DrafterId, MicrobatchId, StepId, TargetId};
use crate::plan::{Edges, FormationBuilder, MixRule, OrderSpec, Ordering, Plan, Tail};
use crate::policy::{Policy, Queue, preset};
use crate::time::{Span, Time};
use std::sync::Arc;

/// A run of 3 targets and 2 drafters in the middle: m0 trained, m1 in training, m2 queued, m3 to m5 in the making.
fn running(name: &str) -> Core {
    let mut policy = Policy {
        targets: 3,
        drafters: 2,
        prefetch: 0,
        mix_step_min: 0,
        depth_total: Some(6),
        ..preset(name).expect("it exists")
    };
    if policy.queue != Queue::Composed {
        policy.depth_per_drafter = Some(3);
    }
    let mut builder = FormationBuilder::new(Edges::given(vec![1, 2]).unwrap(), Bytes(1));
    for i in 0..12 {
        let bucket = i % 2;
        builder
            .push(BucketId(bucket), 1, u32::from(bucket) + 1)
            .unwrap();
    }
    let spec = OrderSpec {
        ordering: if policy.queue == Queue::Composed {
            Ordering::Composed(policy.fill)
        } else {
            Ordering::AsFormed
        },
        drafters: 2,
        grad_accum: 2,
        tail: Tail::Short,
        mix: MixRule::default(),
        assign: true,
        train_cost: vec![Span::ZERO; 2],
        seed: Seed(1),
    };
    let plan = Arc::new(Plan::order(&builder.build().unwrap(), &spec));
    let mut core = Core::new(plan, policy, 2, Seed(1));
    let mut tell = |event| core.on(Time::ZERO, event, &mut Actions::new());
    tell(Event::Started);
    for t in [0, 1, 2] {
        tell(Event::ForwardEnded {
            target: TargetId(t),
            microbatch: MicrobatchId(t.into()),
            outcome: Outcome::Done,
        });
    }
    core
}

/// Drives on until a drafter has trained on something and something waits.
fn advanced(name: &str) -> Core {
    let mut core = running(name);
    for _ in 0..20 {
        let state = core.state();
        let stages = |&(_, life): &(MicrobatchId, &Life)| life.status == Status::Staging;
        let staging = state.lives.kept().find(stages).map(|(id, _)| id);
        let fetching = state
            .drafters
            .iter()
            .enumerate()
            .find_map(|(d, there)| Some((DrafterId::from_index(d), there.fetching?)));
        let trains = state.drafters[0].training;
        let outcome = Outcome::Done;
        let event = match (staging, fetching, trains) {
            (Some(microbatch), _, _) => Event::StageEnded {
                microbatch,
                outcome,
            },
            (_, Some((drafter, microbatch)), _) => Event::FetchEnded {
                drafter,
                microbatch,
                outcome,
            },
            (_, _, Some(microbatch)) if state.drafters[0].trained.is_empty() => Event::TrainEnded {
                drafter: DrafterId(0),
                microbatch,
                outcome,
            },
            _ => {
                // One more arrives than drafters can take.
                let forwards = state.targets.iter().enumerate();
                let Some((t, microbatch)) = forwards.into_iter().find_map(|(t, there)| match there
                    .task
                {
                    TargetTask::Forward(id) => Some((t, id)),
                    _ => None,
                }) else {
                    break;
                };
                if state.lanes.iter().any(|lane| lane.len() > 1) {
                    break;
                }
                Event::ForwardEnded {
                    target: TargetId::from_index(t),
                    microbatch,
                    outcome,
                }
            }
        };
        core.on(Time::ZERO, event, &mut Actions::new());
    }
    core
}

fn find(state: &State, status: Status) -> MicrobatchId {
    let found = state.lives.kept().find(|(_, life)| life.status == status);
    found
        .map(|(id, _)| id)
        .unwrap_or_else(|| panic!("something is {status:?}: {state:?}"))
}

/// A way to break a promise: (part of the promise, what to tamper with).
type Plant = (&'static str, fn(&mut State));

const PLANTS: [Plant; 22] = [
    ("is open, part of the weights", |s| s.open -= 1),
    ("untaken microbatches", |s| s.untaken += 1),
    ("untaken microbatches", |s| s.untaken_of_bucket.swap(0, 1)),
    ("to be done again", |s| {
        let trained = find(s, Status::Trained);
        s.again.insert(trained);
    }),
    ("those of the microbatches that have one", |s| {
        s.hs.slots.count += 1
    }),
    ("those of the microbatches that have one", |s| {
        s.hs.by_bucket[0].bytes += Bytes(1);
    }),
    ("while they wait for a drafter", |s| {
        let queued = find(s, Status::Queued);
        let bytes = Bytes(1 + u64::from(queued.0) % 2);
        release(&mut s.lives[queued]);
        s.hs.slots.sub(bytes);
        s.hs.by_bucket[queued.index() % 2].sub(bytes);
    }),
    ("bytes in every memory", |s| s.hs.at_host += Bytes(1)),
    ("bytes in every memory", |s| s.hs.alive.count -= 1),
    ("exactly while they are queued", |s| {
        s.lanes.iter_mut().for_each(|lane| lane.clear());
    }),
    ("in the order in which they came", |s| {
        s.lanes.iter_mut().for_each(|lane| lane.reverse());
    }),
    ("in no other", |s| s.drafters[0].training = None),
    ("in no other", |s| {
        let other = s.drafters[1].clone();
        s.drafters[0] = other;
    }),
    ("no more than it accumulates", |s| {
        let moved = s.drafters[0].trained.clone();
        let pending = [10, 11].map(MicrobatchId);
        s.drafters[0].trained = moved.into_iter().chain(pending).collect();
        for id in pending {
            s.lives[id].status = Status::Trained;
        }
        s.untaken -= 2;
        s.untaken_of_bucket.iter_mut().for_each(|left| *left -= 1);
        s.samples_in_flight += 2;
    }),
    ("is in their windows", |s| s.step_trained += 1),
    ("workers and links have begun", |s| s.in_flight -= 1),
    ("not yet counted out", |s| s.samples_in_flight += 1),
    ("listed once", |s| {
        s.idle_drafters = [DrafterId(1); 2].into_iter().collect()
    }),
    ("listed once", |s| s.holding.push(TargetId(0))),
    ("as many as counted", |s| s.drafters_present += 1),
    ("as many as counted", |s| s.drafters_training += 1),
    ("nothing is left", |s| {
        s.phase = Phase::Finished;
        s.idle_targets.clear();
        s.idle_drafters.clear();
    }),
];

fn release(life: &mut Life) {
    life.slot = Slot::None;
}

#[test]
fn every_planted_breach_is_reported_by_its_name() {
    let sound = advanced("bucketed");
    assert_eq!(check(&sound), Ok(()));
    for (part, tamper) in PLANTS {
        let mut broken = sound.clone();
        tamper(&mut broken.state);
        let told = check(&broken).expect_err(part);
        assert!(told.contains(part), "planted: {part}; told: {told}");
    }
}

#[test]
fn a_cap_that_is_exceeded_is_reported() {
    let mut core = advanced("bucketed");
    let used = core.state.hs.slots.count;
    core.policy.depth_total = Some(used - 1);
    core.caps = crate::core::caps::Caps::of(&core.policy);
    assert!(check(&core).unwrap_err().contains("under every cap"));
}

#[test]
fn a_step_out_of_order_is_reported() {
    let mut core = advanced("composed");
    assert_eq!(check(&core), Ok(()));
    core.state.step = StepId(1);
    assert!(
        check(&core)
            .unwrap_err()
            .contains("ahead of what was trained")
    );
}

#[test]
fn a_step_that_nobody_looked_for_is_reported() {
    let mut core = advanced("composed");
    core.sight = crate::core::sight::Sight::of(&core.plan, StepId(1));
    assert!(check(&core).unwrap_err().contains("in sight"));
}

#[test]
fn a_cursor_that_passed_over_work_is_reported() {
    let mut core = advanced("composed");
    core.state.drafters[0].cursor += 1;
    assert!(check(&core).unwrap_err().contains("at its next microbatch"));
}

#[test]
fn what_settling_left_undone_is_reported() {
    let mut core = advanced("composed");
    let is_idle = |t: &crate::core::TargetState| t.task == TargetTask::Idle;
    assert!(core.state.targets.iter().any(is_idle), "somebody waits");
    core.policy.depth_total = None;
    core.caps = crate::core::caps::Caps::of(&core.policy);
    assert!(check(&core).unwrap_err().contains("stays settled"));
}

#[test]
fn every_promise_is_broken_by_some_plant() {
    let by_hand = [
        "under every cap",
        "ahead of what was trained",
        "in sight",
        "at its next microbatch",
        "stays settled",
    ];
    for (rule, _) in RULES {
        let parts = PLANTS.iter().map(|(part, _)| *part).chain(by_hand);
        assert!(
            parts.clone().any(|part| rule.contains(part)),
            "no plant breaks: {rule}"
        );
    }
}
