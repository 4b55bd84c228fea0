//! One queue for all drafters: whoever is free takes what has waited longest.
//!
//! The simplest discipline, and the one to copy for a new one.

use super::Policy;
use super::dispatch::Dispatch;
use crate::core::{Core, Takeable};
use crate::id::{DrafterId, MicrobatchId};
use crate::plan::Plan;

/// First in, first out.
#[derive(Debug)]
pub(super) struct Fifo;

impl Dispatch for Fifo {
    fn lanes(&self, _plan: &Plan, _policy: &Policy) -> usize {
        1
    }

    fn lane(&self, _microbatch: MicrobatchId, _core: &Core) -> usize {
        0
    }

    fn pick(&self, drafter: DrafterId, core: &Core) -> Option<Takeable> {
        core.takeable(drafter, core.head(0)?, 0)
    }
}
