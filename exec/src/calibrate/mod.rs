//! What work costs on a backend: each piece measured alone, copies beside compute, and workers of one device beside each other.
//!
//! Pieces are timed as a run times them, from the order to the report, on worker threads that live as they do in a run. The first piece
//! of every shape is kept apart: kernels are chosen and caches filled then. Everything is repeated and nothing is averaged here; whoever
//! fits costs to the times sees them all.

mod bench;
mod copies;
mod rests;
mod stretch;
mod together;

use crate::backend::{Backend, CopyJob, Leg, WorkError};
use crate::clock::Clock;
use crate::error::WorkerId;
use crate::store::Place;
use bench::{Bench, Task};
use shared::id::{DrafterId, MicrobatchId, StepId, TargetId};
use shared::policy::{Placement, Policy, Transport};
use shared::time::{Span, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stretch::Watch;
use thiserror::Error;

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Microbatches that are measured, in this order.
    pub sample: Vec<MicrobatchId>,
    /// Microbatches as they follow each other in a run, each with the measured one whose size it has, or else itself. Not empty unless
    /// copies are all that is wanted.
    pub order: Vec<(MicrobatchId, MicrobatchId)>,
    /// Times that each piece is repeated, its first use aside.
    pub repeats: u32,
    /// Whether copies are all that is wanted: compute was measured before.
    pub copies_only: bool,
    /// Microbatches on their way at a time in the stretch of a run: one where target and drafter share a device, so that each has it to
    /// itself; as many as there is room for where each has its own, so that nobody waits who would not in a run.
    pub in_hand: usize,
    /// Whether it is watched what a device gains by rests.
    pub rests: bool,
    /// Forwards and trainings that are to be under way together on one device.
    pub states: Vec<(u16, u16)>,
    /// How long each such state is watched, and a run of one target and one drafter, at least.
    pub window: Span,
}

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// A target's forward.
    Forward,
    /// A copy out of a target's memory.
    CopyOut,
    /// A copy into a drafter's memory.
    CopyIn,
    /// A drafter's forward and backward.
    Train,
    /// An optimizer step of one drafter.
    Apply,
    /// An optimizer step of all drafters, whose gradients are summed and who take the new weights.
    ApplyTogether,
}

impl Stage {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "target forward",
            Self::CopyOut => "copy out",
            Self::CopyIn => "copy in",
            Self::Train => "drafter train",
            Self::Apply => "optimizer step",
            Self::ApplyTogether => "step together",
        }
    }
}

/// One measured piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Which kind.
    pub stage: Stage,
    /// On what; none for an optimizer step.
    pub microbatch: Option<MicrobatchId>,
    /// From order to report.
    pub span: Span,
}

/// The speeds of workers that share a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Together {
    /// Forwards under way.
    pub forwards: u16,
    /// Trainings under way.
    pub trains: u16,
    /// Speed of each forward, as a share of its speed alone.
    pub forward_rate: f64,
    /// Speed of each training, likewise.
    pub train_rate: f64,
    /// Pieces that were watched.
    pub pieces: u32,
}

/// A piece of work while others were under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spanned {
    /// Forward or training.
    pub stage: Stage,
    /// On what.
    pub microbatch: MicrobatchId,
    /// When it was ordered.
    pub from: Time,
    /// When its end was heard of.
    pub to: Time,
}

impl Spanned {
    /// How long both were under way.
    pub fn common(&self, other: &Self) -> Span {
        let (from, to) = (self.from.max(other.from), self.to.min(other.to));
        if from < to { to - from } else { Span::ZERO }
    }
}

