//! The trait of a dispatch discipline, and the registry of all of them.

use super::{Policy, Queue, bucketed, composed, dealt, fifo, per_drafter};
use crate::core::{Core, Memo, Takeable};
use crate::id::{DrafterId, MicrobatchId};
use crate::plan::Plan;

/// How hidden states wait and who takes which. It prefers; the core has the last word on what is legal.
///
/// It sees the core as it is: everything that has happened, nothing that will.
/// Implementations hold no state of their own: what they must remember is a [`Memo`], which the core keeps. Asking changes nothing.
pub trait Dispatch {
    /// The number of lanes in which hidden states wait.
    fn lanes(&self, plan: &Plan, policy: &Policy) -> usize;

    /// The lane that a microbatch joins on arrival.
    fn lane(&self, microbatch: MicrobatchId, core: &Core) -> usize;

    /// The drafter that a microbatch is meant for, when the discipline knows it before one is taken. Who comes after one that is lost is
    /// the core's affair.
    fn consignee(&self, _microbatch: MicrobatchId, _core: &Core) -> Option<DrafterId> {
        None
    }

    /// The waiting microbatch that `drafter` should take next, among those that [`Core::takeable`] allows.
    fn pick(&self, drafter: DrafterId, core: &Core) -> Option<Takeable>;

    /// What to remember when it is taken.
    fn taken(&self, _picked: Takeable, core: &Core) -> Memo {
        core.memo()
    }

    /// The drafters to whose lanes, those after lane 0, the heads of lane 0 should be dealt, one each.
    fn deal(&self, _core: &Core) -> Vec<DrafterId> {
        Vec::new()
    }
}

/// The registry of all disciplines: asks the one that a choice in a policy file names. A new one is a file in this folder and a line here.
macro_rules! ask {
    ($queue:expr, $question:ident($($argument:expr),*)) => {
        match $queue {
            Queue::Fifo => fifo::Fifo.$question($($argument),*),
            Queue::PerDrafter => per_drafter::PerDrafter.$question($($argument),*),
            Queue::Bucketed => bucketed::Bucketed.$question($($argument),*),
            Queue::Composed => composed::Composed.$question($($argument),*),
            Queue::Dealt => dealt::Dealt.$question($($argument),*),
        }
    };
}

/// A choice stands for the discipline that it names.
impl Dispatch for Queue {
    fn lanes(&self, plan: &Plan, policy: &Policy) -> usize {
        ask!(self, lanes(plan, policy))
    }

    #[inline]
    fn lane(&self, microbatch: MicrobatchId, core: &Core) -> usize {
        ask!(self, lane(microbatch, core))
    }

    #[inline]
    fn consignee(&self, microbatch: MicrobatchId, core: &Core) -> Option<DrafterId> {
        ask!(self, consignee(microbatch, core))
    }

    #[inline]
    fn pick(&self, drafter: DrafterId, core: &Core) -> Option<Takeable> {
        ask!(self, pick(drafter, core))
    }

    #[inline]
    fn taken(&self, picked: Takeable, core: &Core) -> Memo {
        ask!(self, taken(picked, core))
    }

    fn deal(&self, core: &Core) -> Vec<DrafterId> {
        ask!(self, deal(core))
    }
}
