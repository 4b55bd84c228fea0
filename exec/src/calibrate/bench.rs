//! Worker threads that are given one task after another.

use super::{
    Backend, CalibrateError, Clock, CopyJob, DrafterId, MicrobatchId, Policy, Span, StepId,
    TargetId, Time, WorkError, WorkerId,
};
use crate::backend::{ApplyJob, Copier, DrafterWorker, Job, Ordered, TargetWorker};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A piece of work for one worker.
pub(super) enum Task<Hidden> {
    Forward(MicrobatchId),
    Copy(CopyJob, Arc<Hidden>),
    Train(MicrobatchId, Arc<Hidden>),
    /// By so many drafters, the first ones.
    Apply(StepId, u16),
}

/// What came of a task.
pub(super) struct Done<Hidden> {
    pub(super) lane: Lane,
    /// When it was heard of.
    pub(super) at: Time,
    pub(super) hidden: Option<Arc<Hidden>>,
}

/// A worker's compute, or its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lane {
    pub(super) worker: WorkerId,
    pub(super) copies: bool,
}

type Answer<Hidden> = (Lane, Result<Option<Arc<Hidden>>, String>);

/// All worker threads; dropping it joins them.
pub(super) struct Bench<Hidden> {
    pub(super) clock: Clock,
    lanes: BTreeMap<Lane, Sender<(Task<Hidden>, Ordered)>>,
    reports: Receiver<Answer<Hidden>>,
    threads: Vec<JoinHandle<()>>,
}

impl<Hidden: Send + Sync + 'static> Bench<Hidden> {
    /// Makes the workers of `policy` on threads of their own and waits until all are there.
    pub(super) fn start<B: Backend<Hidden = Hidden>>(
        backend: &Arc<B>,
        policy: &Policy,
    ) -> Result<Self, CalibrateError> {
        let (sender, reports) = channel();
        let mut bench = Self {
            clock: Clock::scaled(backend.speedup()),
            lanes: BTreeMap::new(),
            reports,
            threads: Vec::new(),
        };
        let targets = (0..policy.targets).map(|id| WorkerId::Target(TargetId(id)));
        let drafters = (0..policy.drafters).map(|id| WorkerId::Drafter(DrafterId(id)));
        let members: Vec<DrafterId> = (0..policy.drafters).map(DrafterId).collect();
        for worker in targets.chain(drafters) {
            for copies in [false, true] {
                let lane = Lane { worker, copies };
                let (tasks, orders) = channel();
                let hands = Hands {
                    backend: Arc::clone(backend),
                    lane,
                    members: members.clone(),
                    reports: sender.clone(),
                };
                let thread = std::thread::Builder::new()
                    .name(format!("{worker}"))
                    .spawn(move || hands.run(&orders))
                    .map_err(|error| failed(worker, format!("no thread could be made: {error}")))?;
                bench.threads.push(thread);
                bench.lanes.insert(lane, tasks);
            }
        }
        for _ in 0..bench.threads.len() {
            bench.receive()?;
        }
        Ok(bench)
    }

    pub(super) fn ordered(&self) -> Ordered {
        Ordered {
            at: self.clock.now(),
            clock: self.clock,
        }
    }

    /// Gives a worker a task; returns the instant of the order.
    pub(super) fn send(&self, worker: WorkerId, task: Task<Hidden>) -> Time {
        let copies = matches!(task, Task::Copy(..));
        let ordered = self.ordered();
        // A thread that is gone has left its error among the reports.
        let _ = self.lanes[&Lane { worker, copies }].send((task, ordered));
        ordered.at
    }

    /// The next report.
    pub(super) fn receive(&self) -> Result<Done<Hidden>, CalibrateError> {
        let (lane, result) = self.reports.recv().map_err(|_| {
            let first = self.lanes.keys().next().map(|lane| lane.worker);
            failed(
                first.unwrap_or(super::TARGET),
                "all threads are gone".into(),
            )
        })?;
        let at = self.clock.now();
        let hidden = result.map_err(|message| failed(lane.worker, message))?;
        Ok(Done { lane, at, hidden })
    }

    /// The time since `began`.
    pub(super) fn since(&self, began: Time) -> Span {
        self.clock.now() - began
    }
}

impl<Hidden> Drop for Bench<Hidden> {
    fn drop(&mut self) {
        self.lanes.clear();
        for thread in self.threads.drain(..) {
            // Panics are caught in the thread and reported.
            let _ = thread.join();
        }
    }
}

fn failed(worker: WorkerId, message: String) -> CalibrateError {
    CalibrateError::Worker { worker, message }
}

/// What one thread works with.
struct Hands<B: Backend> {
    backend: Arc<B>,
    lane: Lane,
    members: Vec<DrafterId>,
    reports: Sender<Answer<B::Hidden>>,
}

enum Tools<Hidden> {
    Target(Box<dyn TargetWorker<Hidden>>),
    Drafter(Box<dyn DrafterWorker<Hidden>>),
    Copier(Box<dyn Copier<Hidden>>),
}

impl<B: Backend> Hands<B> {
    fn run(self, orders: &Receiver<(Task<B::Hidden>, Ordered)>) {
        let mut tools = match guarded(|| self.tools()) {
            Ok(tools) => tools,
            Err(message) => {
                let _ = self.reports.send((self.lane, Err(message)));
                return;
            }
        };
        let _ = self.reports.send((self.lane, Ok(None)));
        while let Ok((task, ordered)) = orders.recv() {
            let result = guarded(|| tools.carry_out(task, ordered, &self.members));
            // Nobody may be left to hear of it.
            let _ = self.reports.send((self.lane, result));
        }
    }

    fn tools(&self) -> Result<Tools<B::Hidden>, WorkError> {
        let Lane { worker, copies } = self.lane;
        Ok(match worker {
            _ if copies => Tools::Copier(self.backend.copier(worker)?),
            WorkerId::Target(id) => Tools::Target(self.backend.target(id)?),
            WorkerId::Drafter(id) => Tools::Drafter(self.backend.drafter(id)?),
        })
    }
}

impl<Hidden> Tools<Hidden> {
    fn carry_out(
        &mut self,
        task: Task<Hidden>,
        ordered: Ordered,
        members: &[DrafterId],
    ) -> Result<Option<Arc<Hidden>>, WorkError> {
        let job = |microbatch| Job {
            microbatch,
            ordered,
        };
        match (self, task) {
            (Self::Target(target), Task::Forward(id)) => {
                target.forward(job(id)).map(|made| Some(Arc::new(made)))
            }
            (Self::Copier(copier), Task::Copy(job, hidden)) => {
                let job = CopyJob { ordered, ..job };
                copier.copy(job, &hidden).map(|copy| Some(Arc::new(copy)))
            }
            (Self::Drafter(drafter), Task::Train(id, hidden)) => {
                drafter.train(job(id), StepId(0), &hidden).map(|()| None)
            }
            (Self::Drafter(drafter), Task::Apply(step, count)) => drafter
                .apply(ApplyJob { step, ordered }, &members[..usize::from(count)])
                .map(|()| None),
            _ => Err(WorkError::Fatal(
                "was given a task of another kind of worker".to_owned(),
            )),
        }
    }
}

/// Runs `work`; an error or a panic becomes its message.
fn guarded<T>(work: impl FnOnce() -> Result<T, WorkError>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(payload) => {
            let text = payload
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            Err(format!("it panicked: {}", text.unwrap_or("no message")))
        }
    }
}
