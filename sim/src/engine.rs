//! The event loop: pops the earliest event, tells the core, and schedules the end of whatever the core orders. It decides nothing.

use crate::devices::{Devices, Work};
use crate::events::Events;
use crate::faults::{FaultKind, FaultList, Worker};
use crate::links::Links;
use crate::service::ServiceTimes;
use shared::core::{Action, Actions, Core, Event, Group, Life, Outcome, Presence, Stall, Status};
use shared::id::{DrafterId, MicrobatchId, StepId, TargetId};
use shared::time::{Span, Time};

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

/// Slots of the event list, in the order in which equal times are served: targets, links, drafters, then one each.
struct Slots {
    links: usize,
    drafters: usize,
    apply_all: usize,
    wake: usize,
    fault: usize,
}

impl Slots {
    fn new(targets: usize, links: usize, drafters: usize) -> Self {
        let apply_all = targets + links + drafters;
        Self {
            links: targets,
            drafters: targets + links,
            apply_all,
            wake: apply_all + 1,
            fault: apply_all + 2,
        }
    }
    fn target(&self, target: TargetId) -> usize {
        target.index()
    }
    fn link(&self, link: usize) -> usize {
        self.links + link
    }
    fn drafter(&self, drafter: DrafterId) -> usize {
        self.drafters + drafter.index()
    }
    fn count(&self) -> usize {
        self.fault + 1
    }
}

/// What a drafter's slot stands for.
#[derive(Clone, Copy)]
enum DrafterWork {
    Train(MicrobatchId),
    Apply(StepId),
}

struct Engine<'a> {
    slots: Slots,
    events: Events,
    machine: Machine<'a>,
    forwards: Vec<Option<MicrobatchId>>,
    drafters: Vec<Option<DrafterWork>>,
    step: StepId,
    now: Time,
    actions: Actions,
}

impl<'a> Engine<'a> {
    fn new(core: &Core, machine: Machine<'a>) -> Self {
        let targets = core.state().targets.len();
        let drafters = core.state().drafters.len();
        let slots = Slots::new(targets, machine.links.count(), drafters);
        let mut events = Events::new(slots.count());
        events.set(slots.fault, machine.faults.next());
        Self {
            events,
            forwards: vec![None; targets],
            drafters: vec![None; drafters],
            slots,
            machine,
            step: StepId(0),
            now: Time::ZERO,
            actions: Actions::new(),
        }
    }

    fn run(mut self, core: &mut Core, observer: &mut impl Observe) -> End {
        self.tell(Event::Started, core, observer);
        loop {
            if core.is_finished() {
                return End::Done;
            }
            let Some((at, slot)) = self.events.pop() else {
                return core.stall().map_or(End::Done, End::Deadlock);
            };
            self.now = at;
            if slot == self.slots.fault {
                if let Some(stall) = core.stall().filter(|_| !self.machine.faults.can_help()) {
                    return End::Deadlock(stall);
                }
                self.inject(core, observer);
            } else {
                let event = self.completed(slot);
                self.tell(event, core, observer);
            }
        }
    }

    /// The event that a slot's time stands for.
    fn completed(&mut self, slot: usize) -> Event {
        self.leave_gpu(slot);
        let slots = &self.slots;
        let outcome = Outcome::Done;
        if slot < slots.links {
            let microbatch = self.forwards[slot].take().expect("a forward is under way");
            return Event::ForwardEnded {
                target: TargetId::from_index(slot),
                microbatch,
                outcome,
            };
        }
        if slot < slots.drafters {
            let link = slot - slots.links;
            let event = self.machine.links.finish(link, self.now);
            self.events.set(slot, self.machine.links.next(link));
            self.copy_ends(&event);
            return event;
        }
        if slot < slots.apply_all {
            let drafter = DrafterId::from_index(slot - slots.drafters);
            let work = self.drafters[drafter.index()]
                .take()
                .expect("a drafter is at work");
            return match work {
                DrafterWork::Train(microbatch) => Event::TrainEnded {
                    drafter,
                    microbatch,
                    outcome,
                },
                DrafterWork::Apply(step) => Event::StepApplied {
                    step,
                    group: Group::One(drafter),
                },
            };
        }
        if slot == slots.apply_all {
            return Event::StepApplied {
                step: self.step,
                group: Group::All,
            };
        }
        Event::WakeDue
    }

