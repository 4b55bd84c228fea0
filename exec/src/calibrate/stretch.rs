//! A stretch of a run of one target and one drafter, watched piece by piece.

use super::bench::Task;
use super::{
    CalibrateError, Calibration, DRAFTER, MicrobatchId, Request, Span, Stage, StepId, TARGET, legs,
};
use std::sync::Arc;

/// Hidden states that a drafter is to train on, and whose size they have.
type Waiting<Hidden> = (MicrobatchId, MicrobatchId, Arc<Hidden>);

/// Time of a forward, that of a training with whose size it has, and what the forward made.
type Lap<Hidden> = (Span, Option<(Span, MicrobatchId)>, Arc<Hidden>);

/// Microbatches of an optimizer step in a stretch.
const STEP: usize = 4;

impl<Hidden: Send + Sync + 'static> Calibration<'_, Hidden> {
    /// Watches a stretch of a run once that has gone on for a while: a device under load is a few percent slower than one that has just
    /// begun, and whoever does the same thing again and again finds all of it in caches.
    pub(super) fn stretch(&mut self, request: &Request) -> Result<(), CalibrateError> {
        let began = self.bench.clock.now();
        let both = request.window + request.window;
        let mut waiting = None;
        for (number, &(id, like)) in request.order.iter().cycle().enumerate() {
            let so_far = self.bench.since(began);
            if so_far >= both {
                break;
            }
            // The first half is not watched.
            let repeat = u32::from(so_far >= request.window);
            let (forward, trained, hidden) = self.lap(id, waiting.take())?;
            if let Some((span, like)) = trained {
                self.watched(Stage::Train, like, repeat, span);
            }
            self.watched(Stage::Forward, like, repeat, forward);
            if request.are_apart {
                waiting = Some((id, like, hidden));
            } else {
                let (span, _) = self.ended(DRAFTER, Task::Train(id, hidden))?;
                self.watched(Stage::Train, like, repeat, span);
            }
            if number % STEP == STEP - 1 {
                self.ended(DRAFTER, Task::Apply(StepId(number as u32), 1))?;
            }
        }
        if let Some((id, _, hidden)) = waiting {
            self.ended(DRAFTER, Task::Train(id, hidden))?;
        }
        self.train_at(request.sample[0], 1)?;
        self.ended(DRAFTER, Task::Apply(StepId(0), 1))?;
        Ok(())
    }

    /// The forward and copies of one microbatch, beside the training of the one that waits, if any.
    fn lap(
        &mut self,
        id: MicrobatchId,
        waiting: Option<Waiting<Hidden>>,
    ) -> Result<Lap<Hidden>, CalibrateError> {
        self.go_on()?;
        let sent = waiting.map(|(id, like, hidden)| {
            let at = self.bench.send(DRAFTER, Task::Train(id, hidden));
            (at, like)
        });
        let began = self.bench.send(TARGET, Task::Forward(id));
        let (mut forward, mut made, mut trained) = (Span::ZERO, None, None);
        for _ in 0..1 + usize::from(sent.is_some()) {
            let done = self.bench.receive()?;
            match (done.lane.worker, sent) {
                (DRAFTER, Some((at, like))) => trained = Some((done.at - at, like)),
                _ => {
                    forward = done.at - began;
                    made = done.hidden;
                }
            }
        }
        let mut hidden = made.expect("a forward makes hidden states");
        for (_, leg) in legs(self.policy) {
            let (_, copy) = self.ended(leg.0, self.copying(id, leg, &hidden))?;
            hidden = copy.expect("a copy makes hidden states");
        }
        Ok((forward, trained, hidden))
    }

    /// Notes a piece of a stretch that counts.
    fn watched(&mut self, stage: Stage, id: MicrobatchId, repeat: u32, span: Span) {
        if repeat > 0 {
            self.note(stage, Some(id), repeat, span);
        }
    }
}
