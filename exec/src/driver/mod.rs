//! One thread runs the core; workers are threads of their own.
//!
//! ```text
//! worker threads --reports--> one channel --> stamp --> Core::on --> orders --> worker threads, then Observer
//! ```
//!
//! The order of the channel is the history: the core sees nothing else, so a recorded run replays through it whatever the threads
//! did. The driver decides nothing. It translates actions into orders and reports into events, and it keeps the books that an orderly
//! end needs: who works on what, which hidden states live where, who is lost.
//!
//! With the policy's `overlap`, each worker has a second thread that copies; without, its one thread copies between pieces of work. An
//! optimizer step is led by one member of its group, whose thread sums, applies and publishes.

mod crew;
mod fact;
mod ledger;
mod orders;
mod run;
mod watch;

use crate::backend::Backend;
use crate::error::{DriverError, Site};
use crate::store::{Occupied, Peaks};
use crate::worker::Report;
use run::Run;
use shared::core::{Action, Core, Event};
use shared::time::Time;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

pub(crate) use watch::Watch;

/// Why an observer could not keep its record.
pub type ObserverError = Box<dyn std::error::Error + Send + Sync>;

/// Sees every record of a run as it is made, on the driver's thread.
pub trait Observer {
    /// Takes in an event, the actions it caused and the core after it. Workers have their orders by then, except at an
    /// [`Event::StepApplied`], whose actions are carried out when this returns: nobody works on the weights until then.
    ///
    /// An error ends the run.
    fn on_record(
        &mut self,
        now: Time,
        event: &Event,
        actions: &[Action],
        core: &Core,
    ) -> Result<(), ObserverError>;
}

/// Observes nothing.
impl Observer for () {
    fn on_record(
        &mut self,
        _: Time,
        _: &Event,
        _: &[Action],
        _: &Core,
    ) -> Result<(), ObserverError> {
        Ok(())
    }
}

/// How a run is driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Wall time after which a piece of work counts as hung; `None` waits for ever.
    pub deadline: Option<Duration>,
}

/// A run that is ready to start.
#[derive(Debug)]
pub struct Driver<B: Backend> {
    core: Core,
    backend: Arc<B>,
    options: Options,
    reports: (Sender<Report>, Receiver<Report>),
}

impl<B: Backend> Driver<B> {
    /// Nothing runs yet.
    pub fn new(core: Core, backend: Arc<B>, options: Options) -> Self {
        Self {
            core,
            backend,
            options,
            reports: channel(),
        }
    }

    /// A handle by which another thread, or a signal, asks for an orderly stop.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.reports.0.clone())
    }

    /// Runs to the end on the calling thread. All threads are joined and all hidden states freed when it returns.
    ///
    /// # Errors
    /// See [`DriverError`].
    ///
    /// # Panics
    /// When the core breaks a contract, such as a cap of its own policy; the message is the rule.
    pub fn run(self, observer: &mut dyn Observer) -> Result<RunReport, DriverError> {
        let Self {
            core,
            backend,
            options,
            reports: (sender, receiver),
        } = self;
        Run::start(core, backend, options, sender, receiver)?.finish(observer)
    }
}

/// Asks a run to stop in order: the optimizer step under way is finished, nothing beyond it is begun.
#[derive(Clone, Debug)]
pub struct StopHandle(Sender<Report>);

impl StopHandle {
    /// Asks. Asking again, or after the end, has no effect.
    pub fn stop(&self) {
        let _ = self.0.send(Report::Stop);
    }
}

/// What a run was, beyond its records.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// When the last event came.
    pub end: Time,
    /// How long it took on the wall, from the first event on.
    pub wall: Duration,
    /// How much of that the driver took from hearing of an end to the last order that follows from it: what workers wait for.
    pub dispatch: Duration,
    /// How much of that the driver spent on checks of caps and in observers, when workers had their orders.
    pub observers: Duration,
    /// Events.
    pub events: u64,
    /// The most bytes of hidden states in memory.
    pub peaks: Peaks,
    /// The most slots and bytes that were granted.
    pub slots_peak: Occupied,
    /// Workers that panicked on the way, and how.
    pub lost: Vec<Loss>,
    /// Whether a stop was asked for.
    pub stopped: bool,
}

impl RunReport {
    /// Dispatch time as a share of wall time.
    pub fn dispatch_share(&self) -> f64 {
        self.dispatch.as_secs_f64() / self.wall.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// A worker that panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Who, and on what.
    pub site: Site,
    /// What the panic said.
    pub message: String,
}
