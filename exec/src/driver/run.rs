//! The loop.

use super::crew::Crew;
use super::fact::fact;
use super::ledger::Ledger;
use super::watch::Watchdog;
use super::{Loss, Observer, Options, RunReport};
use crate::backend::{Backend, WorkError};
use crate::clock::Clock;
use crate::error::{DriverError, Site, WorkerId};
use crate::store::{Slots, Store};
use crate::worker::{Piece, Report};
use shared::core::{Action, Actions, Core, Event, Outcome};
use shared::id::{Bytes, MicrobatchId};
use shared::time::Time;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// A run under way. Fields are dropped in order: threads are joined before the store goes.
pub(super) struct Run<B: Backend> {
    pub(super) crew: Crew,
    watchdog: Option<Watchdog>,
    pub(super) core: Core,
    pub(super) store: Arc<Store<B::Hidden>>,
    slots: Slots,
    pub(super) ledger: Ledger,
    pub(super) clock: Clock,
    pub(super) now: Time,
    reports: Receiver<Report>,
    stop_asked: bool,
    lost: Vec<Loss>,
    spent: Spent,
}

#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    events: u64,
    dispatch: Duration,
    observers: Duration,
}

impl<B: Backend> Run<B> {
    pub(super) fn start(
        core: Core,
        backend: Arc<B>,
        options: Options,
        sender: Sender<Report>,
        reports: Receiver<Report>,
    ) -> Result<Self, DriverError> {
        let store = Arc::new(Store::default());
        let watchdog = options
            .deadline
            .map(|deadline| Watchdog::start(deadline, &sender));
        let watchdog = watchdog.transpose()?;
        let watch = watchdog.as_ref().map(|dog| &dog.watch);
        let crew = Crew::start(&backend, core.policy(), &store, watch, (&sender, &reports))?;
        Ok(Self {
            crew,
            watchdog,
            slots: Slots::new(core.plan(), core.policy()),
            core,
            store,
            ledger: Ledger::default(),
            clock: Clock::scaled(backend.speedup()),
            now: Time::ZERO,
            reports,
            stop_asked: false,
            lost: Vec::new(),
            spent: Spent::default(),
        })
    }

    pub(super) fn finish(mut self, observer: &mut dyn Observer) -> Result<RunReport, DriverError> {
        let result = self.drive(observer);
        let wall = self.clock.wall();
        if let Err(DriverError::Hung { .. }) = result {
            self.crew.abandon(&self.ledger.at_work());
        }
        self.crew.join();
        if result.is_ok() {
            let live = self.store.live();
            assert_eq!(live, Bytes(0), "all hidden states are freed at the end");
        }
        self.store.clear();
        result?;
        Ok(RunReport {
            end: self.now,
            wall,
            dispatch: self.spent.dispatch,
            observers: self.spent.observers,
            events: self.spent.events,
            peaks: self.store.peaks(),
            slots_peak: self.slots.peak(),
            lost: self.lost,
            stopped: self.stop_asked,
        })
    }

    fn drive(&mut self, observer: &mut dyn Observer) -> Result<(), DriverError> {
        let mut actions = Actions::new();
        self.feed(Event::Started, &mut actions, observer)?;
        while !self.core.is_finished() {
            if self.ledger.is_idle() {
                return Err(self.stalled());
            }
            let report = self.receive();
            let began = self.clock.wall();
            let observed = self.spent.observers;
            let now = self.clock.now();
            self.wake(now, &mut actions, observer)?;
            self.now = self.now.max(now);
            if let Some(report) = report {
                self.on_report(report, &mut actions, observer)?;
            }
            let observed = self.spent.observers - observed;
            self.spent.dispatch += (self.clock.wall() - began).saturating_sub(observed);
        }
        self.check_crew()
    }

