//! Devices that several workers share: each piece of work goes at a speed that depends on what else is under way.

use crate::backend::Ordered;
use shared::load::{Load, Rests};
use shared::time::{Span, Time};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Which workers share which device, and how they slow each other there.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSharing {
    /// Device of each target.
    pub targets: Vec<usize>,
    /// Device of each drafter.
    pub drafters: Vec<usize>,
    /// Speeds of a forward and of a training, as shares of those alone, by `[forwards][trainings]` under way.
    pub speeds: Vec<Vec<(f64, f64)>>,
    /// Kernels of a training for each of a forward, where speeds are shared by the length of kernels.
    pub kernel_ratio: Option<f64>,
    /// Speed of an optimizer step beside forwards, where it is not a training's.
    pub step_rate: Option<f64>,
    /// What forwards and trainings gain by rests of their device.
    pub rests: Rests,
    /// What a copy leaves of all speeds on its worker's device.
    pub beside_copy: f64,
}

/// What a worker does on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Forward,
    Train,
    Apply,
}

/// The devices of a run; a worker that has one alone has none here.
#[derive(Clone, Debug, Default)]
pub(super) struct Devices {
    targets: Vec<Option<Arc<Device>>>,
    drafters: Vec<Option<Arc<Device>>>,
}

impl Devices {
    pub(super) fn new(sharing: &DeviceSharing) -> Self {
        let all = sharing.targets.iter().chain(&sharing.drafters);
        let count = all.clone().max().map_or(0, |last| last + 1);
        let rests = !sharing.rests.is_none();
        let shared = |device: usize| rests || all.clone().filter(|&&at| at == device).count() > 1;
        let devices: Vec<Option<Arc<Device>>> = (0..count)
            .map(|at| shared(at).then(|| Arc::new(Device::new(sharing))))
            .collect();
        let of = |workers: &[usize]| workers.iter().map(|&at| devices[at].clone()).collect();
        Self {
            targets: of(&sharing.targets),
            drafters: of(&sharing.drafters),
        }
    }

    pub(super) fn of_target(&self, index: usize) -> Option<Arc<Device>> {
        self.targets.get(index).cloned().flatten()
    }

    pub(super) fn of_drafter(&self, index: usize) -> Option<Arc<Device>> {
        self.drafters.get(index).cloned().flatten()
    }
}

/// One shared device.
#[derive(Debug)]
pub(super) struct Device {
    state: Mutex<State>,
    changed: Condvar,
}

