//! What is under way in a simulated box: each piece of work has a slot of the event list, and its end is an event.

use crate::devices::Work;
use crate::engine::Machine;
use crate::events::Events;
use crate::faults::Worker;
use shared::core::{Action, Event, Group, Outcome};
use shared::id::{DrafterId, MicrobatchId, StepId, TargetId};
use shared::plan::Plan;
use shared::time::{Span, Time};

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

/// What ends next.
pub(crate) enum Next {
    /// A piece of work, or a wait.
    Ended(Event),
    /// Nothing has ended: a fault is due.
    FaultDue,
}

/// All work under way.
pub(crate) struct UnderWay<'a> {
    slots: Slots,
    events: Events,
    pub(crate) machine: Machine<'a>,
    forwards: Vec<Option<MicrobatchId>>,
    drafters: Vec<Option<DrafterWork>>,
    step: StepId,
    pub(crate) now: Time,
}

impl<'a> UnderWay<'a> {
    /// Nothing but the first fault to come.
    pub(crate) fn new(targets: usize, drafters: usize, machine: Machine<'a>) -> Self {
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
        }
    }

    /// Goes on to the next end of anything; `None` when nothing is under way.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<Next> {
        let (at, slot) = self.events.pop()?;
        self.now = at;
        if slot == self.slots.fault {
            return Some(Next::FaultDue);
        }
        self.leave_gpu(slot);
        Some(Next::Ended(self.ended(slot)))
    }

    /// The event that a slot's time stands for.
    #[inline(always)]
    fn ended(&mut self, slot: usize) -> Event {
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
            self.await_copies(link);
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

    /// Begins what an order asks for.
    #[inline]
    pub(crate) fn begin(&mut self, order: &Action, plan: &Plan) {
        match *order {
            Action::Forward { target, microbatch } => {
                let span = self.machine.service.forward(plan.microbatch(microbatch));
                self.forwards[target.index()] = Some(microbatch);
                let slot = self.slots.target(target);
                self.compute(
                    slot,
                    Work::Forward,
                    self.slowed(span, Worker::Target(target)),
                );
            }
            Action::Train {
                drafter,
                microbatch,
                ..
            } => {
                let span = self.machine.service.train(plan.microbatch(microbatch));
                self.drafters[drafter.index()] = Some(DrafterWork::Train(microbatch));
                let slot = self.slots.drafter(drafter);
                self.compute(
                    slot,
                    Work::Train,
                    self.slowed(span, Worker::Drafter(drafter)),
                );
            }
            Action::Stage {
                target, microbatch, ..
            } => {
                let bytes = plan.microbatch(microbatch).bytes;
                let links = &mut self.machine.links;
                let link = links.stage(self.now, target, microbatch, bytes);
                self.copy(link, self.slots.target(target), microbatch);
            }
            Action::Fetch {
                drafter,
                microbatch,
                ..
            } => {
                let bytes = plan.microbatch(microbatch).bytes;
                let links = &mut self.machine.links;
                let link = links.fetch(self.now, drafter, microbatch, bytes);
                self.copy(link, self.slots.drafter(drafter), microbatch);
            }
            Action::Apply { step, group } => {
                let slot = match group {
                    Group::All => {
                        self.step = step;
                        self.slots.apply_all
                    }
                    Group::One(drafter) => {
                        self.drafters[drafter.index()] = Some(DrafterWork::Apply(step));
                        self.slots.drafter(drafter)
                    }
                };
                self.compute(slot, Work::Apply, self.machine.service.apply());
            }
            Action::Wake { at } => self.events.set_at(self.slots.wake, at),
            Action::Admit { .. }
            | Action::Discard { .. }
            | Action::StopTarget { .. }
            | Action::StopDrafter { .. } => {}
        }
    }

    /// The forward that a lost target leaves.
    pub(crate) fn give_up_forward(&mut self, target: TargetId) -> Option<MicrobatchId> {
        self.give_up(self.slots.target(target));
        self.forwards[target.index()].take()
    }

    /// The training that a lost drafter leaves. An optimizer step under way still ends for all.
    pub(crate) fn give_up_training(&mut self, drafter: DrafterId) -> Option<MicrobatchId> {
        let Some(DrafterWork::Train(microbatch)) = self.drafters[drafter.index()] else {
            return None;
        };
        self.drafters[drafter.index()] = None;
        self.give_up(self.slots.drafter(drafter));
        Some(microbatch)
    }

    /// The failure of a copy whose end of the way is lost.
    pub(crate) fn give_up_copy(&mut self, id: MicrobatchId) -> Option<Event> {
        let links = &mut self.machine.links;
        let failed = links.take_out(self.now, |moving| moving == id);
        for link in 0..links.count() {
            self.events.set(self.slots.link(link), links.next(link));
        }
        if let Some(event) = &failed {
            self.copy_ends(event);
        }
        failed
    }

    /// Waits for the next fault.
    pub(crate) fn await_fault(&mut self) {
        self.events
            .set(self.slots.fault, self.machine.faults.next());
    }

    fn give_up(&mut self, slot: usize) {
        self.events.set(slot, None);
        self.leave_gpu(slot);
    }

    #[inline]
    fn slowed(&self, span: Span, worker: Worker) -> Span {
        self.machine.faults.slowed(span, worker, self.now)
    }

    /// Begins what takes `span` alone; on a shared GPU it changes when others end.
    #[inline]
    fn compute(&mut self, slot: usize, work: Work, span: Span) {
        let gpu = self.gpu_of(slot);
        let Some(gpu) = gpu else {
            self.events.set_at(slot, self.now + span);
            return;
        };
        self.machine.devices.begin(gpu, self.now, slot, work, span);
        self.settle(gpu);
    }

    /// What a slot stands for has ended, or is ended before its time: others on its GPU speed up.
    #[inline]
    fn leave_gpu(&mut self, slot: usize) {
        if let Some(gpu) = self.gpu_of(slot) {
            self.machine.devices.end(gpu, self.now, slot);
            self.settle(gpu);
        }
    }

    /// Waits for the next end on `link`, and on those that what has changed there slows.
    #[inline]
    fn await_copies(&mut self, link: usize) {
        let links = &self.machine.links;
        for link in links.changed_with(link) {
            self.events.set(self.slots.link(link), links.next(link));
        }
    }

    /// A copy is under way on `link`; it may slow compute on the shared GPU of the worker in `slot`.
    #[inline]
    fn copy(&mut self, link: usize, slot: usize, microbatch: MicrobatchId) {
        self.await_copies(link);
        if let Some(gpu) = self.gpu_of(slot)
            && self.machine.devices.begin_copy(gpu, self.now, microbatch)
        {
            self.settle(gpu);
        }
    }

    #[inline]
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
    #[inline]
    fn gpu_of(&self, slot: usize) -> Option<usize> {
        let (slots, devices) = (&self.slots, &self.machine.devices);
        if devices.are_none() {
            None
        } else if slot < slots.links {
            devices.of_target(slot)
        } else if slot == slots.apply_all {
            // The first drafter leads, on its own GPU.
            devices.of_drafter(0)
        } else if (slots.drafters..slots.apply_all).contains(&slot) {
            devices.of_drafter(slot - slots.drafters)
        } else {
            None
        }
    }

    fn settle(&mut self, gpu: usize) {
        for (slot, at) in self.machine.devices.times(gpu) {
            self.events.set_at(slot, at);
        }
    }
}
