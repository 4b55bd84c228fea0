//! What is under way in a simulated box: each piece of work has a slot of the event list, and its end is an event.

use crate::devices::Work;
use crate::engine::Machine;
use crate::events::Events;
use crate::faults::Worker;
use shared::core::{Action, Core, Event, Group, Outcome};
use shared::id::{DrafterId, MicrobatchId, TargetId};
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

    #[inline]
    fn is_link(&self, slot: usize) -> bool {
        (self.links..self.drafters).contains(&slot)
    }

    fn drafter(&self, drafter: DrafterId) -> usize {
        self.drafters + drafter.index()
    }

    fn count(&self) -> usize {
        self.fault + 1
    }
}

/// What happens next.
pub(crate) enum Next {
    /// A slot's work ends, or its wait.
    End {
        /// Which one's.
        slot: usize,
    },
    /// A fault is due.
    Fault,
}

/// All work under way.
pub(crate) struct UnderWay<'a> {
    slots: Slots,
    events: Events,
    pub(crate) machine: Machine<'a>,
    /// The end of each slot's work, where some is under way, and of a wait; a link knows best which of its copies ends next.
    ends: Vec<Event>,
    pub(crate) now: Time,
}

impl<'a> UnderWay<'a> {
    /// Nothing but the first fault to come.
    pub(crate) fn new(core: &Core, machine: Machine<'a>) -> Self {
        let targets = core.state().targets.len();
        let drafters = core.state().drafters.len();
        let slots = Slots::new(targets, machine.links.count(), drafters);
        let mut events = Events::new(slots.count());
        events.set(slots.fault, machine.faults.next());
        Self {
            events,
            ends: vec![Event::WakeDue; slots.count()],
            slots,
            machine,
            now: Time::ZERO,
        }
    }

    /// Goes on to the next end of anything; `None` when nothing is under way.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<Next> {
        let (at, slot) = self.events.pop()?;
        self.now = at;
        if slot == self.slots.fault {
            return Some(Next::Fault);
        }
        self.leave_gpu(slot);
        Some(Next::End { slot })
    }

    /// The event that the end of a slot's work is.
    #[inline(always)]
    pub(crate) fn ended(&mut self, slot: usize) -> Event {
        if self.slots.is_link(slot) {
            return self.copy_ended(slot);
        }
        self.ends[slot]
    }

    /// The end of the copy that is done on a slot's link.
    #[inline(always)]
    fn copy_ended(&mut self, slot: usize) -> Event {
        let link = slot - self.slots.links;
        let event = self.machine.links.finish(link, self.now);
        self.await_copies(link);
        self.copy_ends(&event);
        event
    }

    /// Begins what an order asks for.
    #[inline(always)]
    pub(crate) fn begin(&mut self, order: &Action, core: &Core) {
        let outcome = Outcome::Done;
        let (slot, work, span) = match *order {
            Action::Forward { target, microbatch } => {
                let span = self
                    .machine
                    .service
                    .forward(core.plan().microbatch(microbatch));
                let slot = self.slots.target(target);
                self.ends[slot] = Event::ForwardEnded {
                    target,
                    microbatch,
                    outcome,
                };
                let span = self.slowed(span, Worker::Target(target));
                (slot, Work::Forward, span)
            }
            Action::Train {
                drafter,
                microbatch,
                ..
            } => {
                let span = self
                    .machine
                    .service
                    .train(core.plan().microbatch(microbatch));
                let slot = self.slots.drafter(drafter);
                self.ends[slot] = Event::TrainEnded {
                    drafter,
                    microbatch,
                    outcome,
                };
                let span = self.slowed(span, Worker::Drafter(drafter));
                (slot, Work::Train, span)
            }
            Action::Apply { step, group } => {
                let slot = match group {
                    Group::All => self.slots.apply_all,
                    Group::One(drafter) => self.slots.drafter(drafter),
                };
                self.ends[slot] = Event::StepApplied { step, group };
                (slot, Work::Apply, self.machine.service.apply())
            }
            Action::Stage {
                target, microbatch, ..
            } => {
                let bytes = core.state().lives[microbatch].bytes;
                let links = &mut self.machine.links;
                let link = links.stage(self.now, target, microbatch, bytes);
                return self.copy(link, self.slots.target(target), microbatch);
            }
            Action::Fetch {
                drafter,
                microbatch,
                ..
            } => {
                let bytes = core.state().lives[microbatch].bytes;
                let links = &mut self.machine.links;
                let link = links.fetch(self.now, drafter, microbatch, bytes);
                return self.copy(link, self.slots.drafter(drafter), microbatch);
            }
            Action::Wake { at } => {
                return self.events.set_at(self.slots.wake, at);
            }
            Action::Admit { .. }
            | Action::Discard { .. }
            | Action::StopTarget { .. }
            | Action::StopDrafter { .. } => return,
        };
        self.compute(slot, work, span);
    }

    /// Gives up the forward of a target that is lost.
    pub(crate) fn give_up_forward(&mut self, target: TargetId) {
        self.give_up(self.slots.target(target));
    }

    /// Gives up the training of a drafter that is lost.
    pub(crate) fn give_up_training(&mut self, drafter: DrafterId) {
        self.give_up(self.slots.drafter(drafter));
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
    #[inline(always)]
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

    /// Waits for the next end on `link`, and on those that what has changed there slows. Where no copy is left the last has just ended, and
    /// what has left the list stays out unless it is set again.
    #[inline(always)]
    fn await_copies(&mut self, link: usize) {
        let links = &self.machine.links;
        for link in links.changed_with(link) {
            if let Some(next) = links.next(link) {
                self.events.set_at(self.slots.link(link), next);
            }
        }
    }

    /// A copy is under way on `link`; it may slow compute on the shared GPU of the worker in `slot`.
    #[inline(always)]
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