    fn tell(&mut self, event: Event, core: &mut Core, observer: &mut impl Observe) {
        let mut actions = std::mem::take(&mut self.actions);
        core.on(self.now, event, &mut actions);
        observer.record(self.now, &event, actions.as_slice(), core);
        for action in actions.as_slice() {
            self.carry_out(action, core);
        }
        actions.clear();
        self.actions = actions;
    }

    fn carry_out(&mut self, action: &Action, core: &Core) {
        let plan = core.plan();
        match *action {
            Action::Forward { target, microbatch } => {
                let span = self.machine.service.forward(plan.microbatch(microbatch));
                let span = self.slowed(span, Worker::Target(target));
                self.forwards[target.index()] = Some(microbatch);
                let gpu = self.machine.devices.of_target(target.index());
                self.begin(gpu, self.slots.target(target), Work::Forward, span);
            }
            Action::Stage {
                target, microbatch, ..
            } => {
                let bytes = plan.microbatch(microbatch).bytes;
                let link = self
                    .machine
                    .links
                    .stage(self.now, target, microbatch, bytes);
                self.events
                    .set(self.slots.link(link), self.machine.links.next(link));
                let gpu = self.machine.devices.of_target(target.index());
                self.copy_begins(gpu, microbatch);
            }
            Action::Fetch {
                drafter,
                microbatch,
                ..
            } => {
                let bytes = plan.microbatch(microbatch).bytes;
                let link = self
                    .machine
                    .links
                    .fetch(self.now, drafter, microbatch, bytes);
                self.events
                    .set(self.slots.link(link), self.machine.links.next(link));
                let gpu = self.machine.devices.of_drafter(drafter.index());
                self.copy_begins(gpu, microbatch);
            }
            Action::Train {
                drafter,
                microbatch,
                ..
            } => {
                let span = self.machine.service.train(plan.microbatch(microbatch));
                let span = self.slowed(span, Worker::Drafter(drafter));
                self.drafters[drafter.index()] = Some(DrafterWork::Train(microbatch));
                let gpu = self.machine.devices.of_drafter(drafter.index());
                self.begin(gpu, self.slots.drafter(drafter), Work::Train, span);
            }
            Action::Apply {
                step,
                group: Group::All,
            } => {
                self.step = step;
                let span = self.machine.service.apply();
                // The first drafter leads, on its own GPU.
                let gpu = self.machine.devices.of_drafter(0);
                self.begin(gpu, self.slots.apply_all, Work::Apply, span);
            }
            Action::Apply {
                step,
                group: Group::One(drafter),
            } => {
                self.drafters[drafter.index()] = Some(DrafterWork::Apply(step));
                let span = self.machine.service.apply();
                let gpu = self.machine.devices.of_drafter(drafter.index());
                self.begin(gpu, self.slots.drafter(drafter), Work::Apply, span);
            }
            Action::Wake { at } => self.events.set(self.slots.wake, Some(at)),
            Action::Admit { .. }
            | Action::Discard { .. }
            | Action::StopTarget { .. }
            | Action::StopDrafter { .. } => {}
        }
    }

    fn slowed(&self, span: Span, worker: Worker) -> Span {
        self.machine.faults.slowed(span, worker, self.now)
    }

    /// Begins what takes `span` alone; on a shared GPU it changes when others end.
    fn begin(&mut self, gpu: Option<usize>, slot: usize, work: Work, span: Span) {
        match gpu {
            None => self.events.set(slot, Some(self.now + span)),
            Some(gpu) => {
                self.machine.devices.begin(gpu, self.now, slot, work, span);
                self.settle(gpu);
            }
        }
    }

    /// What a slot stands for has ended, or is ended before its time: others on its GPU speed up.
    fn leave_gpu(&mut self, slot: usize) {
        if self.machine.devices.are_none() {
            return;
        }
        if let Some(gpu) = self.gpu_of(slot) {
            self.machine.devices.end(gpu, self.now, slot);
            self.settle(gpu);
        }
    }

