//! Actions as orders.

use super::run::Run;
use crate::backend::{Backend, Leg, Ordered};
use crate::error::WorkerId;
use crate::store::Place;
use crate::worker::{Order, Piece};
use shared::core::{Action, Group};
use shared::id::StepId;

impl<B: Backend> Run<B> {
    pub(super) fn carry_out(&mut self, action: Action) {
        match action {
            Action::Forward { target, microbatch } => {
                let bytes = self.core.plan().microbatch(microbatch).bytes;
                self.order(
                    WorkerId::Target(target),
                    Piece::Forward { microbatch, bytes },
                );
            }
            Action::Stage {
                target,
                microbatch,
                drafter,
            } => {
                let to = drafter.map_or(Place::Host, Place::Drafter);
                let leg = Leg::Stage;
                self.order(
                    WorkerId::Target(target),
                    Piece::Copy {
                        leg,
                        microbatch,
                        to,
                    },
                );
            }
            Action::Fetch {
                drafter,
                microbatch,
                ..
            } => {
                let (leg, to) = (Leg::Fetch, Place::Drafter(drafter));
                self.order(
                    WorkerId::Drafter(drafter),
                    Piece::Copy {
                        leg,
                        microbatch,
                        to,
                    },
                );
            }
            Action::Train {
                drafter,
                microbatch,
                step,
            } => {
                self.order(
                    WorkerId::Drafter(drafter),
                    Piece::Train { microbatch, step },
                );
            }
            Action::Apply { step, group } => self.apply(step, group),
            Action::Admit { .. } => {}
            Action::Discard { microbatch } => self.store.discard(microbatch),
            Action::Wake { at } => self.ledger.wake_at(at),
            Action::StopTarget { target } => self.crew.stop(WorkerId::Target(target)),
            Action::StopDrafter { drafter } => self.crew.stop(WorkerId::Drafter(drafter)),
        }
    }

    /// The first member leads; a drafter that is lost is none, its contribution went with it.
    fn apply(&mut self, step: StepId, group: Group) {
        let members = match group {
            Group::All => self.crew.drafters().collect(),
            Group::One(drafter) => vec![drafter],
        };
        let leader = *members
            .first()
            .expect("an optimizer step has a drafter to lead it");
        self.order(
            WorkerId::Drafter(leader),
            Piece::Apply {
                step,
                group,
                members,
            },
        );
    }

    fn order(&mut self, worker: WorkerId, piece: Piece) {
        let ordered = Ordered {
            at: self.now,
            clock: self.clock,
        };
        self.ledger.open(worker, piece.clone());
        self.crew.send(worker, Order { piece, ordered });
    }
}
