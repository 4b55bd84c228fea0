//! All interleavings of small cases: whatever order completions come in, every rule holds and everything ends.
//!
//! What can end next follows from the state alone, and time stands still, so a case is a finite graph of states. Each is visited once.

mod choices;

use crate::common::Work;
use choices::policies;
use shared::core::{Actions, Core, Event, Group, Outcome, Presence, Status, TargetTask, check};
use shared::id::{DrafterId, MicrobatchId, StepId, TargetId};
use shared::policy::{Barrier, Input, Placement, Policy, Queue, Release, Severity};
use shared::time::Time;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What may go wrong in a case, besides the order of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    /// Every piece of work may fail, as often as the policy retries and once more.
    Failures,
    /// One worker of each kind may be lost at any moment and come back at any later one.
    Losses,
    /// A stop may be asked for at any moment.
    Stop,
}

/// What a search went through.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    cases: u64,
    states: u64,
    transitions: u64,
    stalls: u64,
    ends: u64,
}

/// Losses and stops so far, which are part of what may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Spent {
    target: bool,
    drafter: bool,
    stop: bool,
}

struct Search<'a> {
    policy: &'a Policy,
    trouble: Trouble,
    must_end: bool,
    seen: HashSet<u64>,
    found: Found,
}

impl Search<'_> {
    fn run(mut self, core: Core) -> Found {
        let mut open = Vec::new();
        self.visit(&core, Spent::default(), &[Event::Started], &mut open);
        while let Some((core, spent)) = open.pop() {
            let events = enabled(&core);
            if events.is_empty() {
                self.at_rest(&core, spent);
            }
            self.visit(&core, spent, &events, &mut open);
            if self.trouble != Trouble::None && !core.is_finished() {
                self.make_trouble(&core, spent, &events, &mut open);
            }
        }
        self.found.cases = 1;
        self.found.states = self.seen.len() as u64;
        self.found
    }

    fn at_rest(&mut self, core: &Core, spent: Spent) {
        if core.is_finished() {
            self.found.ends += 1;
            assert!(core.stall().is_none());
            return;
        }
        let stall = core.stall();
        let text = stall.map(|s| s.to_string());
        let everybody = core
            .state()
            .targets
            .iter()
            .all(|t| t.presence == Presence::Present)
            && core.state().drafters.iter().all(|d| d.is_present());
        assert!(text.is_some(), "who rests says why: {:?}", core.state());
        assert!(
            !(self.must_end && everybody),
            "{text:?}\n{spent:?} {:?}\n{:?}",
            self.policy,
            core.state()
        );
        self.found.stalls += 1;
    }

    fn visit(
        &mut self,
        core: &Core,
        spent: Spent,
        events: &[Event],
        open: &mut Vec<(Core, Spent)>,
    ) {
        for &event in events {
            let mut next = core.clone();
            tell(&mut next, event);
            self.reached(next, spent, open);
        }
    }

    fn reached(&mut self, next: Core, spent: Spent, open: &mut Vec<(Core, Spent)>) {
        self.found.transitions += 1;
        if let Err(broken) = check(&next) {
            panic!("{broken}\n{:?}\n{:?}", self.policy, next.state());
        }
        let mut hasher = DefaultHasher::new();
        (next.state(), spent).hash(&mut hasher);
        if self.seen.insert(hasher.finish()) {
            open.push((next, spent));
        }
    }

    fn make_trouble(
        &mut self,
        core: &Core,
        spent: Spent,
        events: &[Event],
        open: &mut Vec<(Core, Spent)>,
    ) {
        let state = core.state();
        match self.trouble {
            Trouble::None => {}
            Trouble::Failures => {
                let failures: Vec<_> = events.iter().filter_map(failed).collect();
                self.visit(core, spent, &failures, open);
            }
            Trouble::Stop if !spent.stop => {
                let spent = Spent {
                    stop: true,
                    ..spent
                };
                self.visit(core, spent, &[Event::StopAsked], open);
            }
            Trouble::Stop => {}
            Trouble::Losses => {
                let (target, drafter) = (TargetId(0), DrafterId(0));
                let d = &state.drafters[0];
                match state.targets[0].presence {
                    Presence::Present if !spent.target => {
                        let spent = Spent {
                            target: true,
                            ..spent
                        };
                        self.lose(core, spent, Event::TargetLost(target), open);
                    }
                    Presence::Lost => self.visit(core, spent, &[Event::TargetJoined(target)], open),
                    Presence::Present | Presence::Stopped => {}
                }
                match d.presence {
                    Presence::Present if !spent.drafter => {
                        let spent = Spent {
                            drafter: true,
                            ..spent
                        };
                        self.lose(core, spent, Event::DrafterLost(drafter), open);
                    }
                    Presence::Lost if !d.applying => {
                        self.visit(core, spent, &[Event::DrafterJoined(drafter)], open);
                    }
                    Presence::Present | Presence::Lost | Presence::Stopped => {}
                }
            }
        }
    }

    /// A worker is lost, and all its open work fails at once.
    fn lose(&mut self, core: &Core, spent: Spent, loss: Event, open: &mut Vec<(Core, Spent)>) {
        let state = core.state();
        let at = |id: MicrobatchId| &state.lives[id];
        let is_hit = |event: &Event| match (loss, *event) {
            (Event::TargetLost(lost), Event::ForwardEnded { target, .. }) => target == lost,
            (Event::TargetLost(lost), Event::StageEnded { microbatch, .. }) => {
                at(microbatch).at_target == Some(lost)
            }
            (Event::TargetLost(lost), Event::FetchEnded { microbatch, .. }) => {
                self.policy.placement == Placement::Target && at(microbatch).at_target == Some(lost)
            }
            (Event::DrafterLost(lost), Event::StageEnded { microbatch, .. }) => {
                at(microbatch).at_drafter == Some(lost)
            }
            (
                Event::DrafterLost(lost),
                Event::FetchEnded { drafter, .. } | Event::TrainEnded { drafter, .. },
            ) => drafter == lost,
            _ => false,
        };
        let hit: Vec<_> = enabled(core).into_iter().filter(is_hit).collect();
        let mut next = core.clone();
        tell(&mut next, loss);
        for event in hit {
            assert_eq!(check(&next), Ok(()));
            tell(&mut next, failed(&event).expect("it can fail"));
        }
        self.reached(next, spent, open);
    }
}

