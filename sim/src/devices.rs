//! GPUs that several workers share: each piece of work goes at a speed that depends on what else is under way on its GPU.
//!
//! Between two events the speeds are constant, so it is enough to bring what remains of each piece up to date whenever one begins or ends.
//! A worker that has a GPU of its own takes no part in this, unless rests of its GPU change its speed.

use crate::spec::{Hardware, Sharing};
use shared::id::MicrobatchId;
use shared::load::{Load, Rests};
use shared::policy::{DeviceMap, Policy, Transport};
use shared::time::{Span, Time};

/// What a worker does on its GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A target's forward.
    Forward,
    /// A drafter's forward and backward.
    Train,
    /// An optimizer step, which counts as a training for those beside it.
    Apply,
}

/// All GPUs whose speed changes.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    gpus: Vec<SharedGpu>,
    /// GPU in `gpus` by target, and by drafter; `None` for one of its own.
    targets: Vec<Option<usize>>,
    drafters: Vec<Option<usize>>,
    /// Copies under way that slow compute, and on which GPU.
    copies: Vec<(MicrobatchId, usize)>,
    /// What they leave of its speed.
    beside_copy: f64,
}

#[derive(Clone, Debug)]
struct SharedGpu {
    speeds: Speeds,
    copies: u32,
    running: Vec<Running>,
    load: Load,
    rests: Rests,
    at: Time,
}

/// A piece of work under way.
#[derive(Clone, Copy, Debug)]
struct Running {
    /// Its slot of the event list.
    slot: usize,
    work: Work,
    /// Time that all of it takes alone. (ns)
    alone: f64,
    /// Time that it would still take alone. (ns)
    remaining: f64,
}

/// Speeds by how many forwards and trainings are under way.
#[derive(Clone, Debug)]
struct Speeds {
    /// `[forwards][trains]`, each to its most.
    table: Vec<(f64, f64)>,
    trains: usize,
    kernel_ratio: Option<f64>,
    /// Of an optimizer step beside forwards, where it is not a training's.
    step: Option<f64>,
    /// What a copy leaves of all of them.
    beside_copy: f64,
}

impl Speeds {
    fn of(sharing: &Sharing, (targets, drafters): (usize, usize), beside_copy: f64) -> Self {
        let trains = drafters + 1;
        let state = |i: usize| sharing.rates((i / trains) as u16, (i % trains) as u16);
        Self {
            table: (0..(targets + 1) * trains).map(state).collect(),
            trains,
            kernel_ratio: sharing.kernel_ratio,
            step: sharing.step_rate,
            beside_copy,
        }
    }

    /// How the speed of each running piece follows from what is under way.
    fn at(&self, gpu: &SharedGpu) -> Speed {
        let running = &gpu.running;
        let forwards = running.iter().filter(|r| r.work == Work::Forward).count();
        let trains = running.len() - forwards;
        let (forward, train) = self.table[forwards * self.trains + trains];
        let share = if gpu.copies > 0 {
            self.beside_copy
        } else {
            1.0
        };
        let takes_turns = forwards > 0 && trains > 0;
        match self.kernel_ratio.filter(|_| takes_turns) {
            // An optimizer step has few kernels, so it is no such turn.
            Some(ratio) if running.iter().all(|r| r.work != Work::Apply) => {
                let total = forwards as f64 * forward + trains as f64 * train;
                let lengths: f64 = running.iter().map(|r| r.kernel(ratio)).sum();
                Speed::ByKernel {
                    ratio,
                    factor: share * total / lengths.max(1.0),
                    gains: gpu.rests.gains(&gpu.load),
                }
            }
            _ => {
                let [forward_gain, train_gain] = gpu.rests.gains(&gpu.load);
                let step = self.step.filter(|_| forwards > 0).unwrap_or(train);
                Speed::ByKind {
                    forward: share * forward * forward_gain,
                    train: share * train * train_gain,
                    step: share * step * train_gain,
                }
            }
        }
    }
}

/// The speeds of a moment.
#[derive(Clone, Copy, Debug)]
enum Speed {
    /// The same for all of a kind.
    ByKind { forward: f64, train: f64, step: f64 },
    /// In proportion to the length of kernels.
    ByKernel {
        ratio: f64,
        factor: f64,
        /// What forwards and trainings gain by rests.
        gains: [f64; 2],
    },
}