/// All that was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Pieces with the device to themselves.
    pub alone: Vec<Timed>,
    /// Copies in a row, one way and both ways, and in a stretch of a run.
    pub copies: Vec<Copied>,
    /// The first piece of each microbatch and stage.
    pub first: Vec<Timed>,
    /// Workers beside each other.
    pub together: Vec<Together>,
    /// The pieces of one forward beside one training, in the order of their ends.
    pub side_by_side: Vec<Spanned>,
    /// Forwards and trainings alone and beside copies that follow one another.
    pub beside_copies: Vec<BesideCopies>,
    /// Optimizer steps of one drafter while forwards follow one another on the same device.
    pub steps_beside: Vec<Span>,
    /// Forwards and trainings at several paces: the stretch of a run first, then with rests.
    pub paces: Vec<Pace>,
}

/// One copy among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Out or in.
    pub stage: Stage,
    /// On what.
    pub microbatch: MicrobatchId,
    /// From its beginning to its report.
    pub span: Span,
    /// How much of that time a copy in the other direction was under way.
    pub both_ways: Span,
}

/// Forwards and trainings that take some of the time.
#[derive(Clone, Debug, PartialEq)]
pub struct Pace {
    /// The time that was watched.
    pub elapsed: Span,
    /// The pieces in it.
    pub pieces: Vec<Timed>,
}

/// A piece of work alone, and the same while copies follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BesideCopies {
    /// Forward or training.
    pub stage: Stage,
    /// Which copies.
    pub copies: Stage,
    /// On what.
    pub microbatch: MicrobatchId,
    /// Its time alone.
    pub alone: Span,
    /// Its time beside them.
    pub beside: Span,
}

/// Why a measurement has no result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CalibrateError {
    /// A worker could not be made, or failed at a piece of work.
    #[error("{worker}: {message}")]
    Worker {
        /// Who.
        worker: WorkerId,
        /// Why.
        message: String,
    },
    /// It was asked to stop.
    #[error("stopped as asked before all was measured")]
    Stopped,
}

/// Measures on the workers of `policy`, which `backend` was made for. `progress` is told each piece's end; `stop` ends it early.
///
/// # Errors
/// See [`CalibrateError`].
pub fn measure<B: Backend>(
    backend: &Arc<B>,
    policy: &Policy,
    request: &Request,
    progress: &dyn Fn(),
    stop: &AtomicBool,
) -> Result<Measured, CalibrateError> {
    let mut calibration = Calibration {
        bench: Bench::start(backend, policy)?,
        policy,
        progress,
        stop,
        measured: Measured::default(),
    };
    calibration.run(request)?;
    Ok(calibration.measured)
}

/// Pieces that [`measure`] will tell of, about.
pub fn pieces(policy: &Policy, request: &Request) -> u64 {
    let copies = legs(policy).len() as u64;
    let repeats = u64::from(request.repeats) + 1;
    let each = if request.copies_only { 1 } else { repeats };
    let trained = 2 + copies;
    let applied = match (request.copies_only, u64::from(policy.drafters)) {
        (true, _) => 0,
        (false, 1) => repeats * (trained + 1),
        (false, drafters) => repeats * ((drafters + 1) * trained + 2),
    };
    let is_shared = !request.copies_only && !request.states.is_empty();
    let beside_forwards = u64::from(is_shared) * repeats * trained;
    let in_a_row = if copies > 1 { 11 * copies } else { 0 };
    request.sample.len() as u64 * (each * (2 + 5 * copies) + in_a_row) + applied + beside_forwards
}

struct Calibration<'a, Hidden> {
    bench: Bench<Hidden>,
    policy: &'a Policy,
    progress: &'a dyn Fn(),
    stop: &'a AtomicBool,
    measured: Measured,
}

/// Microbatches on their way in a stretch for copies on a shared device: one that is computed, one that is copied or trained on. More
/// would keep the device busier than copies leave it in a run.
const IN_HAND_COPIES: usize = 2;

/// The first worker of each kind: they are measured alone.
const TARGET: WorkerId = WorkerId::Target(TargetId(0));
const DRAFTER: WorkerId = WorkerId::Drafter(DrafterId(0));

/// Copies between target and drafter: which, by whom, from where and to where.
fn legs(policy: &Policy) -> Vec<(Stage, CopyLeg)> {
    legs_to(policy, DrafterId(0))
}