fn tell(core: &mut Core, event: Event) {
    core.on(Time::ZERO, event, &mut Actions::new());
}

fn failed(event: &Event) -> Option<Event> {
    let mut event = *event;
    match &mut event {
        Event::ForwardEnded { outcome, .. }
        | Event::StageEnded { outcome, .. }
        | Event::FetchEnded { outcome, .. }
        | Event::TrainEnded { outcome, .. } => *outcome = Outcome::Failed,
        _ => return None,
    }
    Some(event)
}

/// The ends of all that is under way.
fn enabled(core: &Core) -> Vec<Event> {
    let (state, barrier) = (core.state(), core.policy().barrier);
    let outcome = Outcome::Done;
    let mut events = Vec::new();
    for (t, there) in state.targets.iter().enumerate() {
        if let TargetTask::Forward(microbatch) = there.task {
            events.push(Event::ForwardEnded {
                target: TargetId::from_index(t),
                microbatch,
                outcome,
            });
        }
    }
    for (microbatch, life) in state.lives.kept() {
        if life.status == Status::Staging {
            events.push(Event::StageEnded {
                microbatch,
                outcome,
            });
        }
    }
    for (d, there) in state.drafters.iter().enumerate() {
        let drafter = DrafterId::from_index(d);
        if let Some(microbatch) = there.fetching {
            events.push(Event::FetchEnded {
                drafter,
                microbatch,
                outcome,
            });
        }
        if let Some(microbatch) = there.training {
            events.push(Event::TrainEnded {
                drafter,
                microbatch,
                outcome,
            });
        }
        if there.applying && barrier == Barrier::None {
            let step = StepId(there.own_steps);
            let group = Group::One(drafter);
            events.push(Event::StepApplied { step, group });
        }
    }
    if barrier == Barrier::All && state.drafters.iter().any(|d| d.applying) {
        let (step, group) = (state.step, Group::All);
        events.push(Event::StepApplied { step, group });
    }
    events.extend(state.wake.map(|_| Event::WakeDue));
    events
}

/// Searches every policy at every depth that the check lets pass.
fn search_all(
    (targets, drafters): (u16, u16),
    work: &Work,
    depths: &[u32],
    trouble: Trouble,
) -> Found {
    let mut sum = Found::default();
    for policy in policies(targets, drafters) {
        // Losses multiply states; what is kept longest and fed by whoever is free is the hardest for them.
        let is_hard = policy.release == Release::Trained && policy.input == Input::Shared;
        if trouble == Trouble::Losses && !is_hard {
            continue;
        }
        for &depth in depths {
            let capped = if policy.queue == Queue::PerDrafter {
                (None, Some(depth))
            } else {
                (Some(depth), None)
            };
            let policy = Policy {
                depth_total: capped.0,
                depth_per_drafter: capped.1,
                retry_max: u8::from(trouble != Trouble::Failures) * 3,
                ..policy.clone()
            };
            let findings = work.findings(&policy);
            if findings.iter().any(|f| f.severity == Severity::Error) {
                continue;
            }
            let must_end = !findings.iter().any(|f| f.message.contains("deadlock"));
            let search = Search {
                must_end,
                policy: &policy,
                trouble,
                seen: HashSet::new(),
                found: Found::default(),
            };
            let found = search.run(work.core(&policy));
            assert!(found.ends > 0 || !must_end, "some order ends: {policy:?}");
            sum.cases += found.cases;
            sum.states += found.states;
            sum.transitions += found.transitions;
            sum.stalls += found.stalls;
            sum.ends += found.ends;
        }
    }
    sum
}

/// Debug builds search shorter work.
const fn sized(count: usize) -> usize {
    if cfg!(debug_assertions) {
        count / 2
    } else {
        count
    }
}

#[test]
fn every_order_of_completions_ends() {
    let found = search_all((2, 2), &Work::round(sized(4), 3, 1), &[1, 2], Trouble::None);
    let deep = search_all((2, 2), &Work::round(sized(4), 2, 2), &[2, 4], Trouble::None);
    let transitions = found.transitions + deep.transitions;
    assert!(
        cfg!(debug_assertions) || transitions > 1_000_000,
        "{found:?} {deep:?}"
    );
}

#[test]
fn every_order_ends_whichever_work_fails() {
    let found = search_all(
        (2, 2),
        &Work::round(sized(3), 2, 1),
        &[1],
        Trouble::Failures,
    );
    assert!(
        cfg!(debug_assertions) || found.transitions > 100_000,
        "{found:?}"
    );
}

#[test]
fn every_order_ends_whenever_workers_are_lost_and_join() {
    let found = search_all((2, 2), &Work::round(sized(3), 2, 1), &[1], Trouble::Losses);
    assert!(
        cfg!(debug_assertions) || found.transitions > 100_000,
        "{found:?}"
    );
}

#[test]
fn every_order_ends_whenever_a_stop_is_asked_for() {
    let found = search_all((2, 2), &Work::round(sized(3), 2, 1), &[1, 2], Trouble::Stop);
    assert!(
        cfg!(debug_assertions) || found.transitions > 100_000,
        "{found:?}"
    );
}
