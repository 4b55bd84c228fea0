//! Work on a device that rests now and then.

use super::bench::Task;
use super::{
    CalibrateError, Calibration, DRAFTER, MicrobatchId, Pace, Request, Stage, StepId, TARGET, Timed,
};
use std::sync::Arc;

/// How long a device rests after work, as shares of the time that the work has taken: so that it computes for about 70 % of the time,
/// and for a third.
const RESTS: [f64; 2] = [0.4, 2.0];

/// Trainings after which an optimizer step is applied.
const STEP: usize = 4;

impl<Hidden: Send + Sync + 'static> Calibration<'_, Hidden> {
    /// Watches work at each pace: forwards and trainings in turn where they share a device, else each kind on its own.
    pub(super) fn rests(&mut self, request: &Request) -> Result<(), CalibrateError> {
        let kept = self.kept(&request.order)?;
        for rest in RESTS {
            if request.in_hand == 1 {
                self.paced(request, rest, &mut |this, at| {
                    let (id, like) = request.order[at % request.order.len()];
                    let (forward, hidden) = this.arrived_after(id)?;
                    let (train, _) = this.ended(DRAFTER, Task::Train(id, hidden))?;
                    let timed = |stage, span| Timed {
                        stage,
                        microbatch: Some(like),
                        span,
                    };
                    Ok(vec![
                        timed(Stage::Forward, forward),
                        timed(Stage::Train, train),
                    ])
                })?;
                continue;
            }
            self.paced(request, rest, &mut |this, at| {
                let (id, like) = request.order[at % request.order.len()];
                let (span, _) = this.ended(TARGET, Task::Forward(id))?;
                Ok(vec![Timed {
                    stage: Stage::Forward,
                    microbatch: Some(like),
                    span,
                }])
            })?;
            self.paced(request, rest, &mut |this, at| {
                let (id, hidden): &(MicrobatchId, Arc<Hidden>) = &kept[at % kept.len()];
                let (span, _) = this.ended(DRAFTER, Task::Train(*id, Arc::clone(hidden)))?;
                Ok(vec![Timed {
                    stage: Stage::Train,
                    microbatch: Some(*id),
                    span,
                }])
            })?;
        }
        self.train_at(request.sample[0], 1)?;
        self.ended(DRAFTER, Task::Apply(StepId(0), 1))?;
        Ok(())
    }

    /// Does `lap` after `lap` with rests between them for a window, and watches the second half of it.
    fn paced(
        &mut self,
        request: &Request,
        rest: f64,
        lap: &mut dyn FnMut(&mut Self, usize) -> Result<Vec<Timed>, CalibrateError>,
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
            let done = lap(self, at)?;
            if (so_far + so_far) >= window {
                watched.get_or_insert(from);
                pieces.extend(done.iter().copied());
            }
            let trains = done.iter().any(|piece| piece.stage == Stage::Train);
            if trains && at % STEP == STEP - 1 {
                self.ended(DRAFTER, Task::Apply(StepId(0), 1))?;
            }
            let now = clock.now();
            let rest = ((now - from).as_ns() as f64 * rest) as u64;
            clock.wait_until(now + shared::time::Span::from_ns(rest));
        }
        self.measured.paces.push(Pace {
            elapsed: clock.now() - watched.unwrap_or(began),
            pieces,
        });
        Ok(())
    }
}
