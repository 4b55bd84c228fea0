//! The worker threads of a run: made together, sent orders, stopped one by one, joined always.

use super::Watch;
use crate::backend::Backend;
use crate::error::{DriverError, WorkerId};
use crate::store::Store;
use crate::worker::{Duty, Order, Piece, Report, Station};
use shared::id::{DrafterId, TargetId};
use shared::policy::Policy;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Orders that may wait for one thread. The core keeps a worker's open work far below; a full channel is a bug, not back-pressure.
const ORDERS_MAX: usize = 1024;

/// All worker threads. Dropping it joins them.
pub(super) struct Crew {
    lanes: BTreeMap<WorkerId, Lane>,
    threads: Vec<(WorkerId, JoinHandle<()>)>,
}

/// The ways to one worker.
struct Lane {
    computes: SyncSender<Order>,
    copies: SyncSender<Order>,
    quit: Arc<AtomicBool>,
}

impl Crew {
    /// Makes all threads and waits until each has made what it works with.
    pub(super) fn start<B: Backend>(
        backend: &Arc<B>,
        policy: &Policy,
        store: &Arc<Store<B::Hidden>>,
        watch: Option<&Arc<Watch>>,
        reports: (&Sender<Report>, &Receiver<Report>),
    ) -> Result<Self, DriverError> {
        let mut crew = Self {
            lanes: BTreeMap::new(),
            threads: Vec::new(),
        };
        for worker in workers(policy) {
            let quit = Arc::new(AtomicBool::new(false));
            let mut channels = Vec::new();
            for duty in duties(policy.overlap) {
                let station = Station {
                    backend: Arc::clone(backend),
                    worker,
                    duty: *duty,
                    store: Arc::clone(store),
                    watch: watch.cloned(),
                    reports: reports.0.clone(),
                    quit: Arc::clone(&quit),
                };
                channels.push(crew.spawn(station)?);
            }
            let lane = Lane {
                computes: channels[0].clone(),
                copies: channels[channels.len() - 1].clone(),
                quit,
            };
            crew.lanes.insert(worker, lane);
        }
        crew.await_ready(reports)?;
        Ok(crew)
    }

    /// Sends a piece of work to the thread whose duty it is.
    ///
    /// A thread that has just panicked takes no orders any more; its report is on its way, and the driver answers for it then.
    pub(super) fn send(&self, worker: WorkerId, order: Order) {
        let Some(lane) = self.lanes.get(&worker) else {
            return;
        };
        let way = match order.piece {
            Piece::Copy { .. } => &lane.copies,
            _ => &lane.computes,
        };
        if let Err(std::sync::mpsc::TrySendError::Full(_)) = way.try_send(order) {
            panic!("a worker has at most {ORDERS_MAX} open orders: {worker}");
        }
    }

    /// Takes no more orders for a worker; what it was sent is still carried out.
    pub(super) fn stop(&mut self, worker: WorkerId) {
        self.lanes.remove(&worker);
    }

    /// As [`Crew::stop`], and what waits is void.
    pub(super) fn dismiss(&mut self, worker: WorkerId) {
        if let Some(lane) = self.lanes.remove(&worker) {
            lane.quit.store(true, Ordering::Release);
        }
    }

    /// Whether a worker still takes orders.
    pub(super) fn has(&self, worker: WorkerId) -> bool {
        self.lanes.contains_key(&worker)
    }

    /// Drafters that take orders, in order.
    pub(super) fn drafters(&self) -> impl Iterator<Item = DrafterId> {
        self.lanes.keys().filter_map(|worker| match worker {
            WorkerId::Drafter(id) => Some(*id),
            WorkerId::Target(_) => None,
        })
    }

    /// Leaves the threads of these workers to the end of the process: one of them hangs, and none can be interrupted.
    pub(super) fn abandon(&mut self, workers: &[WorkerId]) {
        self.threads.retain(|(worker, _)| !workers.contains(worker));
    }

    /// Closes all channels, voids the orders that wait and joins the threads.
    pub(super) fn join(&mut self) {
        for lane in self.lanes.values() {
            lane.quit.store(true, Ordering::Release);
        }
        self.lanes.clear();
        for (_, thread) in self.threads.drain(..) {
            // Panics of workers are caught in the thread and reported; there is nothing left to learn from the join.
            let _ = thread.join();
        }
    }

    fn spawn<B: Backend>(&mut self, station: Station<B>) -> Result<SyncSender<Order>, DriverError> {
        let worker = station.worker;
        let (sender, receiver) = sync_channel(ORDERS_MAX);
        let thread = std::thread::Builder::new()
            .name(thread_name(worker, station.duty))
            .spawn(move || station.run(&receiver))
            .map_err(|error| DriverError::Start {
                worker,
                message: format!("no thread could be made: {error}"),
            })?;
        self.threads.push((worker, thread));
        Ok(sender)
    }

    /// A stop asked for meanwhile is put back, to be heard once the run has begun.
    fn await_ready(
        &self,
        (sender, receiver): (&Sender<Report>, &Receiver<Report>),
    ) -> Result<(), DriverError> {
        let mut stop_asked = false;
        let mut waiting = self.threads.len();
        while waiting > 0 {
            match receiver.recv().expect("the driver holds a sender itself") {
                Report::Ready => waiting -= 1,
                Report::Stop => stop_asked = true,
                Report::NotStarted { worker, message } => {
                    return Err(DriverError::Start { worker, message });
                }
                report => unreachable!("no work is reported before the start: {report:?}"),
            }
        }
        if stop_asked {
            let _ = sender.send(Report::Stop);
        }
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.join();
    }
}

fn workers(policy: &Policy) -> impl Iterator<Item = WorkerId> {
    let targets = (0..policy.targets).map(|id| WorkerId::Target(TargetId(id)));
    let drafters = (0..policy.drafters).map(|id| WorkerId::Drafter(DrafterId(id)));
    targets.chain(drafters)
}

fn duties(overlap: bool) -> &'static [Duty] {
    const COMPUTES: Duty = Duty {
        computes: true,
        copies: false,
    };
    const COPIES: Duty = Duty {
        computes: false,
        copies: true,
    };
    const BOTH: Duty = Duty {
        computes: true,
        copies: true,
    };
    if overlap {
        &[COMPUTES, COPIES]
    } else {
        &[BOTH]
    }
}

fn thread_name(worker: WorkerId, duty: Duty) -> String {
    let id = match worker {
        WorkerId::Target(id) => id.to_string(),
        WorkerId::Drafter(id) => id.to_string(),
    };
    if duty.computes {
        id
    } else {
        format!("{id}-copy")
    }
}
