//! Copies of one direction, one after another, while none go in the other.

use super::{CalibrateError, Calibration, Copied, MicrobatchId, Request, Span, Stage, legs};
use std::sync::Arc;

/// Copies in a row that are watched.
const WATCHED: u32 = 3;

impl<Hidden: Send + Sync + 'static> Calibration<'_, Hidden> {
    /// Watches copies of every measured microbatch that follow one another without a pause, as in a run, where a host that rests between
    /// them would be slower to begin.
    pub(super) fn one_way(&mut self, request: &Request) -> Result<(), CalibrateError> {
        for (stage, leg) in legs(self.policy) {
            for &id in &request.sample {
                let from = self.before(id, stage)?;
                // The first comes after a pause.
                for number in 0..=WATCHED {
                    let (span, copy) = self.ended(leg.0, self.copying(id, leg, &from))?;
                    // Its slot is needed again.
                    drop(copy);
                    if number > 0 {
                        self.measured.copies.push(Copied {
                            stage,
                            microbatch: id,
                            span,
                            both_ways: Span::ZERO,
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Hidden states of a new forward where a kind of copy takes them from.
    pub(super) fn before(
        &mut self,
        id: MicrobatchId,
        copies: Stage,
    ) -> Result<Arc<Hidden>, CalibrateError> {
        let (_, made) = self.ended(super::TARGET, super::Task::Forward(id))?;
        let mut hidden = made.expect("a forward makes hidden states");
        for (stage, leg) in legs(self.policy) {
            if stage == copies {
                break;
            }
            let (_, copy) = self.ended(leg.0, self.copying(id, leg, &hidden))?;
            hidden = copy.expect("a copy makes hidden states");
        }
        Ok(hidden)
    }
}
