//! Arrows from each forward over its copies and its training to its optimizer step.
//!
//! They are written when the step is applied, so that work which was lost on the way leaves none.

use super::writer::{Leg, Track, Writer};
use shared::id::{MicrobatchId, StepId};
use shared::time::{Span, Time};
use std::collections::BTreeMap;

/// The way of one microbatch so far.
#[derive(Clone, Debug)]
struct Way {
    /// Where it began, late in the forward.
    start: (Track, Time),
    /// Copies, then the training.
    through: Vec<(Track, Time)>,
    /// Where it was trained, and for which step.
    trained: Option<(Track, StepId)>,
}

/// Ways of microbatches that are not yet part of the weights.
#[derive(Clone, Debug, Default)]
pub(super) struct Flows {
    ways: BTreeMap<MicrobatchId, Way>,
}

impl Flows {
    /// A forward ended; what an earlier attempt left is forgotten.
    pub(super) fn begin(&mut self, id: MicrobatchId, track: Track, from: Time, to: Time) {
        // An arrow belongs to the slice around it, and the end of a slice lies outside.
        let inside = if to > from {
            Time::ZERO + Span::from_ns((to - Time::ZERO).as_ns() - 1)
        } else {
            from
        };
        let way = Way {
            start: (track, inside),
            through: Vec::new(),
            trained: None,
        };
        self.ways.insert(id, way);
    }

    /// A copy that began at `from` ended.
    pub(super) fn pass(&mut self, id: MicrobatchId, track: Track, from: Time) {
        if let Some(way) = self.ways.get_mut(&id) {
            way.through.push((track, from));
        }
    }

    /// A training that began at `from` ended.
    pub(super) fn trained(
        &mut self,
        id: MicrobatchId,
        track: Track,
        from: Time,
        step: Option<StepId>,
    ) {
        if let Some(way) = self.ways.get_mut(&id) {
            way.through.push((track, from));
            way.trained = step.map(|step| (track, step));
        }
    }

    /// What was trained on this track is lost.
    pub(super) fn forget(&mut self, track: Track) {
        let is_lost = |way: &Way| way.trained.is_some_and(|(own, _)| own == track);
        self.ways.retain(|_, way| !is_lost(way));
    }

    /// Writes the arrows of what `track` trained for `step`, to the optimizer step at `end` where it has one; returns how many.
    pub(super) fn end(
        &mut self,
        writer: &mut Writer,
        step: StepId,
        track: Track,
        end: Option<(Track, Time)>,
    ) -> usize {
        let is_in = |way: &Way| way.trained == Some((track, step));
        let ways: Vec<(MicrobatchId, Way)> = self
            .ways
            .iter()
            .filter(|(_, way)| is_in(way))
            .map(|(id, way)| (*id, way.clone()))
            .collect();
        for (microbatch, way) in &ways {
            self.ways.remove(microbatch);
            let id = microbatch.index() as u64 + 1;
            let points: Vec<(Track, Time)> = way.through.iter().copied().chain(end).collect();
            let (track, at) = way.start;
            writer.leg(id, Leg::Start, track, at);
            for (place, &(track, at)) in points.iter().enumerate() {
                let leg = if place + 1 == points.len() {
                    Leg::End
                } else {
                    Leg::Step
                };
                writer.leg(id, leg, track, at);
            }
        }
        ways.len()
    }
}
