//! The event loop: pops the earliest event, tells the core, and schedules the end of whatever the core orders. It decides nothing.

use crate::devices::Devices;
use crate::faults::{FaultKind, FaultList, Worker};
use crate::links::Links;
use crate::service::ServiceTimes;
use crate::under_way::{Next, UnderWay};
use shared::core::{
    Action, Actions, Core, Event, Life, Outcome, Presence, Stall, Status, TargetTask,
};
use shared::id::{DrafterId, MicrobatchId, TargetId};
use shared::time::Time;

/// Why a simulation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All work is done and every worker stopped.
    Done,
    /// Nothing can happen any more although work remains.
    Deadlock(Stall),
}

/// Sees every record with the core after it.
pub trait Observe {
    /// Takes in one record.
    fn record(&mut self, at: Time, event: &Event, actions: &[Action], core: &Core);
}

impl<F: FnMut(Time, &Event, &[Action], &Core)> Observe for F {
    fn record(&mut self, at: Time, event: &Event, actions: &[Action], core: &Core) {
        self(at, event, actions, core);
    }
}

/// What a simulated box is made of, beside its policy.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// What work costs.
    pub service: &'a ServiceTimes,
    /// The links that hidden states travel on.
    pub links: Links,
    /// The GPUs that workers share.
    pub devices: Devices,
    /// What goes wrong, and when.
    pub faults: FaultList,
}

/// Runs `core` to its end on `machine`.
pub fn simulate(core: &mut Core, machine: Machine<'_>, observer: &mut impl Observe) -> End {
    Engine::new(core, machine).run(core, observer)
}

struct Engine<'a> {
    under_way: UnderWay<'a>,
    actions: Actions,
}

impl<'a> Engine<'a> {
    fn new(core: &Core, machine: Machine<'a>) -> Self {
        Self {
            under_way: UnderWay::new(core, machine),
            actions: Actions::new(),
        }
    }

    fn run(mut self, core: &mut Core, observer: &mut impl Observe) -> End {
        self.tell_aside(Event::Started, core, observer);
        while !core.is_finished() {
            match self.under_way.next() {
                Some(Next::End { slot }) => {
                    let event = self.under_way.ended(slot);
                    self.tell(event, core, observer);
                }
                Some(Next::Fault) => {
                    let nobody_comes = !self.under_way.machine.faults.can_help();
                    if let Some(stall) = core.stall().filter(|_| nobody_comes) {
                        return End::Deadlock(stall);
                    }
                    self.inject(core, observer);
                }
                None => return core.stall().map_or(End::Done, End::Deadlock),
            }
        }
        End::Done
    }

    /// Tells the core, and begins what it orders. Core, observer and engine make one function with the loop: calls between them take 7 to
    /// 9 % of a run's instructions.
    #[inline(always)]
    fn tell(&mut self, event: Event, core: &mut Core, observer: &mut impl Observe) {
        let now = self.under_way.now;
        core.on(now, event, &mut self.actions);
        let orders = self.actions.as_slice();
        observer.record(now, &event, orders, core);
        for order in orders {
            self.under_way.begin(order, core);
        }
        self.actions.clear();
    }

    /// The same for what happens seldom, beside the loop.
    #[inline(never)]
    fn tell_aside(&mut self, event: Event, core: &mut Core, observer: &mut impl Observe) {
        self.tell(event, core, observer);
    }

    /// Lets the next fault happen.
    fn inject(&mut self, core: &mut Core, observer: &mut impl Observe) {
        let now = self.under_way.now;
        let fault = self.under_way.machine.faults.pop(now);
        let fault = fault.expect("a fault is due");
        self.under_way.await_fault();
        let presence = match fault.worker {
            Worker::Target(target) => core.state().targets[target.index()].presence,
            Worker::Drafter(drafter) => core.state().drafters[drafter.index()].presence,
        };
        match (fault.kind, fault.worker, presence) {
            (FaultKind::Lost, Worker::Target(target), Presence::Present) => {
                self.lose_target(target, core, observer);
            }
            (FaultKind::Lost, Worker::Drafter(drafter), Presence::Present) => {
                self.lose_drafter(drafter, core, observer);
            }
            (FaultKind::Joined, Worker::Target(target), Presence::Lost) => {
                self.tell_aside(Event::TargetJoined(target), core, observer);
            }
            (FaultKind::Joined, Worker::Drafter(drafter), Presence::Lost) => {
                self.tell_aside(Event::DrafterJoined(drafter), core, observer);
            }
            // Who is gone cannot be lost, who is there cannot join.
            (FaultKind::Lost | FaultKind::Joined, ..) => {}
        }
    }

    /// A target is lost: the core hears of it first, then of the failure of what was open.
    fn lose_target(&mut self, target: TargetId, core: &mut Core, observer: &mut impl Observe) {
        let copies = moving(core, |life| life.at_target == Some(target));
        let task = core.state().targets[target.index()].task;
        self.tell_aside(Event::TargetLost(target), core, observer);
        if let TargetTask::Forward(microbatch) = task {
            self.under_way.give_up_forward(target);
            let outcome = Outcome::Failed;
            let failed = Event::ForwardEnded {
                target,
                microbatch,
                outcome,
            };
            self.tell_aside(failed, core, observer);
        }
        self.fail_copies(&copies, core, observer);
    }

    /// A drafter is lost, likewise. An optimizer step under way still ends for all.
    fn lose_drafter(&mut self, drafter: DrafterId, core: &mut Core, observer: &mut impl Observe) {
        let copies = moving(core, |life| life.at_drafter == Some(drafter));
        let training = core.state().drafters[drafter.index()].training;
        self.tell_aside(Event::DrafterLost(drafter), core, observer);
        if let Some(microbatch) = training {
            self.under_way.give_up_training(drafter);
            let outcome = Outcome::Failed;
            let failed = Event::TrainEnded {
                drafter,
                microbatch,
                outcome,
            };
            self.tell_aside(failed, core, observer);
        }
        self.fail_copies(&copies, core, observer);
    }

    fn fail_copies(
        &mut self,
        copies: &[MicrobatchId],
        core: &mut Core,
        observer: &mut impl Observe,
    ) {
        for &id in copies {
            if let Some(failed) = self.under_way.give_up_copy(id) {
                self.tell_aside(failed, core, observer);
            }
        }
    }
}

/// Hidden states that are being copied from or to a memory.
fn moving(core: &Core, lie_there: impl Fn(&Life) -> bool) -> Vec<MicrobatchId> {
    let is_moving = |life: &Life| matches!(life.status, Status::Staging | Status::Fetching);
    let lives = &core.state().lives;
    lives.all_where(|life| is_moving(life) && lie_there(life))
}
