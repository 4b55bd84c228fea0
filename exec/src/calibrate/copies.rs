//! Copies that follow one another without a pause, as in a run, where a host that rests between them would be slower to begin: of one
//! direction, and of both at once.

use super::{
    CalibrateError, Calibration, Copied, CopyLeg, MicrobatchId, Request, Span, Stage, Time, legs,
};
use std::sync::Arc;

/// Copies in a row that are watched.
const WATCHED: u32 = 3;

/// One direction: which, what is copied, and how far it is.
struct Way<Hidden> {
    stage: Stage,
    leg: CopyLeg,
    from: Arc<Hidden>,
    since: Time,
    done: u32,
    is_under_way: bool,
}

impl<Hidden: Send + Sync + 'static> Calibration<'_, Hidden> {
    /// Watches copies of every measured microbatch, each direction by itself.
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
                        self.note_copy(stage, id, span, Span::ZERO);
                    }
                }
            }
        }
        Ok(())
    }

    /// Watches copies of every measured microbatch out of its target while others go into the drafter.
    pub(super) fn both_ways(&mut self, request: &Request) -> Result<(), CalibrateError> {
        for &id in &request.sample {
            let mut ways = Vec::new();
            for (stage, leg) in legs(self.policy) {
                let from = self.before(id, stage)?;
                ways.push(Way {
                    stage,
                    leg,
                    from,
                    since: Time::ZERO,
                    done: 0,
                    is_under_way: false,
                });
            }
            self.at_once(id, ways)?;
        }
        Ok(())
    }

    /// Lets copies of both directions follow one another until enough of each were watched.
    fn at_once(
        &mut self,
        id: MicrobatchId,
        mut ways: Vec<Way<Hidden>>,
    ) -> Result<(), CalibrateError> {
        for way in &mut ways {
            self.begin(id, way);
        }
        while ways.iter().any(|way| way.is_under_way) {
            self.go_on()?;
            let done = self.bench.receive()?;
            (self.progress)();
            // Its slot is needed again.
            drop(done.hidden);
            let beside = ways.iter().all(|way| way.is_under_way);
            let mine = ways.iter_mut().find(|way| way.leg.0 == done.lane.worker);
            let way = mine.expect("whoever copies has a direction");
            way.is_under_way = false;
            way.done += 1;
            // The first comes after a pause, the last beside nothing.
            if way.done > 1 && beside {
                let span = done.at - way.since;
                self.note_copy(way.stage, id, span, span);
            }
            if ways.iter().any(|way| way.done <= WATCHED) {
                for way in ways.iter_mut().filter(|way| !way.is_under_way) {
                    self.begin(id, way);
                }
            }
        }
        Ok(())
    }

    fn begin(&self, id: MicrobatchId, way: &mut Way<Hidden>) {
        way.since = self
            .bench
            .send(way.leg.0, self.copying(id, way.leg, &way.from));
        way.is_under_way = true;
    }

    fn note_copy(&mut self, stage: Stage, microbatch: MicrobatchId, span: Span, both_ways: Span) {
        self.measured.copies.push(Copied {
            stage,
            microbatch,
            span,
            both_ways,
        });
    }

    /// Hidden states of a new forward where a kind of copy takes them from.
    pub(super) fn before(
        &mut self,
        id: MicrobatchId,
        copies: Stage,
    ) -> Result<Arc<Hidden>, CalibrateError> {
        let before = legs(self.policy).into_iter();
        let before = before.take_while(|(stage, _)| *stage != copies);
        Ok(self.carried(id, before)?.1)
    }
}