/// The same to any drafter.
fn legs_to(policy: &Policy, id: DrafterId) -> Vec<(Stage, CopyLeg)> {
    let (target, drafter) = (Place::Target(TargetId(0)), Place::Drafter(id));
    let out = |to| (Stage::CopyOut, (TARGET, Leg::Stage, target, to));
    let into = |from| {
        (
            Stage::CopyIn,
            (WorkerId::Drafter(id), Leg::Fetch, from, drafter),
        )
    };
    match (policy.transport, policy.placement) {
        (Transport::Local, _) => Vec::new(),
        (_, Placement::Host) => vec![out(Place::Host), into(Place::Host)],
        (_, Placement::Drafter) => vec![out(drafter)],
        (_, Placement::Target) => vec![into(target)],
    }
}

type CopyLeg = (WorkerId, Leg, Place, Place);

impl<Hidden: Send + Sync + 'static> Calibration<'_, Hidden> {
    fn run(&mut self, request: &Request) -> Result<(), CalibrateError> {
        for &microbatch in &request.sample {
            self.microbatch(microbatch, 0, request.copies_only)?;
        }
        let legs = legs(self.policy).len();
        let has_own_devices = request.in_hand > 1;
        // Those that have nothing to meet are watched in passing.
        let in_passing = has_own_devices && legs == 1 && !request.copies_only;
        if !request.copies_only {
            self.stretch(
                request,
                Watch {
                    in_hand: request.in_hand,
                    computes: true,
                    copies: in_passing,
                },
            )?;
        }
        if legs > 0 && !in_passing {
            if legs > 1 {
                self.one_way(request)?;
                self.both_ways(request)?;
            }
            self.stretch(
                request,
                Watch {
                    in_hand: request.in_hand.max(IN_HAND_COPIES),
                    computes: false,
                    copies: true,
                },
            )?;
        }
        if !request.copies_only {
            self.fill(request)?;
        }
        for &microbatch in &request.sample {
            self.beside_copies_of(microbatch)?;
        }
        if request.rests && !request.copies_only {
            self.rests(request)?;
        }
        if !request.copies_only {
            for repeat in 0..=request.repeats {
                self.steps(request.sample[0], repeat)?;
            }
            if !request.states.is_empty() {
                self.steps_beside_forwards(request)?;
                self.warm_up(&request.sample, &request.order)?;
            }
            // Only what was measured alone can be compared with itself beside others.
            for &(forwards, trains) in &request.states {
                let together = self.together(request, forwards, trains)?;
                self.measured.together.push(together);
            }
        }
        Ok(())
    }

    /// Measures what has not been measured often enough yet.
    fn fill(&mut self, request: &Request) -> Result<(), CalibrateError> {
        for &id in &request.sample {
            let had = |stage: Stage| {
                let alone = self.measured.alone.iter();
                let mine = alone.filter(|t| t.stage == stage && t.microbatch == Some(id));
                mine.count() as u32
            };
            for repeat in had(Stage::Forward).min(had(Stage::Train))..request.repeats {
                self.microbatch(id, repeat + 1, false)?;
            }
        }
        // What has been accumulated is applied, so that it does not grow without end.
        self.train_at(request.sample[0], 1)?;
        self.ended(DRAFTER, Task::Apply(StepId(0), 1))?;
        Ok(())
    }

    /// An optimizer step of all drafters, where there are several, and one of the first alone.
    fn steps(&mut self, sample: MicrobatchId, repeat: u32) -> Result<(), CalibrateError> {
        let drafters = self.policy.drafters;
        let each = [(drafters, Stage::ApplyTogether), (1, Stage::Apply)];
        let is_alone = drafters == 1;
        for (members, stage) in each.into_iter().skip(usize::from(is_alone)) {
            // There must be something to apply.
            self.train_at(sample, members)?;
            let apply = Task::Apply(StepId(repeat), members);
            let span = self.ended(DRAFTER, apply)?.0;
            self.note(stage, None, repeat, span);
        }
        Ok(())
    }

