//! The driver's books: open work by worker, wake-ups, and what each optimizer step was trained on.

use crate::error::WorkerId;
use crate::worker::Piece;
use shared::core::Group;
use shared::id::{DrafterId, MicrobatchId, StepId};
use shared::time::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// What was ordered and has not been answered.
///
/// Invariant: a piece is answered once, by its worker or, when that is lost, by the driver.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    open: BTreeMap<WorkerId, Vec<Piece>>,
    wakes: BinaryHeap<Reverse<Time>>,
    trained: Vec<(StepId, DrafterId, MicrobatchId)>,
}

impl Ledger {
    pub(super) fn open(&mut self, worker: WorkerId, piece: Piece) {
        if let (WorkerId::Drafter(drafter), Piece::Train { microbatch, step }) = (worker, &piece) {
            self.trained.push((*step, drafter, *microbatch));
        }
        self.open.entry(worker).or_default().push(piece);
    }

    /// Strikes out a piece; false when it was not open, because the driver has answered it for a lost worker.
    pub(super) fn close(&mut self, worker: WorkerId, piece: &Piece) -> bool {
        let Some(open) = self.open.get_mut(&worker) else {
            return false;
        };
        let found = open.iter().position(|other| other == piece);
        found.map(|index| open.remove(index)).is_some()
    }

    /// Strikes out the oldest open piece of a worker and hands it over.
    pub(super) fn close_first(&mut self, worker: WorkerId) -> Option<Piece> {
        let open = self.open.get_mut(&worker)?;
        (!open.is_empty()).then(|| open.remove(0))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.open.values().all(Vec::is_empty) && self.wakes.is_empty()
    }

    /// Workers with open work.
    pub(super) fn at_work(&self) -> Vec<WorkerId> {
        let busy = self.open.iter().filter(|(_, open)| !open.is_empty());
        busy.map(|(worker, _)| *worker).collect()
    }

    /// Whether an optimizer step is under way that concerns this worker.
    pub(super) fn is_applied_to(&self, worker: WorkerId) -> bool {
        let WorkerId::Drafter(drafter) = worker else {
            return false;
        };
        let concerns = |piece: &Piece| match piece {
            Piece::Apply { members, .. } => members.contains(&drafter),
            _ => false,
        };
        self.open.values().flatten().any(concerns)
    }

    pub(super) fn wake_at(&mut self, at: Time) {
        self.wakes.push(Reverse(at));
    }

    pub(super) fn next_wake(&self) -> Option<Time> {
        self.wakes.peek().map(|wake| wake.0)
    }

    pub(super) fn take_wake(&mut self) {
        self.wakes.pop();
    }

    /// What a step was trained on so far, in the order of the orders.
    pub(super) fn trained_in(&self, step: StepId) -> Vec<MicrobatchId> {
        let of_step = self.trained.iter().filter(|(s, ..)| *s == step);
        of_step.map(|(.., microbatch)| *microbatch).collect()
    }

    pub(super) fn on_applied(&mut self, step: StepId, group: Group) {
        self.trained
            .retain(|(s, d, _)| *s != step || !holds(group, *d));
    }

    pub(super) fn on_lost(&mut self, drafter: DrafterId) {
        self.trained.retain(|(_, d, _)| *d != drafter);
    }
}

fn holds(group: Group, drafter: DrafterId) -> bool {
    match group {
        Group::All => true,
        Group::One(one) => one == drafter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::id::TargetId;

    const D0: WorkerId = WorkerId::Drafter(DrafterId(0));

    #[test]
    fn a_piece_is_answered_once() {
        let mut ledger = Ledger::default();
        let piece = Piece::Train {
            microbatch: MicrobatchId(1),
            step: StepId(0),
        };
        ledger.open(D0, piece.clone());
        assert!(!ledger.close(WorkerId::Target(TargetId(0)), &piece));
        assert_eq!(ledger.at_work(), [D0]);
        assert!(ledger.close(D0, &piece));
        assert!(!ledger.close(D0, &piece));
        assert!(ledger.is_idle());
    }

    #[test]
    fn wakes_come_in_order_of_time() {
        let mut ledger = Ledger::default();
        for ns in [30, 10, 20, 10] {
            ledger.wake_at(Time::from_ns(ns));
        }
        let mut seen = Vec::new();
        while let Some(at) = ledger.next_wake() {
            ledger.take_wake();
            seen.push(at.as_ns());
        }
        assert_eq!(seen, [10, 10, 20, 30]);
    }

    #[test]
    fn a_step_knows_what_it_was_trained_on() {
        let mut ledger = Ledger::default();
        for (drafter, microbatch, step) in [(0, 5, 0), (1, 3, 0), (0, 9, 1)] {
            let (microbatch, step) = (MicrobatchId(microbatch), StepId(step));
            ledger.open(
                WorkerId::Drafter(DrafterId(drafter)),
                Piece::Train { microbatch, step },
            );
        }
        assert_eq!(
            ledger.trained_in(StepId(0)),
            [MicrobatchId(5), MicrobatchId(3)]
        );
        ledger.on_lost(DrafterId(1));
        assert_eq!(ledger.trained_in(StepId(0)), [MicrobatchId(5)]);
        ledger.on_applied(StepId(0), Group::All);
        assert_eq!(ledger.trained_in(StepId(0)), []);
        assert_eq!(ledger.trained_in(StepId(1)), [MicrobatchId(9)]);
    }
}