impl Device {
    fn new(sharing: &DeviceSharing) -> Self {
        let state = State {
            speeds: sharing.speeds.clone(),
            kernel_ratio: sharing.kernel_ratio,
            step_rate: sharing.step_rate,
            beside_copy: sharing.beside_copy,
            copies: 0,
            load: Load::default(),
            rests: sharing.rests,
            at: Time::ZERO,
            entered: 0,
            running: Vec::new(),
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Returns when work that takes `alone` by itself, begun at the instant of its order, is done.
    pub(super) fn work(&self, work: Work, alone: Span, ordered: Ordered) {
        let mut state = self.lock();
        let number = state.enter(ordered.at, work, alone);
        loop {
            state.advance(ordered.clock.now());
            let Some(left) = state.left(number) else {
                self.changed.notify_all();
                return;
            };
            // It ends later if others come; if others leave they say so.
            let end = state.at + left;
            let bulk = ordered.clock.until(end);
            if bulk > CLOSE {
                let woken = self.changed.wait_timeout(state, bulk - CLOSE);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
            } else {
                drop(state);
                ordered.clock.wait_until(end);
                state = self.lock();
            }
        }
    }

    /// Runs `copy`, beside which all work goes slower.
    pub(super) fn beside<T>(&self, ordered: Ordered, copy: impl FnOnce() -> T) -> T {
        self.change_copies(ordered, 1);
        let copied = copy();
        self.change_copies(ordered, -1);
        copied
    }

    fn change_copies(&self, ordered: Ordered, by: i32) {
        let mut state = self.lock();
        state.advance(ordered.clock.now());
        state.copies += by;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last stretch is waited for precisely, without the lock.
const CLOSE: std::time::Duration = std::time::Duration::from_micros(200);

/// What is under way.
#[derive(Debug)]
struct State {
    speeds: Vec<Vec<(f64, f64)>>,
    kernel_ratio: Option<f64>,
    step_rate: Option<f64>,
    beside_copy: f64,
    copies: i32,
    load: Load,
    rests: Rests,
    at: Time,
    entered: u64,
    running: Vec<Running>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    number: u64,
    work: Work,
    /// Time that all of it takes alone. (ns)
    alone: f64,
    /// Time that it would still take alone. (ns)
    remaining: f64,
}

impl State {
    fn enter(&mut self, at: Time, work: Work, alone: Span) -> u64 {
        self.advance(at);
        self.entered += 1;
        self.running.push(Running {
            number: self.entered,
            work,
            alone: alone.as_ns() as f64,
            remaining: alone.as_ns() as f64,
        });
        self.entered
    }

    /// Time until a piece is done at the present speeds; `None` when it is.
    fn left(&self, number: u64) -> Option<Span> {
        let running = self.running.iter().find(|r| r.number == number)?;
        let ns = (running.remaining / self.speed(running)).ceil();
        Some(Span::from_ns(ns as u64))
    }

    /// Brings all work up to date; what ends on the way leaves its share to the others from that instant on.
    fn advance(&mut self, to: Time) {
        while self.at < to && !self.running.is_empty() {
            let ends = self.running.iter().map(|r| r.remaining / self.speed(r));
            let span = (to - self.at).as_ns() as f64;
            let step = ends.fold(span, f64::min).max(0.0);
            let speeds: Vec<f64> = self.running.iter().map(|r| self.speed(r)).collect();
            for (running, speed) in self.running.iter_mut().zip(speeds) {
                running.remaining -= step * speed;
            }
            // Half a nanosecond is nothing.
            self.running.retain(|running| running.remaining > 0.5);
            let at = to.min(self.at + Span::from_ns(step.ceil() as u64));
            self.pass(at - self.at, true);
            self.at = at;
        }
        if self.at < to {
            self.pass(to - self.at, false);
            self.at = to;
        }
    }

    fn pass(&mut self, span: Span, computes: bool) {
        if !self.rests.is_none() {
            self.load.pass(span, computes);
        }
    }

    fn speed(&self, of: &Running) -> f64 {
        let forwards = self.running.iter().filter(|r| r.work == Work::Forward);
        let forwards = forwards.count();
        let trains = self.running.len() - forwards;
        let row = self.speeds.get(forwards);
        let listed = row.and_then(|row| row.get(trains));
        let even = 1.0 / self.running.len() as f64;
        let (forward, train) = listed.copied().unwrap_or((even, even));
        let share = if self.copies > 0 {
            self.beside_copy
        } else {
            1.0
        };
        let gain = self.rests.gains(&self.load)[usize::from(of.work != Work::Forward)];
        let share = share * gain;
        let takes_turns = forwards > 0 && trains > 0;
        match self.kernel_ratio.filter(|_| takes_turns) {
            Some(ratio) if self.running.iter().all(|r| r.work != Work::Apply) => {
                let total = forwards as f64 * forward + trains as f64 * train;
                let lengths: f64 = self.running.iter().map(|r| r.kernel(ratio)).sum();
                share * total * of.kernel(ratio) / lengths.max(1.0)
            }
            _ => match of.work {
                Work::Forward => share * forward,
                Work::Train => share * train,
                Work::Apply => share * self.step_rate.filter(|_| forwards > 0).unwrap_or(train),
            },
        }
    }
}

impl Running {
    /// The length of its kernels, in those of a forward that takes as long.
    fn kernel(&self, ratio: f64) -> f64 {
        match self.work {
            Work::Forward => self.alone,
            Work::Train | Work::Apply => self.alone / ratio,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    fn state(speeds: Vec<Vec<(f64, f64)>>) -> State {
        State {
            speeds,
            kernel_ratio: None,
            step_rate: None,
            beside_copy: 0.5,
            copies: 0,
            load: Load::default(),
            rests: Rests::default(),
            at: Time::ZERO,
            entered: 0,
            running: Vec::new(),
        }
    }

    #[test]
    fn what_is_not_listed_shares_evenly_and_gets_the_device_back() {
        let mut state = state(Vec::new());
        let long = state.enter(at(0), Work::Forward, Span::from_ns(100));
        let short = state.enter(at(40), Work::Train, Span::from_ns(20));
        state.advance(at(60));
        assert_eq!(state.left(long), Some(Span::from_ns(100)));
        assert_eq!(state.left(short), Some(Span::from_ns(20)));
        state.advance(at(90));
        assert_eq!(state.left(short), None);
        assert_eq!(state.left(long), Some(Span::from_ns(30)));
        state.advance(at(120));
        assert_eq!(state.left(long), None);
    }

    #[test]
    fn listed_speeds_hold_for_their_state() {
        let alone = (1.0, 1.0);
        let mut state = state(vec![vec![alone, alone], vec![alone, (0.8, 0.25)]]);
        let forward = state.enter(at(0), Work::Forward, Span::from_ns(80));
        let train = state.enter(at(0), Work::Train, Span::from_ns(100));
        assert_eq!(state.left(forward), Some(Span::from_ns(100)));
        assert_eq!(state.left(train), Some(Span::from_ns(400)));
        // The forward is done at 100, a quarter of the training too.
        state.advance(at(150));
        assert_eq!(state.left(forward), None);
        assert_eq!(state.left(train), Some(Span::from_ns(25)));
    }

    #[test]
    fn kernels_and_copies_change_speeds() {
        let mut state = state(Vec::new());
        state.kernel_ratio = Some(1.0);
        let forward = state.enter(at(0), Work::Forward, Span::from_ns(300));
        let train = state.enter(at(0), Work::Train, Span::from_ns(100));
        assert_eq!(state.left(forward), Some(Span::from_ns(400)));
        assert_eq!(state.left(train), Some(Span::from_ns(400)));
        state.copies = 1;
        assert_eq!(state.left(train), Some(Span::from_ns(800)));
    }

    #[test]
    fn an_optimizer_step_beside_forwards_has_a_speed_of_its_own() {
        let mut state = state(Vec::new());
        state.step_rate = Some(0.8);
        let step = state.enter(at(0), Work::Apply, Span::from_ns(80));
        assert_eq!(state.left(step), Some(Span::from_ns(80)));
        let train = state.enter(at(0), Work::Train, Span::from_ns(80));
        assert_eq!(state.left(step), Some(Span::from_ns(160)));
        let _forward = state.enter(at(0), Work::Forward, Span::from_ns(300));
        assert_eq!(state.left(step), Some(Span::from_ns(100)));
        assert_eq!(state.left(train), Some(Span::from_ns(240)));
    }

    #[test]
    fn whoever_has_a_device_alone_is_not_slowed() {
        let devices = Devices::new(&DeviceSharing {
            targets: vec![0, 1],
            drafters: vec![2, 2],
            speeds: Vec::new(),
            kernel_ratio: None,
            step_rate: None,
            rests: Rests::default(),
            beside_copy: 1.0,
        });
        assert!(devices.of_target(0).is_none() && devices.of_target(1).is_none());
        assert!(devices.of_drafter(0).is_some() && devices.of_drafter(7).is_none());
    }
}
