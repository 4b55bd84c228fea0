//! Reports as facts.

use crate::backend::Leg;
use crate::error::WorkerId;
use crate::worker::Piece;
use shared::core::{Event, Outcome};

/// The event that the end of a piece is.
pub(super) fn fact(worker: WorkerId, piece: &Piece, outcome: Outcome) -> Event {
    match (worker, piece) {
        (WorkerId::Target(target), Piece::Forward { microbatch, .. }) => Event::ForwardEnded {
            target,
            microbatch: *microbatch,
            outcome,
        },
        (
            _,
            Piece::Copy {
                leg: Leg::Stage,
                microbatch,
                ..
            },
        ) => Event::StageEnded {
            microbatch: *microbatch,
            outcome,
        },
        (
            WorkerId::Drafter(drafter),
            Piece::Copy {
                leg: Leg::Fetch,
                microbatch,
                ..
            },
        ) => Event::FetchEnded {
            drafter,
            microbatch: *microbatch,
            outcome,
        },
        (WorkerId::Drafter(drafter), Piece::Train { microbatch, .. }) => Event::TrainEnded {
            drafter,
            microbatch: *microbatch,
            outcome,
        },
        (_, Piece::Apply { step, group, .. }) => Event::StepApplied {
            step: *step,
            group: *group,
        },
        (worker, piece) => unreachable!("{worker} is never ordered {piece:?}"),
    }
}
