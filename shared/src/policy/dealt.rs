//! A pool from which whole accumulation windows are dealt to the drafters' inboxes, one drafter after the other.
//!
//! Two trainers of the field work like this: one pauses its producers by a watermark on samples in flight and deals a window as soon as
//! it is complete, the other caps the pool and looks at it at intervals.

use super::dispatch::{Dispatch, View};
use super::{Policy, Queue};
use crate::id::{DrafterId, MicrobatchId};
use crate::plan::Plan;
use crate::time::Span;

/// By whole windows.
#[derive(Debug)]
pub(super) struct Dealt;

impl Dispatch for Dealt {
    fn queue(&self) -> Queue {
        Queue::Dealt
    }

    /// The pool, then an inbox a drafter.
    fn lanes(&self, _plan: &Plan, policy: &Policy) -> usize {
        1 + usize::from(policy.drafters)
    }

    fn lane(&self, _microbatch: MicrobatchId, _view: &View<'_>) -> usize {
        0
    }

    fn pick(&self, drafter: DrafterId, view: &View<'_>) -> Option<MicrobatchId> {
        view.head(1 + drafter.index())
            .filter(|&head| view.may_take(drafter, head))
    }

    fn deal(&self, view: &View<'_>) -> usize {
        let poll = view.policy.poll;
        let looks_now = poll == Span::ZERO || view.state.now.as_ns().is_multiple_of(poll.as_ns());
        let pooled = view.state.lanes[0].len();
        let window = view.window() as usize;
        if !looks_now || window == 0 {
            0
        } else if pooled >= window {
            window
        } else if view.all_arrived() {
            pooled
        } else {
            0
        }
    }
}