    /// The next report; `None` when a wake-up is due first.
    fn receive(&self) -> Option<Report> {
        let received = match self.ledger.next_wake() {
            None => self
                .reports
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => self.reports.recv_timeout(self.clock.until(at)),
        };
        match received {
            Ok(report) => Some(report),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                unreachable!("worker threads end after the driver lets go of them")
            }
        }
    }

    /// Wake-ups that are due come before what was received after them, and at the very instant that was asked for: a pool that is
    /// looked at every so often is looked at then, however late the driver is.
    fn wake(
        &mut self,
        now: Time,
        actions: &mut Actions,
        observer: &mut dyn Observer,
    ) -> Result<(), DriverError> {
        while let Some(at) = self.ledger.next_wake().filter(|at| *at <= now) {
            self.ledger.take_wake();
            self.now = self.now.max(at);
            self.feed(Event::WakeDue, actions, observer)?;
        }
        Ok(())
    }

    fn on_report(
        &mut self,
        report: Report,
        actions: &mut Actions,
        observer: &mut dyn Observer,
    ) -> Result<(), DriverError> {
        match report {
            Report::Ended {
                worker,
                piece,
                result,
            } => {
                if !self.ledger.close(worker, &piece) {
                    return Ok(());
                }
                let outcome = match result {
                    Ok(()) => Outcome::Done,
                    Err(WorkError::Transient(_)) if !matches!(piece, Piece::Apply { .. }) => {
                        Outcome::Failed
                    }
                    Err(error) => return Err(self.failure(worker, &piece, error)),
                };
                self.feed(fact(worker, &piece, outcome), actions, observer)
            }
            Report::Panicked {
                worker,
                piece,
                message,
            } => self.on_panic(worker, &piece, message, actions, observer),
            Report::Hung(site) => Err(DriverError::Hung {
                site,
                deadline: self
                    .watchdog
                    .as_ref()
                    .map_or(Duration::ZERO, |dog| dog.watch.deadline()),
            }),
            Report::Stop if !self.stop_asked => {
                self.stop_asked = true;
                self.feed(Event::StopAsked, actions, observer)
            }
            Report::Stop | Report::Ready => Ok(()),
            Report::NotStarted { worker, message } => Err(DriverError::Start { worker, message }),
        }
    }

    /// The core is told of a lost worker, then its open work is answered as failed. The last
    /// drafter's loss ends the run, and so does that of one in the middle of an optimizer step: nobody can say which weights were
    /// updated.
    fn on_panic(
        &mut self,
        worker: WorkerId,
        piece: &Piece,
        message: String,
        actions: &mut Actions,
        observer: &mut dyn Observer,
    ) -> Result<(), DriverError> {
        if !self.crew.has(worker) {
            return Ok(());
        }
        let site = Site {
            worker,
            microbatch: piece.microbatch(),
        };
        self.lost.push(Loss { site, message });
        self.crew.dismiss(worker);
        let is_last_drafter = self.crew.drafters().next().is_none();
        if is_last_drafter || self.ledger.is_applied_to(worker) {
            return Err(self.last_panic());
        }
        self.store.lose(worker.into());
        let event = match worker {
            WorkerId::Target(id) => Event::TargetLost(id),
            WorkerId::Drafter(id) => Event::DrafterLost(id),
        };
        self.feed(event, actions, observer)?;
        while let Some(piece) = self.ledger.close_first(worker) {
            self.feed(fact(worker, &piece, Outcome::Failed), actions, observer)?;
        }
        Ok(())
    }

    /// One record: stamp, ask the core, carry out, check, show.
    fn feed(
        &mut self,
        event: Event,
        actions: &mut Actions,
        observer: &mut dyn Observer,
    ) -> Result<(), DriverError> {
        self.spent.events += 1;
        match event {
            Event::StepApplied { step, group } => self.ledger.on_applied(step, group),
            Event::DrafterLost(drafter) => self.ledger.on_lost(drafter),
            _ => {}
        }
        self.core.on(self.now, event, actions);
        if has_failed(&event) || !self.lost.is_empty() {
            let lives = &self.core.state().lives;
            let is_alive = |id: MicrobatchId| lives.status(id).is_alive();
            self.store.retain(is_alive);
            self.slots.retain(|id| is_alive(id) && lives[id].has_slot());
        }
        // Workers get their orders before anything is checked and kept, so that none waits for that; but the weights that a step made are
        // shown before anybody changes them.
        let is_step = matches!(event, Event::StepApplied { .. });
        if !is_step {
            self.carry_out_all(actions.as_slice());
        }
        let began = self.clock.wall();
        self.slots.record(&event, actions.as_slice());
        if let Some(breach) = self.slots.breach() {
            panic!("slots and bytes are within the policy's caps: {breach}");
        }
        observer
            .on_record(self.now, &event, actions.as_slice(), &self.core)
            .map_err(DriverError::Observer)?;
        self.spent.observers += self.clock.wall() - began;
        if is_step {
            self.carry_out_all(actions.as_slice());
        }
        actions.clear();
        Ok(())
    }

    fn carry_out_all(&mut self, actions: &[Action]) {
        for action in actions {
            self.carry_out(*action);
        }
    }

    fn failure(&self, worker: WorkerId, piece: &Piece, error: WorkError) -> DriverError {
        let step = match piece {
            Piece::Train { step, .. } | Piece::Apply { step, .. } => Some(*step),
            _ => None,
        };
        match (error, step) {
            (WorkError::NonFinite(message), Some(step)) => DriverError::Diverged {
                step,
                message,
                microbatches: self.ledger.trained_in(step),
            },
            (error, _) => DriverError::WorkerFailed {
                site: Site {
                    worker,
                    microbatch: piece.microbatch(),
                },
                message: error.to_string(),
            },
        }
    }

    fn stalled(&self) -> DriverError {
        if !self.lost.is_empty() {
            return self.last_panic();
        }
        let text = self.core.stall().map(|stall| stall.to_string());
        DriverError::Stalled(text.unwrap_or_else(|| "no worker has anything to do".into()))
    }

    /// A run that lost all workers of a kind is not done, whatever was given up for it.
    fn check_crew(&self) -> Result<(), DriverError> {
        let policy = self.core.policy();
        let is_target = |loss: &&Loss| matches!(loss.site.worker, WorkerId::Target(_));
        let targets = self.lost.iter().filter(is_target).count();
        let drafters = self.lost.len() - targets;
        if targets == usize::from(policy.targets) || drafters == usize::from(policy.drafters) {
            return Err(self.last_panic());
        }
        Ok(())
    }

    fn last_panic(&self) -> DriverError {
        let Loss { site, message } = self.lost.last().cloned().expect("a worker was lost");
        DriverError::WorkerPanicked { site, message }
    }
}

/// Whether hidden states may have become useless, and slots free, without an order that says so. After a loss any event may do that:
/// what was done for a worker that is lost counts as failed.
fn has_failed(event: &Event) -> bool {
    match event {
        Event::ForwardEnded { outcome, .. }
        | Event::StageEnded { outcome, .. }
        | Event::FetchEnded { outcome, .. }
        | Event::TrainEnded { outcome, .. } => *outcome == Outcome::Failed,
        _ => false,
    }
}
