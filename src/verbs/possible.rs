//! Whether an event can happen to a core in its present state.
//!
//! The core believes its driver and panics on events that nothing led to, since from a driver they are bugs. A trace is input, so
//! its events are checked first.

use shared::core::{Core, Event, Group, Phase, Presence, Status, TargetTask};
use shared::policy::Barrier;
use shared::time::Time;

/// Why `event` cannot happen at `at`, or `None` when it can.
pub(crate) fn impossible(core: &Core, at: Time, event: &Event) -> Option<&'static str> {
    let state = core.state();
    if at < state.now {
        return Some("it is earlier than the record before it");
    }
    let is_new = state.phase == Phase::New;
    if is_new != (*event == Event::Started) {
        return Some(if is_new {
            "the run has not begun"
        } else {
            "the run has begun before"
        });
    }
    let unless = |is_possible: bool, reason| (!is_possible).then_some(reason);
    match *event {
        Event::Started | Event::StopAsked => None,
        Event::ForwardEnded {
            target, microbatch, ..
        } => unless(
            state
                .targets
                .get(target.index())
                .is_some_and(|t| t.task == TargetTask::Forward(microbatch)),
            "no such forward is under way",
        ),
        Event::StageEnded { microbatch, .. } => unless(
            state
                .lives
                .get(microbatch)
                .is_some_and(|life| life.status == Status::Staging),
            "no such copy is under way",
        ),
        Event::FetchEnded {
            drafter,
            microbatch,
            ..
        } => unless(
            state
                .drafters
                .get(drafter.index())
                .is_some_and(|d| d.fetching == Some(microbatch)),
            "no such copy is under way",
        ),
        Event::TrainEnded {
            drafter,
            microbatch,
            ..
        } => unless(
            state
                .drafters
                .get(drafter.index())
                .is_some_and(|d| d.training == Some(microbatch)),
            "no such training is under way",
        ),
        Event::StepApplied { step, group } => {
            let is_applying = match (group, core.policy().barrier) {
                (Group::All, Barrier::All) => {
                    step == state.step && state.drafters.iter().any(|d| d.applying)
                }
                (Group::One(drafter), Barrier::None) => state
                    .drafters
                    .get(drafter.index())
                    .is_some_and(|d| d.applying),
                (Group::All, Barrier::None) | (Group::One(_), Barrier::All) => false,
            };
            unless(is_applying, "no such optimizer step is under way")
        }
        Event::WakeDue => unless(
            state.wake.is_some_and(|due| due <= at),
            "no wake-up was asked for",
        ),
        Event::TargetJoined(target) => unless(
            state.targets.get(target.index()).is_some_and(|t| {
                t.presence == Presence::Lost && t.task == TargetTask::Idle && t.copies_out == 0
            }),
            "no such target was lost, or it has work under way",
        ),
        Event::TargetLost(target) => unless(
            state
                .targets
                .get(target.index())
                .is_some_and(|t| t.presence == Presence::Present),
            "no such target is there",
        ),
        Event::DrafterJoined(drafter) => unless(
            state.drafters.get(drafter.index()).is_some_and(|d| {
                d.presence == Presence::Lost
                    && d.training.is_none()
                    && d.fetching.is_none()
                    && !d.applying
            }),
            "no such drafter was lost, or it has work under way",
        ),
        Event::DrafterLost(drafter) => unless(
            state
                .drafters
                .get(drafter.index())
                .is_some_and(|d| d.is_present()),
            "no such drafter is there",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::impossible;
    use shared::core::{Actions, Core, Event, Outcome};
    use shared::draw::Seed;
    use shared::id::{Bytes, DrafterId, MicrobatchId, TargetId};
    use shared::plan::{
        Edges, FormSpec, Limits, MixRule, OrderSpec, Ordering, OverLong, Plan, Tail,
    };
    use shared::policy::preset;
    use shared::time::Time;
    use std::sync::Arc;

    fn core() -> Core {
        let form = FormSpec {
            edges: Edges::given(vec![8]).unwrap(),
            limits: Limits {
                token_budget: 8,
                batch_max: 1,
            },
            over_long: OverLong::Refuse,
            epochs: 1,
            bytes_per_token: Bytes(2),
            seed: Seed(1),
        };
        let order = OrderSpec {
            ordering: Ordering::Shuffled,
            drafters: 3,
            grad_accum: 1,
            tail: Tail::Short,
            mix: MixRule::default(),
            assign: false,
            train_cost: Vec::new(),
            seed: Seed(1),
        };
        let plan = Plan::form_and_order(&[8; 12], &form, &order).unwrap();
        Core::new(Arc::new(plan), preset("staged-fifo").unwrap(), 1, Seed(1))
    }

    #[test]
    fn events_that_nothing_led_to_are_refused_and_those_ordered_are_not() {
        let mut core = core();
        let forward = |target, microbatch| Event::ForwardEnded {
            target: TargetId(target),
            microbatch: MicrobatchId(microbatch),
            outcome: Outcome::Done,
        };
        let refused = |core: &Core, event| impossible(core, Time::from_ns(5), &event);
        assert_eq!(refused(&core, forward(0, 0)), Some("the run has not begun"));
        assert_eq!(refused(&core, Event::Started), None);
        core.on(Time::from_ns(5), Event::Started, &mut Actions::new());
        assert_eq!(
            refused(&core, Event::Started),
            Some("the run has begun before")
        );
        assert_eq!(refused(&core, forward(0, 0)), None);
        assert!(refused(&core, forward(0, 1)).is_some());
        assert!(refused(&core, forward(99, 0)).is_some());
        assert!(refused(&core, Event::WakeDue).is_some());
        assert!(refused(&core, Event::DrafterLost(DrafterId(3))).is_some());
        assert_eq!(refused(&core, Event::DrafterLost(DrafterId(2))), None);
        assert!(refused(&core, Event::TargetJoined(TargetId(0))).is_some());
        let early = impossible(&core, Time::from_ns(4), &Event::StopAsked);
        assert_eq!(early, Some("it is earlier than the record before it"));
    }
}