    /// A copy may slow compute on the shared GPU at its worker's end.
    fn copy_begins(&mut self, gpu: Option<usize>, microbatch: MicrobatchId) {
        if let Some(gpu) = gpu
            && self.machine.devices.begin_copy(gpu, self.now, microbatch)
        {
            self.settle(gpu);
        }
    }

    fn copy_ends(&mut self, event: &Event) {
        if self.machine.devices.are_none() {
            return;
        }
        let (Event::StageEnded { microbatch, .. } | Event::FetchEnded { microbatch, .. }) = event
        else {
            return;
        };
        if let Some(gpu) = self.machine.devices.end_copy(self.now, *microbatch) {
            self.settle(gpu);
        }
    }

    /// The shared GPU on which a slot's work is done, if it is.
    fn gpu_of(&self, slot: usize) -> Option<usize> {
        let (slots, devices) = (&self.slots, &self.machine.devices);
        if slot < slots.links {
            devices.of_target(slot)
        } else if slot == slots.apply_all {
            devices.of_drafter(0)
        } else if (slots.drafters..slots.apply_all).contains(&slot) {
            devices.of_drafter(slot - slots.drafters)
        } else {
            None
        }
    }

    fn settle(&mut self, gpu: usize) {
        for (slot, at) in self.machine.devices.times(gpu) {
            self.events.set(slot, Some(at));
        }
    }

    /// Lets the next fault happen.
    fn inject(&mut self, core: &mut Core, observer: &mut impl Observe) {
        let fault = self.machine.faults.pop(self.now).expect("a fault is due");
        self.events
            .set(self.slots.fault, self.machine.faults.next());
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
                self.tell(Event::TargetJoined(target), core, observer);
            }
            (FaultKind::Joined, Worker::Drafter(drafter), Presence::Lost) => {
                self.tell(Event::DrafterJoined(drafter), core, observer);
            }
            // Who is gone cannot be lost, who is there cannot join.
            (FaultKind::Lost | FaultKind::Joined, ..) => {}
        }
    }

    /// A target is lost: the core hears of it first, then of the failure of what was open.
    fn lose_target(&mut self, target: TargetId, core: &mut Core, observer: &mut impl Observe) {
        let copies = moving(core, |life| life.at_target == Some(target));
        self.tell(Event::TargetLost(target), core, observer);
        let slot = self.slots.target(target);
        self.events.set(slot, None);
        self.leave_gpu(slot);
        if let Some(microbatch) = self.forwards[target.index()].take() {
            let outcome = Outcome::Failed;
            self.tell(
                Event::ForwardEnded {
                    target,
                    microbatch,
                    outcome,
                },
                core,
                observer,
            );
        }
        self.fail_copies(&copies, core, observer);
    }

    /// A drafter is lost, likewise. An optimizer step under way still ends for all.
    fn lose_drafter(&mut self, drafter: DrafterId, core: &mut Core, observer: &mut impl Observe) {
        let copies = moving(core, |life| life.at_drafter == Some(drafter));
        self.tell(Event::DrafterLost(drafter), core, observer);
        if let Some(DrafterWork::Train(microbatch)) = self.drafters[drafter.index()] {
            self.drafters[drafter.index()] = None;
            let slot = self.slots.drafter(drafter);
            self.events.set(slot, None);
            self.leave_gpu(slot);
            let outcome = Outcome::Failed;
            self.tell(
                Event::TrainEnded {
                    drafter,
                    microbatch,
                    outcome,
                },
                core,
                observer,
            );
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
            let failed = self.machine.links.take_out(self.now, |moving| moving == id);
            for link in 0..self.machine.links.count() {
                self.events
                    .set(self.slots.link(link), self.machine.links.next(link));
            }
            if let Some(event) = failed {
                self.copy_ends(&event);
                self.tell(event, core, observer);
            }
        }
    }
}

/// Hidden states that are being copied from or to a memory.
fn moving(core: &Core, lie_there: impl Fn(&Life) -> bool) -> Vec<MicrobatchId> {
    let is_moving = |life: &Life| matches!(life.status, Status::Staging | Status::Fetching);
    let lives = core.state().lives.iter().enumerate();
    lives
        .filter(|(_, life)| is_moving(life) && lie_there(life))
        .map(|(i, _)| MicrobatchId::from_index(i))
        .collect()
}
