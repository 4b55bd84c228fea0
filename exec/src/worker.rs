//! Worker threads: they carry out orders one after the other and report how each ended.
//!
//! A panic is caught around each piece of work, reported, and ends the thread. Everything a thread has in common with others is the
//! store, the watch and the channel of reports.

use crate::backend::{
    ApplyJob, Backend, Copier, CopyJob, DrafterWorker, Job, Leg, Ordered, TargetWorker, WorkError,
};
use crate::clock::Clock;
use crate::driver::Watch;
use crate::error::{Site, WorkerId};
use crate::store::{Missing, Place, Store};
use shared::core::Group;
use shared::id::{Bytes, DrafterId, MicrobatchId, StepId};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

/// A piece of work for one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Forward {
        microbatch: MicrobatchId,
        bytes: Bytes,
    },
    Copy {
        leg: Leg,
        microbatch: MicrobatchId,
        to: Place,
    },
    Train {
        microbatch: MicrobatchId,
        step: StepId,
    },
    Apply {
        step: StepId,
        group: Group,
        members: Vec<DrafterId>,
    },
}

impl Piece {
    pub(crate) fn microbatch(&self) -> Option<MicrobatchId> {
        match self {
            Self::Forward { microbatch, .. }
            | Self::Copy { microbatch, .. }
            | Self::Train { microbatch, .. } => Some(*microbatch),
            Self::Apply { .. } => None,
        }
    }
}

/// What a driver sends to a thread.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) piece: Piece,
    pub(crate) ordered: Ordered,
}

/// What a driver hears.
#[derive(Debug)]
pub(crate) enum Report {
    /// A thread has made what it works with.
    Ready,
    /// A thread could not make what it works with, and has ended.
    NotStarted { worker: WorkerId, message: String },
    /// A piece ended.
    Ended {
        worker: WorkerId,
        piece: Piece,
        result: Result<(), WorkError>,
    },
    /// A piece panicked; the thread has ended.
    Panicked {
        worker: WorkerId,
        piece: Piece,
        message: String,
    },
    /// A piece passed the watch's deadline.
    Hung(Site),
    /// The user asked for an orderly stop.
    Stop,
}

/// Which orders a thread takes: those that compute, those that copy, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Duty {
    pub(crate) computes: bool,
    pub(crate) copies: bool,
}

/// One thread's surroundings.
pub(crate) struct Station<B: Backend> {
    pub(crate) backend: Arc<B>,
    pub(crate) worker: WorkerId,
    pub(crate) duty: Duty,
    pub(crate) store: Arc<Store<B::Hidden>>,
    pub(crate) watch: Option<Arc<Watch>>,
    pub(crate) reports: Sender<Report>,
    /// Set when the orders that still wait are void.
    pub(crate) quit: Arc<AtomicBool>,
}

impl<B: Backend> Station<B> {
    /// The thread's body: until the channel of orders is closed.
    ///
    /// A report that cannot be sent has nobody to read it: the driver is gone, and the next `recv` ends the thread too.
    pub(crate) fn run(self, orders: &Receiver<Order>) {
        let worker = self.worker;
        let mut hands = match guarded(|| self.hands()) {
            Ok(Ok(hands)) => hands,
            Ok(Err(error)) => return self.report_not_started(error.to_string()),
            Err(panic) => return self.report_not_started(format!("it panicked: {panic}")),
        };
        let _ = self.reports.send(Report::Ready);
        while let Some(Order { piece, ordered }) = next(orders) {
            if self.quit.load(Ordering::Acquire) {
                return;
            }
            let site = Site {
                worker,
                microbatch: piece.microbatch(),
            };
            let watched = self.watch.as_ref().map(|watch| watch.begin(site));
            let ended = guarded(|| hands.carry_out(&self, &piece, ordered));
            drop(watched);
            match ended {
                Ok(result) => {
                    let _ = self.reports.send(Report::Ended {
                        worker,
                        piece,
                        result,
                    });
                }
                Err(message) => {
                    let _ = self.reports.send(Report::Panicked {
                        worker,
                        piece,
                        message,
                    });
                    return;
                }
            }
        }
    }

