//! One queue a bucket; a free drafter takes from whichever bucket the policy's `take` prefers.
//!
//! Better mixing than one queue, and no guarantee: what is not there cannot be taken.

use super::dispatch::{Dispatch, View};
use super::{Policy, Take};
use crate::core::Memo;
use crate::id::{DrafterId, MicrobatchId};
use crate::plan::Plan;

/// By bucket.
#[derive(Debug)]
pub(super) struct Bucketed;

impl Dispatch for Bucketed {
    fn lanes(&self, plan: &Plan, _policy: &Policy) -> usize {
        usize::from(plan.buckets)
    }

    fn lane(&self, microbatch: MicrobatchId, view: &View<'_>) -> usize {
        view.bucket(microbatch).index()
    }

    fn pick(&self, drafter: DrafterId, view: &View<'_>) -> Option<MicrobatchId> {
        let lanes = view.state.lanes.len();
        let from = view.memo().cursor as usize;
        let mut heads = (from..from + lanes)
            .map(|lane| if lane < lanes { lane } else { lane - lanes })
            .filter_map(|lane| Some((lane, view.head(lane)?)))
            .filter(|&(_, head)| view.may_take(drafter, head));
        match view.policy.take {
            Take::RoundRobin => heads.next(),
            Take::Oldest => heads.min_by_key(|&(_, head)| view.state.lives[head.index()].ticket),
            Take::Longest => {
                heads.min_by_key(|&(lane, _)| (usize::MAX - view.state.lanes[lane].len(), lane))
            }
            Take::Shortest => heads.min_by_key(|&(lane, _)| lane),
            Take::Random => {
                // A maximum of independent words is a uniform choice, without counting first.
                heads.max_by_key(|&(lane, _)| view.draw(lane as u32))
            }
        }
        .map(|(_, head)| head)
    }

    fn taken(&self, microbatch: MicrobatchId, view: &View<'_>) -> Memo {
        let memo = view.memo();
        match view.policy.take {
            Take::RoundRobin => {
                let next = (self.lane(microbatch, view) + 1) % view.state.lanes.len();
                Memo {
                    cursor: next as u32,
                    ..memo
                }
            }
            Take::Oldest | Take::Longest | Take::Shortest => memo,
            Take::Random => Memo {
                decisions: memo.decisions + 1,
                ..memo
            },
        }
    }
}
