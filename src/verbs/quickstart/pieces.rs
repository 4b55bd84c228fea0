//! The pieces of work in a recorded run, with what they took.

use shared::core::{Action, Event, Outcome};
use shared::id::MicrobatchId;
use shared::record::Record;
use shared::time::{Span, Time};
use std::collections::BTreeMap;

/// The stages whose times are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// A target's forward.
    Forward,
    /// A drafter's forward and backward.
    Train,
    /// A copy of hidden states.
    Copy,
    /// An optimizer step.
    Apply,
}

/// One measured piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) stage: Stage,
    /// On what; none for an optimizer step.
    pub(crate) microbatch: Option<MicrobatchId>,
    pub(crate) span: Span,
}

/// The pieces of work in a run, from order to end.
pub(crate) fn pieces(records: &[Record]) -> Vec<Piece> {
    let mut open: BTreeMap<(Stage, u32), Time> = BTreeMap::new();
    let mut pieces = Vec::new();
    for record in records {
        let ended = match record.event {
            Event::ForwardEnded {
                microbatch,
                outcome: Outcome::Done,
                ..
            } => Some((Stage::Forward, microbatch.0)),
            Event::TrainEnded {
                microbatch,
                outcome: Outcome::Done,
                ..
            } => Some((Stage::Train, microbatch.0)),
            Event::StageEnded {
                microbatch,
                outcome: Outcome::Done,
            }
            | Event::FetchEnded {
                microbatch,
                outcome: Outcome::Done,
                ..
            } => Some((Stage::Copy, microbatch.0)),
            Event::StepApplied { step, .. } => Some((Stage::Apply, step.0)),
            _ => None,
        };
        if let Some((stage, number)) = ended
            && let Some(begun) = open.remove(&(stage, number))
        {
            let microbatch = (stage != Stage::Apply).then_some(MicrobatchId(number));
            pieces.push(Piece {
                stage,
                microbatch,
                span: record.at - begun,
            });
        }
        for action in &record.actions {
            let begun = match *action {
                Action::Forward { microbatch, .. } => (Stage::Forward, microbatch.0),
                Action::Train { microbatch, .. } => (Stage::Train, microbatch.0),
                Action::Stage { microbatch, .. } | Action::Fetch { microbatch, .. } => {
                    (Stage::Copy, microbatch.0)
                }
                Action::Apply { step, .. } => (Stage::Apply, step.0),
                _ => continue,
            };
            open.insert(begun, record.at);
        }
    }
    pieces
}
