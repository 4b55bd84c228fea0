//! Workers beside each other: how fast each goes while others compute on the same device.
//!
//! Each of so many targets and drafters is given one microbatch after another until the window is over. A worker's speed is the time that
//! what it finished takes alone, over the time it took: that holds whatever the mix of sizes and whoever waits for whom on the device.

use super::bench::{Lane, Task};
use super::{
    BesideCopies, CalibrateError, Calibration, CopyLeg, DRAFTER, DrafterId, MicrobatchId, Request,
    Span, Spanned, Stage, StepId, TargetId, Time, Together, WorkerId, legs,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Hidden states that drafters are given in turn: of few microbatches, so that they find room.
const KEPT_MAX: usize = 3;

/// What a worker has done in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    next: usize,
    under_way: MicrobatchId,
    /// When that was ordered.
    since: Time,
    /// Time alone of what it has finished. (ns)
    alone: f64,
    /// When it last finished something.
    until: Time,
    pieces: u32,
}

impl<Hidden: Send + Sync + 'static> Calibration<'_, Hidden> {
    pub(super) fn together(
        &mut self,
        request: &Request,
        forwards: u16,
        trains: u16,
    ) -> Result<Together, CalibrateError> {
        let alone = |stage| medians(&self.measured.alone, stage);
        let (forward, train) = (alone(Stage::Forward), alone(Stage::Train));
        let kept = self.kept(&request.order)?;
        let targets = (0..forwards).map(|id| WorkerId::Target(TargetId(id)));
        let drafters = (0..trains).map(|id| WorkerId::Drafter(DrafterId(id)));
        let began = self.bench.clock.now();
        let mut shares: BTreeMap<WorkerId, Share> = targets
            .chain(drafters)
            .enumerate()
            .map(|(at, worker)| {
                let share = Share {
                    // They begin at different sizes, so that they do not go in step.
                    next: at,
                    until: began,
                    ..Share::default()
                };
                (worker, share)
            })
            .collect();
        let workers: Vec<WorkerId> = shares.keys().copied().collect();
        let mut under_way = 0;
        for worker in workers {
            self.next(worker, &mut shares, &request.order, &kept);
            under_way += 1;
        }
        let mut is_over = false;
        let mut spanned = Vec::new();
        while under_way > 0 {
            let done = self.bench.receive()?;
            under_way -= 1;
            drop(done.hidden);
            self.go_on()?;
            let worker = done.lane.worker;
            let times = match worker {
                WorkerId::Target(_) => &forward,
                WorkerId::Drafter(_) => &train,
            };
            let share = shares.get_mut(&worker).expect("it was given a task");
            // What ends after the window had less company than it should.
            if !is_over {
                let stage = match worker {
                    WorkerId::Target(_) => Stage::Forward,
                    WorkerId::Drafter(_) => Stage::Train,
                };
                spanned.push(Spanned {
                    stage,
                    microbatch: share.under_way,
                    from: share.since,
                    to: done.at,
                });
                share.alone += times.get(&share.under_way).copied().unwrap_or(0.0);
                share.until = done.at;
                share.pieces += 1;
            }
            let enough = shares.values().all(|share| share.pieces >= PIECES_MIN);
            is_over |= enough && self.bench.since(began) >= request.window;
            if !is_over {
                self.next(worker, &mut shares, &request.order, &kept);
                under_way += 1;
            }
        }
        self.settle(&request.sample)?;
        if (forwards, trains) == (1, 1) {
            self.measured.side_by_side = spanned;
        }
        let rate = |of_targets: bool| {
            let mine = shares
                .iter()
                .filter(|(worker, _)| matches!(worker, WorkerId::Target(_)) == of_targets)
                .map(|(_, share)| share.alone / (share.until - began).as_ns().max(1) as f64);
            let rates: Vec<f64> = mine.collect();
            match rates.len() {
                0 => 1.0,
                count => rates.iter().sum::<f64>() / count as f64,
            }
        };
        Ok(Together {
            forwards,
            trains,
            forward_rate: rate(true),
            train_rate: rate(false),
            pieces: shares.values().map(|share| share.pieces).sum(),
        })
    }

    /// A forward and a training of a microbatch while its hidden states are copied again and again, each leg in turn.
    pub(super) fn beside_copies_of(&mut self, id: MicrobatchId) -> Result<(), CalibrateError> {
        if legs(self.policy).is_empty() {
            return Ok(());
        }
        let hidden = &self.arrived(id)?;
        for (stage, leg) in legs(self.policy) {
            let from = self.before(id, stage)?;
            self.beside_copies(id, (stage, leg), &from, hidden)?;
        }
        self.ended(DRAFTER, Task::Apply(StepId(id.0), 1))?;
        Ok(())
    }

    /// A forward and a training of `hidden`, each alone and while copies of `from` follow one another.
    fn beside_copies(
        &mut self,
        id: MicrobatchId,
        (copies, leg): (Stage, CopyLeg),
        from: &Arc<Hidden>,
        hidden: &Arc<Hidden>,
    ) -> Result<(), CalibrateError> {
        for _ in 0..BESIDE_COPIES {
            for stage in [Stage::Forward, Stage::Train] {
                let piece = || match stage {
                    Stage::Forward => (super::TARGET, Task::Forward(id)),
                    _ => (DRAFTER, Task::Train(id, Arc::clone(hidden))),
                };
                let (worker, task) = piece();
                let (alone, _) = self.ended(worker, task)?;
                let (worker, task) = piece();
                let again = || (leg.0, self.copying(id, leg, from));
                let beside = self.beside_others(&again, (worker, task))?;
                self.measured.beside_copies.push(BesideCopies {
                    stage,
                    copies,
                    microbatch: id,
                    alone,
                    beside,
                });
            }
        }
        Ok(())
    }

