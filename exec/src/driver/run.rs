//! The loop.

use super::crew::Crew;
use super::fact::fact;
use super::ledger::Ledger;
use super::watch::Watchdog;
use super::{Loss, Observer, Options, RunReport};
use crate::backend::{Backend, Leg, Ordered, WorkError};
use crate::clock::Clock;
use crate::error::{DriverError, Site, WorkerId};
use crate::store::{Place, Slots, Store};
use crate::worker::{Order, Piece, Report};
use shared::core::{Action, Actions, Core, Event, Group, Outcome};
use shared::id::{Bytes, DrafterId, StepId};
use shared::time::Time;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// A run under way. Fields are dropped in order: threads are joined before the store goes.
pub(super) struct Run<B: Backend> {
    crew: Crew,
    watchdog: Option<Watchdog>,
    core: Core,
    store: Arc<Store<B::Hidden>>,
    slots: Slots,
    ledger: Ledger,
    /// Optimizer steps that wait until all drafters have forgotten what they were told to forget.
    held: Vec<Piece>,
    clock: Clock,
    now: Time,
    reports: Receiver<Report>,
    stop: Stop,
    lost: Vec<Loss>,
    spent: Spent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    NotAsked,
    /// Asked for before the first event.
    Early,
    Asked,
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
        let (crew, stop_asked) =
            Crew::start(&backend, core.policy(), &store, watch, (&sender, &reports))?;
        Ok(Self {
            crew,
            watchdog,
            slots: Slots::new(core.plan(), core.policy()),
            core,
            store,
            ledger: Ledger::default(),
            held: Vec::new(),
            clock: Clock::scaled(backend.speedup()),
            now: Time::ZERO,
            reports,
            stop: if stop_asked {
                Stop::Early
            } else {
                Stop::NotAsked
            },
            lost: Vec::new(),
            spent: Spent::default(),
        })
    }

    pub(super) fn to_end(mut self, observer: &mut dyn Observer) -> Result<RunReport, DriverError> {
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
            stopped: self.stop == Stop::Asked,
        })
    }

    fn drive(&mut self, observer: &mut dyn Observer) -> Result<(), DriverError> {
        let mut actions = Actions::new();
        self.feed(Event::Started, &mut actions, observer)?;
        if self.stop == Stop::Early {
            self.stop = Stop::NotAsked;
            self.on_report(Report::Stop, &mut actions, observer)?;
        }
        while !self.core.is_finished() {
            if self.ledger.is_idle() {
                return Err(self.stalled());
            }
            let report = self.receive();
            let began = self.clock.wall();
            let observed = self.spent.observers;
            match report {
                Some(report) => self.on_report(report, &mut actions, observer)?,
                None => {
                    self.ledger.take_wake();
                    self.feed(Event::WakeDue, &mut actions, observer)?;
                }
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
                if piece == Piece::Forget {
                    self.release_held();
                }
                match fact(worker, &piece, outcome) {
                    Some(event) => self.feed(event, actions, observer),
                    None => Ok(()),
                }
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
            Report::Stop if self.stop == Stop::NotAsked => {
                self.stop = Stop::Asked;
                self.feed(Event::StopAsked, actions, observer)
            }
            Report::Stop | Report::Ready => Ok(()),
            Report::NotStarted { worker, message } => Err(DriverError::Start { worker, message }),
        }
    }

    /// A lost worker's open work is answered as failed, its memory is given up, and the core is told.
    fn on_panic(
        &mut self,
        worker: WorkerId,
        piece: &Piece,
        message: String,
        actions: &mut Actions,
        observer: &mut dyn Observer,
    ) -> Result<(), DriverError> {
        let known = self.crew.has(worker) || self.ledger.close(worker, piece);
        if !known {
            return Ok(());
        }
        let site = Site {
            worker,
            microbatch: piece.microbatch(),
        };
        if matches!(piece, Piece::Apply { .. }) {
            return Err(DriverError::WorkerPanicked { site, message });
        }
        self.lost.push(Loss { site, message });
        self.crew.dismiss(worker);
        self.store.lose(worker.into());
        while let Some(piece) = self.ledger.close_first(worker) {
            if matches!(piece, Piece::Apply { .. }) {
                return Err(self.last_panic());
            }
            if let Some(event) = fact(worker, &piece, Outcome::Failed) {
                self.feed(event, actions, observer)?;
            }
        }
        let event = match worker {
            WorkerId::Target(id) => Event::TargetLost(id),
            WorkerId::Drafter(id) => Event::DrafterLost(id),
        };
        self.feed(event, actions, observer)?;
        self.release_held();
        Ok(())
    }

    /// One record: stamp, ask the core, show, carry out.
    fn feed(
        &mut self,
        event: Event,
        actions: &mut Actions,
        observer: &mut dyn Observer,
    ) -> Result<(), DriverError> {
        self.now = self.now.max(self.clock.now());
        self.spent.events += 1;
        if let Event::StepApplied { step, group } = event {
            self.ledger.on_applied(step, group);
        }
        self.core.on(self.now, event, actions);
        self.slots.record(&event, actions.as_slice());
        if let Some(breach) = self.slots.breach() {
            panic!("slots and bytes are within the policy's caps: {breach}");
        }
        let began = self.clock.wall();
        observer
            .on_record(self.now, &event, actions.as_slice(), &self.core)
            .map_err(DriverError::Observer)?;
        self.spent.observers += self.clock.wall() - began;
        for action in actions.as_slice() {
            self.carry_out(*action);
        }
        actions.clear();
        Ok(())
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Forward { target, microbatch } => {
                let bytes = self.core.plan().microbatch(microbatch).bytes;
                self.order(
                    WorkerId::Target(target),
                    Piece::Forward { microbatch, bytes },
                );
            }
            Action::Stage {
                target,
                microbatch,
                drafter,
            } => {
                let to = drafter.map_or(Place::Host, Place::Drafter);
                let leg = Leg::Stage;
                self.order(
                    WorkerId::Target(target),
                    Piece::Copy {
                        leg,
                        microbatch,
                        to,
                    },
                );
            }
            Action::Fetch {
                drafter,
                microbatch,
                ..
            } => {
                let (leg, to) = (Leg::Fetch, Place::Drafter(drafter));
                self.order(
                    WorkerId::Drafter(drafter),
                    Piece::Copy {
                        leg,
                        microbatch,
                        to,
                    },
                );
            }
            Action::Train {
                drafter,
                microbatch,
                step,
            } => {
                self.order(
                    WorkerId::Drafter(drafter),
                    Piece::Train { microbatch, step },
                );
            }
            Action::Apply { step, group } => self.apply(step, group),
            Action::Forget { drafter } => {
                self.ledger.on_forget(drafter);
                if self.crew.has(WorkerId::Drafter(drafter)) {
                    self.order(WorkerId::Drafter(drafter), Piece::Forget);
                }
            }
            Action::Admit { .. } => {}
            Action::Discard { microbatch } => self.store.discard(microbatch),
            Action::Wake { at } => self.ledger.wake_at(at),
            Action::StopTarget { target } => self.crew.stop(WorkerId::Target(target)),
            Action::StopDrafter { drafter } => self.crew.stop(WorkerId::Drafter(drafter)),
        }
    }

    fn apply(&mut self, step: StepId, group: Group) {
        let members = match group {
            Group::All => self.drafters_left(),
            Group::One(drafter) => vec![drafter],
        };
        self.held.push(Piece::Apply {
            step,
            group,
            members,
        });
        self.release_held();
    }

    /// Orders the optimizer steps that waited, once no drafter has anything left to forget.
    fn release_held(&mut self) {
        if self.ledger.is_forgetting() {
            return;
        }
        for piece in std::mem::take(&mut self.held) {
            let Piece::Apply { ref members, .. } = piece else {
                unreachable!("only optimizer steps are held");
            };
            // A drafter that has been stopped has no thread to lead with, but its contribution counts.
            let mut leaders = members.iter().map(|id| WorkerId::Drafter(*id));
            let leader = leaders.find(|id| self.crew.has(*id));
            let leader = leader.expect("an optimizer step has a drafter to lead it");
            self.order(leader, piece);
        }
    }

    /// All drafters that are not lost, in order.
    fn drafters_left(&self) -> Vec<DrafterId> {
        let is_lost = |id| {
            self.lost
                .iter()
                .any(|loss| loss.site.worker == WorkerId::Drafter(id))
        };
        let all = (0..self.core.policy().drafters).map(DrafterId);
        all.filter(|id| !is_lost(*id)).collect()
    }

    fn order(&mut self, worker: WorkerId, piece: Piece) {
        let ordered = Ordered {
            at: self.now,
            clock: self.clock,
        };
        self.ledger.open(worker, piece.clone());
        self.crew.send(worker, Order { piece, ordered });
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
