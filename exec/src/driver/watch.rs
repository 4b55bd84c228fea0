//! The watchdog: a thread that turns a hang into an error, and does nothing else.

use crate::clock::Clock;
use crate::error::{DriverError, Site};
use crate::worker::Report;
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The pieces of work under way and when each is overdue.
#[derive(Debug)]
pub(crate) struct Watch {
    clock: Clock,
    deadline: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Keyed by the order of beginning, which is the order of becoming overdue.
    open: BTreeMap<u64, (Site, Duration)>,
    begun: u64,
    closed: bool,
}

impl Watch {
    fn new(deadline: Duration) -> Arc<Self> {
        Arc::new(Self {
            clock: Clock::start(),
            deadline,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Watches until the returned guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>, site: Site) -> Watched {
        let mut state = self.lock();
        let number = state.begun;
        state.begun += 1;
        let overdue = self.clock.wall() + self.deadline;
        if state.open.insert(number, (site, overdue)).is_none() && state.open.len() == 1 {
            self.changed.notify_all();
        }
        Watched {
            watch: Arc::clone(self),
            number,
        }
    }

    /// Starts the thread that reports the first piece that is overdue, and then ends.
    fn spawn(self: &Arc<Self>, reports: Sender<Report>) -> std::io::Result<JoinHandle<()>> {
        let watch = Arc::clone(self);
        std::thread::Builder::new()
            .name("watch".into())
            .spawn(move || watch.run(&reports))
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    fn run(&self, reports: &Sender<Report>) {
        let mut state = self.lock();
        while !state.closed {
            let first = state.open.first_key_value().map(|(_, open)| *open);
            let Some((site, overdue)) = first else {
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = overdue.saturating_sub(self.clock.wall());
            if left.is_zero() {
                let _ = reports.send(Report::Hung(site));
                return;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A piece of work that is watched.
pub(crate) struct Watched {
    watch: Arc<Watch>,
    number: u64,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watch.lock().open.remove(&self.number);
    }
}

/// The watch with its thread, which ends with it.
pub(super) struct Watchdog {
    pub(super) watch: Arc<Watch>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    pub(super) fn start(deadline: Duration, reports: &Sender<Report>) -> Result<Self, DriverError> {
        let watch = Watch::new(deadline);
        let thread = watch.spawn(reports.clone()).map_err(DriverError::Thread)?;
        Ok(Self {
            watch,
            thread: Some(thread),
        })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.watch.close();
        if let Some(thread) = self.thread.take() {
            // The watchdog's thread has nothing to say beyond its report.
            let _ = thread.join();
        }
    }
}