    /// Optimizer steps of one drafter while forwards follow one another.
    pub(super) fn steps_beside_forwards(
        &mut self,
        request: &Request,
    ) -> Result<(), CalibrateError> {
        let id = request.sample[0];
        for repeat in 0..=request.repeats {
            // There must be something to apply.
            self.train_at(id, 1)?;
            let forwards = || (super::TARGET, Task::Forward(id));
            let span = self.beside_others(&forwards, (DRAFTER, Task::Apply(StepId(repeat), 1)))?;
            // The first is not like the others.
            if repeat > 0 {
                self.measured.steps_beside.push(span);
            }
        }
        Ok(())
    }

    /// The time of a task while others, of another lane, follow one another.
    fn beside_others(
        &self,
        other: &dyn Fn() -> (WorkerId, Task<Hidden>),
        (worker, task): (WorkerId, Task<Hidden>),
    ) -> Result<Span, CalibrateError> {
        let send_other = || {
            let (worker, task) = other();
            self.bench.send(worker, task)
        };
        send_other();
        let began = self.bench.send(worker, task);
        let mine = Lane {
            worker,
            copies: false,
        };
        let mut beside = None;
        loop {
            let done = self.bench.receive()?;
            match (done.lane == mine, beside) {
                (false, None) => {
                    // Its slot is needed again.
                    drop(done.hidden);
                    self.go_on()?;
                    send_other();
                }
                (false, Some(beside)) => return Ok(beside),
                (true, _) => beside = Some(done.at - began),
            }
        }
    }

    /// Hidden states for drafters, of the sizes that come most often.
    pub(super) fn kept(
        &mut self,
        order: &[(MicrobatchId, MicrobatchId)],
    ) -> Result<Vec<(MicrobatchId, Arc<Hidden>)>, CalibrateError> {
        let mut counts: BTreeMap<MicrobatchId, usize> = BTreeMap::new();
        for (_, like) in order {
            *counts.entry(*like).or_default() += 1;
        }
        let mut ids: Vec<(usize, MicrobatchId)> =
            counts.into_iter().map(|(id, count)| (count, id)).collect();
        ids.sort_unstable_by_key(|&(count, id)| (std::cmp::Reverse(count), id));
        ids.truncate(KEPT_MAX);
        ids.into_iter()
            .map(|(_, id)| Ok((id, self.arrived(id)?)))
            .collect()
    }

    fn next(
        &self,
        worker: WorkerId,
        shares: &mut BTreeMap<WorkerId, Share>,
        order: &[(MicrobatchId, MicrobatchId)],
        kept: &[(MicrobatchId, Arc<Hidden>)],
    ) {
        let share = shares.get_mut(&worker).expect("it has a share");
        let task = match worker {
            WorkerId::Target(_) => {
                let (id, like) = order[share.next % order.len()];
                share.under_way = like;
                Task::Forward(id)
            }
            WorkerId::Drafter(_) => {
                let (id, hidden) = &kept[share.next % kept.len()];
                share.under_way = *id;
                Task::Train(*id, Arc::clone(hidden))
            }
        };
        share.next += 1;
        share.since = self.bench.send(worker, task);
    }

    /// Lets every worker meet what it will be given: kernels are chosen on first use.
    pub(super) fn warm_up(
        &mut self,
        sample: &[MicrobatchId],
        order: &[(MicrobatchId, MicrobatchId)],
    ) -> Result<(), CalibrateError> {
        for id in 1..self.policy.targets {
            for &microbatch in sample {
                let target = WorkerId::Target(TargetId(id));
                self.ended(target, Task::Forward(microbatch))?;
            }
        }
        let kept = self.kept(order)?;
        for id in 1..self.policy.drafters {
            for (microbatch, hidden) in &kept {
                let drafter = WorkerId::Drafter(DrafterId(id));
                self.ended(drafter, Task::Train(*microbatch, Arc::clone(hidden)))?;
            }
        }
        Ok(())
    }

    /// Applies what all drafters have accumulated.
    fn settle(&mut self, sample: &[MicrobatchId]) -> Result<(), CalibrateError> {
        let drafters = self.policy.drafters;
        self.train_at(sample[0], drafters)?;
        self.ended(DRAFTER, Task::Apply(StepId(0), drafters))?;
        Ok(())
    }
}

/// Forwards, and trainings, that are watched beside copies, for each microbatch and leg.
const BESIDE_COPIES: u32 = 2;

/// Pieces that each worker finishes in a window, at least.
const PIECES_MIN: u32 = 4;

/// Median time of each microbatch in a stage. (ns)
fn medians(timed: &[super::Timed], stage: Stage) -> BTreeMap<MicrobatchId, f64> {
    let mut times: BTreeMap<MicrobatchId, Vec<Span>> = BTreeMap::new();
    for piece in timed.iter().filter(|piece| piece.stage == stage) {
        if let Some(id) = piece.microbatch {
            times.entry(id).or_default().push(piece.span);
        }
    }
    let middle = |mut spans: Vec<Span>| {
        spans.sort_unstable();
        spans[spans.len() / 2].as_ns() as f64
    };
    times
        .into_iter()
        .map(|(id, spans)| (id, middle(spans)))
        .collect()
}