impl Devices {
    /// The GPUs of the workers of `policy` on `hardware`, as far as they are shared or rests change their speed.
    pub fn new(hardware: &Hardware, policy: &Policy) -> Self {
        let rests = hardware.rests;
        let alone = Sharing::default();
        let (sharing, map) = match &hardware.sharing {
            Some(sharing) => (sharing, DeviceMap::of(policy, usize::from(hardware.gpus))),
            None if rests.is_none() => return Self::none(),
            None => (&alone, DeviceMap::apart(policy)),
        };
        let link = match policy.transport {
            Transport::HostPageable => hardware.host_pageable.as_ref(),
            Transport::HostPinned => hardware.host_pinned.as_ref(),
            Transport::P2p => hardware.p2p.as_ref(),
            Transport::Local => None,
        };
        let rate = link.and_then(|link| link.compute_rate).unwrap_or(1.0);
        let beside_copy = if hardware.sharing.is_some() {
            rate
        } else {
            1.0
        };
        let mut gpus = Vec::new();
        let mut rows = vec![None; map.gpus()];
        for (gpu, row) in rows.iter_mut().enumerate() {
            let (targets, drafters) = map.on(gpu);
            if targets + drafters > 1 || targets + drafters == 1 && !rests.is_none() {
                *row = Some(gpus.len());
                gpus.push(SharedGpu {
                    speeds: Speeds::of(sharing, (targets, drafters), beside_copy),
                    copies: 0,
                    running: Vec::new(),
                    load: Load::default(),
                    rests,
                    at: Time::ZERO,
                });
            }
        }
        Self {
            gpus,
            targets: map.targets.iter().map(|&gpu| rows[gpu]).collect(),
            drafters: map.drafters.iter().map(|&gpu| rows[gpu]).collect(),
            copies: Vec::new(),
            beside_copy,
        }
    }

    /// No GPU is shared.
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether every worker has a GPU of its own.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.gpus.is_empty()
    }

    #[inline]
    pub(crate) fn of_target(&self, target: usize) -> Option<usize> {
        self.targets.get(target).copied().flatten()
    }

    #[inline]
    pub(crate) fn of_drafter(&self, drafter: usize) -> Option<usize> {
        self.drafters.get(drafter).copied().flatten()
    }

    /// Begins a piece of work that takes `alone` by itself.
    pub(crate) fn begin(&mut self, gpu: usize, now: Time, slot: usize, work: Work, alone: Span) {
        let gpu = &mut self.gpus[gpu];
        gpu.advance(now);
        gpu.running.push(Running {
            slot,
            work,
            alone: alone.as_ns() as f64,
            remaining: alone.as_ns() as f64,
        });
    }

    /// A copy begins at one end of its way; `false` where it slows nobody.
    pub(crate) fn begin_copy(&mut self, gpu: usize, now: Time, of: MicrobatchId) -> bool {
        if self.beside_copy >= 1.0 {
            return false;
        }
        self.copies.push((of, gpu));
        self.gpus[gpu].advance(now);
        self.gpus[gpu].copies += 1;
        true
    }

    /// A copy has ended, or was given up; the GPU that it slowed.
    pub(crate) fn end_copy(&mut self, now: Time, of: MicrobatchId) -> Option<usize> {
        let at = self.copies.iter().position(|(copy, _)| *copy == of)?;
        let (_, gpu) = self.copies.swap_remove(at);
        self.gpus[gpu].advance(now);
        self.gpus[gpu].copies -= 1;
        Some(gpu)
    }

    /// Ends the piece of work of a slot, or gives it up. Nothing where there is none.
    pub(crate) fn end(&mut self, gpu: usize, now: Time, slot: usize) {
        let gpu = &mut self.gpus[gpu];
        gpu.advance(now);
        gpu.running.retain(|running| running.slot != slot);
    }

    /// When each piece of work on a GPU ends if nothing begins or ends before, by slot.
    pub(crate) fn times(&self, gpu: usize) -> impl Iterator<Item = (usize, Time)> {
        let gpu = &self.gpus[gpu];
        let speeds = gpu.speeds.at(gpu);
        gpu.running.iter().map(move |running| {
            let ns = (running.remaining.max(0.0) / running.speed(speeds)).ceil();
            (running.slot, gpu.at + Span::from_ns(ns as u64))
        })
    }
}

impl Running {
    fn speed(&self, speed: Speed) -> f64 {
        match (speed, self.work) {
            (Speed::ByKind { forward, .. }, Work::Forward) => forward,
            (Speed::ByKind { train, .. }, Work::Train) => train,
            (Speed::ByKind { step, .. }, Work::Apply) => step,
            (
                Speed::ByKernel {
                    ratio,
                    factor,
                    gains: [forward, train],
                },
                work,
            ) => {
                let gain = if work == Work::Forward {
                    forward
                } else {
                    train
                };
                factor * gain * self.kernel(ratio)
            }
        }
    }

    /// The length of its kernels, in those of a forward that takes as long.
    fn kernel(&self, ratio: f64) -> f64 {
        match self.work {
            Work::Forward => self.alone,
            Work::Train | Work::Apply => self.alone / ratio,
        }
    }
}

impl SharedGpu {
    fn advance(&mut self, now: Time) {
        let span = now - self.at;
        self.at = now;
        if span == Span::ZERO {
            return;
        }
        if !self.running.is_empty() {
            let speeds = self.speeds.at(self);
            for running in &mut self.running {
                running.remaining -= span.as_ns() as f64 * running.speed(speeds);
            }
        }
        if !self.rests.is_none() {
            self.load.pass(span, !self.running.is_empty());
        }
    }
}

#[cfg(test)]
mod tests;
