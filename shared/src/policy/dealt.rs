//! A pool from which whole accumulation windows are dealt to the drafters' inboxes, one drafter after the other.
//!
//! Two trainers of the field work like this: one pauses its producers by a watermark on samples in flight and deals a window as soon as
//! it is complete, the other caps the pool and looks at it at intervals.

use super::Policy;
use super::dispatch::Dispatch;
use crate::core::{Core, Takeable};
use crate::id::{DrafterId, MicrobatchId};
use crate::plan::Plan;

/// By whole windows.
#[derive(Debug)]
pub(super) struct Dealt;

impl Dispatch for Dealt {
    /// The pool, then an inbox a drafter.
    fn lanes(&self, _plan: &Plan, policy: &Policy) -> usize {
        1 + usize::from(policy.drafters)
    }

    fn lane(&self, _microbatch: MicrobatchId, _core: &Core) -> usize {
        0
    }

    fn pick(&self, drafter: DrafterId, core: &Core) -> Option<Takeable> {
        let inbox = 1 + drafter.index();
        core.takeable(drafter, core.head(inbox)?, inbox)
    }

    /// Who has least in its windows, taken or dealt, gets the next one, until all have the same number of whole windows. So each is
    /// dealt a window, and after a failure only what was lost.
    fn deal(&self, core: &Core) -> Vec<DrafterId> {
        let pooled = core.state().lanes[0].len() as u32;
        let drafters = core.state().drafters.iter().enumerate();
        let mut held: Vec<(u32, DrafterId)> = drafters
            .filter(|(_, d)| d.is_present())
            .map(|(i, d)| {
                (
                    d.taken() + core.state().lanes[1 + i].len() as u32,
                    DrafterId::from_index(i),
                )
            })
            .collect();
        let Some(&(least, _)) = held.iter().min() else {
            return Vec::new();
        };
        let level = (least / core.grad_accum() + 1) * core.grad_accum();
        let lacking = held
            .iter()
            .map(|&(held, _)| level.saturating_sub(held))
            .sum();
        let count = match pooled {
            _ if pooled >= lacking => lacking,
            _ if core.all_arrived() => pooled,
            _ => 0,
        };
        let mut receivers = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let next = held.iter_mut().min().expect("a drafter is there");
            next.0 += 1;
            receivers.push(next.1);
        }
        receivers
    }
}