    /// Lets each of the first so many drafters train on a microbatch.
    fn train_at(&mut self, id: MicrobatchId, drafters: u16) -> Result<(), CalibrateError> {
        for drafter in (0..drafters).map(DrafterId) {
            let (_, hidden) = self.arrived_at(id, drafter)?;
            self.ended(WorkerId::Drafter(drafter), Task::Train(id, hidden))?;
        }
        Ok(())
    }

    /// Forward, copies and training of one microbatch.
    fn microbatch(
        &mut self,
        id: MicrobatchId,
        repeat: u32,
        copies_only: bool,
    ) -> Result<(), CalibrateError> {
        let (span, made) = self.ended(TARGET, Task::Forward(id))?;
        if !copies_only {
            self.note(Stage::Forward, Some(id), repeat, span);
        }
        let mut hidden = made.expect("a forward makes hidden states");
        for (stage, leg) in legs(self.policy) {
            let (span, made) = self.ended(leg.0, self.copying(id, leg, &hidden))?;
            self.note(stage, Some(id), repeat, span);
            hidden = made.expect("a copy makes hidden states");
        }
        if copies_only {
            return Ok(());
        }
        let (span, _) = self.ended(DRAFTER, Task::Train(id, hidden))?;
        self.note(Stage::Train, Some(id), repeat, span);
        Ok(())
    }

    /// Hidden states where the first drafter can train on them.
    fn arrived(&mut self, id: MicrobatchId) -> Result<Arc<Hidden>, CalibrateError> {
        Ok(self.arrived_at(id, DrafterId(0))?.1)
    }

    /// The time of a forward, and its hidden states where a drafter can train on them.
    fn arrived_at(
        &mut self,
        id: MicrobatchId,
        drafter: DrafterId,
    ) -> Result<(Span, Arc<Hidden>), CalibrateError> {
        self.carried(id, legs_to(self.policy, drafter))
    }

    /// The time of a forward, and its hidden states behind these copies.
    fn carried(
        &mut self,
        id: MicrobatchId,
        legs: impl IntoIterator<Item = (Stage, CopyLeg)>,
    ) -> Result<(Span, Arc<Hidden>), CalibrateError> {
        let (span, made) = self.ended(TARGET, Task::Forward(id))?;
        let mut hidden = made.expect("a forward makes hidden states");
        for (_, leg) in legs {
            let (_, copy) = self.ended(leg.0, self.copying(id, leg, &hidden))?;
            hidden = copy.expect("a copy makes hidden states");
        }
        Ok((span, hidden))
    }

    fn copying(
        &self,
        microbatch: MicrobatchId,
        (_, leg, from, to): CopyLeg,
        hidden: &Arc<Hidden>,
    ) -> Task<Hidden> {
        let ordered = self.bench.ordered();
        let job = CopyJob {
            microbatch,
            leg,
            from,
            to,
            ordered,
        };
        Task::Copy(job, Arc::clone(hidden))
    }

    /// Gives one worker a task and waits for its end.
    fn ended(
        &mut self,
        worker: WorkerId,
        task: Task<Hidden>,
    ) -> Result<(Span, Option<Arc<Hidden>>), CalibrateError> {
        self.go_on()?;
        let began = self.bench.send(worker, task);
        let done = self.bench.receive()?;
        (self.progress)();
        Ok((done.at - began, done.hidden))
    }

    fn note(&mut self, stage: Stage, microbatch: Option<MicrobatchId>, repeat: u32, span: Span) {
        let list = if repeat == 0 {
            &mut self.measured.first
        } else {
            &mut self.measured.alone
        };
        list.push(Timed {
            stage,
            microbatch,
            span,
        });
    }

    fn go_on(&self) -> Result<(), CalibrateError> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(CalibrateError::Stopped),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