    fn report_not_started(&self, message: String) {
        let _ = self.reports.send(Report::NotStarted {
            worker: self.worker,
            message,
        });
    }

    fn hands(&self) -> Result<Hands<B::Hidden>, WorkError> {
        let mut hands = Hands {
            target: None,
            drafter: None,
            copier: None,
        };
        if self.duty.computes {
            match self.worker {
                WorkerId::Target(id) => hands.target = Some(self.backend.target(id)?),
                WorkerId::Drafter(id) => hands.drafter = Some(self.backend.drafter(id)?),
            }
        }
        if self.duty.copies {
            hands.copier = Some(self.backend.copier(self.worker)?);
        }
        Ok(hands)
    }
}

/// The next order; `None` when there will be none.
///
/// Who has just ended a piece is most often given another as soon as the driver has heard of it. To wake a thread costs the driver several
/// times what the order does, so one looks for it a while before it sleeps.
fn next(orders: &Receiver<Order>) -> Option<Order> {
    let clock = Clock::start();
    while clock.wall() < AWAKE {
        match orders.try_recv() {
            Ok(order) => return Some(order),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
    orders.recv().ok()
}

/// How long a thread looks for its next order: a driver that sleeps is awake and has answered by then.
const AWAKE: Duration = Duration::from_micros(150);

/// What a thread works with.
struct Hands<Hidden> {
    target: Option<Box<dyn TargetWorker<Hidden>>>,
    drafter: Option<Box<dyn DrafterWorker<Hidden>>>,
    copier: Option<Box<dyn Copier<Hidden>>>,
}

impl<Hidden> Hands<Hidden> {
    fn carry_out<B: Backend<Hidden = Hidden>>(
        &mut self,
        station: &Station<B>,
        piece: &Piece,
        ordered: Ordered,
    ) -> Result<(), WorkError> {
        let store = &station.store;
        match *piece {
            Piece::Forward { microbatch, bytes } => {
                let target = on_duty(&mut self.target);
                let hidden = target.forward(Job {
                    microbatch,
                    ordered,
                })?;
                store.put(microbatch, station.worker.into(), bytes, hidden);
                Ok(())
            }
            Piece::Copy {
                leg,
                microbatch,
                to,
            } => self.copy(store, leg, microbatch, to, ordered),
            Piece::Train { microbatch, step } => {
                let drafter = on_duty(&mut self.drafter);
                let (hidden, ticket) = store.read(microbatch).map_err(lost)?;
                let job = Job {
                    microbatch,
                    ordered,
                };
                drafter.train(job, step, &hidden)?;
                drop(hidden);
                store.free(microbatch, ticket);
                Ok(())
            }
            Piece::Apply {
                step, ref members, ..
            } => on_duty(&mut self.drafter).apply(ApplyJob { step, ordered }, members),
        }
    }

    fn copy(
        &mut self,
        store: &Store<Hidden>,
        leg: Leg,
        microbatch: MicrobatchId,
        to: Place,
        ordered: Ordered,
    ) -> Result<(), WorkError> {
        let (hidden, from, ticket) = store.depart(microbatch, to).map_err(lost)?;
        let job = CopyJob {
            microbatch,
            leg,
            from,
            to,
            ordered,
        };
        let copied = on_duty(&mut self.copier).copy(job, &hidden);
        drop(hidden);
        let (copy, result) = match copied {
            Ok(copy) => (Some(copy), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let is_current = store.arrive(microbatch, ticket, copy);
        if is_current {
            result
        } else {
            Err(lost(Missing(microbatch)))
        }
    }
}

fn on_duty<T: ?Sized>(hand: &mut Option<Box<T>>) -> &mut T {
    hand.as_mut()
        .expect("an order goes to a thread that has the duty")
}

/// Hidden states that went with a lost worker can be made again.
fn lost(missing: Missing) -> WorkError {
    WorkError::Transient(missing.to_string())
}

/// Runs `work`; a panic becomes its message.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| panic_message(payload.as_ref()))
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
