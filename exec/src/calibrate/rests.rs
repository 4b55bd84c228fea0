//! Work on a device that rests now and then.

use super::bench::Task;
use super::{
    CalibrateError, Calibration, DRAFTER, DrafterId, MicrobatchId, Pace, Request, Span, Stage,
    StepId, TARGET, Timed,
};
use std::sync::Arc;

/// How long a device rests after work, as shares of the time that the work has taken: so that it computes for about 70 % of the time,
/// and for a third.
const RESTS: [f64; 2] = [0.4, 2.0];

/// Trainings after which an optimizer step is applied.
const STEP: usize = 4;

/// What is done between two rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lap {
    Both,
    Forward,
    Train,
}

/// Hidden states that a drafter trains on again and again.
type Kept<Hidden> = [(MicrobatchId, Arc<Hidden>)];

impl<Hidden: Send + Sync + 'static> Calibration<'_, Hidden> {
    /// Watches work at each pace: forwards and trainings in turn where they share a device, else each kind on its own.
    pub(super) fn rests(&mut self, request: &Request) -> Result<(), CalibrateError> {
        let kept = self.kept(&request.order)?;
        let laps: &[Lap] = match request.in_hand {
            1 => &[Lap::Both],
            _ => &[Lap::Forward, Lap::Train],
        };
        for rest in RESTS {
            for &lap in laps {
                self.paced(request, &kept, lap, rest)?;
            }
        }
        self.train_at(request.sample[0], 1)?;
        self.ended(DRAFTER, Task::Apply(StepId(0), 1))?;
        Ok(())
    }

    /// Does one lap after another with rests between them for a window, and watches the second half of it.
    fn paced(
        &mut self,
        request: &Request,
        kept: &Kept<Hidden>,
        lap: Lap,
        rest: f64,
    ) -> Result<(), CalibrateError> {
        let clock = self.bench.clock;
        let began = clock.now();
        let window = request.window;
        let (mut watched, mut pieces) = (None, Vec::new());
        for at in 0.. {
            let so_far = self.bench.since(began);
            if so_far >= window && !pieces.is_empty() {
                break;
            }
            let from = clock.now();
            let done = self.lap(request, kept, lap, at)?;
            if (so_far + so_far) >= window {
                watched.get_or_insert(from);
                pieces.extend(done);
            }
            if lap != Lap::Forward && at % STEP == STEP - 1 {
                self.ended(DRAFTER, Task::Apply(StepId(0), 1))?;
            }
            let now = clock.now();
            let rest = ((now - from).as_ns() as f64 * rest) as u64;
            clock.wait_until(now + Span::from_ns(rest));
        }
        self.measured.paces.push(Pace {
            elapsed: clock.now() - watched.unwrap_or(began),
            pieces,
        });
        Ok(())
    }

    /// The pieces of one lap.
    fn lap(
        &mut self,
        request: &Request,
        kept: &Kept<Hidden>,
        lap: Lap,
        at: usize,
    ) -> Result<Vec<Timed>, CalibrateError> {
        let (id, like) = request.order[at % request.order.len()];
        let timed = |stage, id, span| Timed {
            stage,
            microbatch: Some(id),
            span,
        };
        Ok(match lap {
            Lap::Both => {
                let (forward, hidden) = self.arrived_at(id, DrafterId(0))?;
                let (train, _) = self.ended(DRAFTER, Task::Train(id, hidden))?;
                vec![
                    timed(Stage::Forward, like, forward),
                    timed(Stage::Train, like, train),
                ]
            }
            Lap::Forward => {
                let (span, _) = self.ended(TARGET, Task::Forward(id))?;
                vec![timed(Stage::Forward, like, span)]
            }
            Lap::Train => {
                let (id, hidden) = &kept[at % kept.len()];
                let (span, _) = self.ended(DRAFTER, Task::Train(*id, Arc::clone(hidden)))?;
                vec![timed(Stage::Train, *id, span)]
            }
        })
    }
}
