//! One queue a bucket; a free drafter takes from whichever bucket the policy's `take` prefers.
//!
//! Better mixing than one queue, and no guarantee: what is not there cannot be taken.

use super::dispatch::Dispatch;
use super::{Policy, Take};
use crate::core::{Core, Line, Memo};
use crate::id::{DrafterId, MicrobatchId};
use crate::plan::Plan;

/// By bucket.
#[derive(Debug)]
pub(super) struct Bucketed;

impl Dispatch for Bucketed {
    fn lanes(&self, plan: &Plan, _policy: &Policy) -> usize {
        usize::from(plan.buckets)
    }

    fn lane(&self, microbatch: MicrobatchId, core: &Core) -> usize {
        core.bucket(microbatch).index()
    }

    fn pick(&self, drafter: DrafterId, core: &Core) -> Option<MicrobatchId> {
        let lanes = core.state().lanes.len();
        let from = core.memo().cursor as usize;
        let head = |lane| {
            let head = core.head(lane)?;
            core.may_take(drafter, head).then_some((lane, head))
        };
        let heads = (from..lanes).chain(0..from).filter_map(head);
        match core.policy().take {
            Take::RoundRobin => return next_in_turn(from, drafter, core),
            Take::Oldest => heads.min_by_key(|&(_, head)| core.state().lives[head.index()].ticket),
            Take::Longest => {
                heads.min_by_key(|&(lane, _)| (usize::MAX - core.state().lanes[lane].len(), lane))
            }
            Take::Shortest => heads.min_by_key(|&(lane, _)| lane),
            Take::Random => {
                // A maximum of independent words is a uniform choice, without counting first.
                heads.max_by_key(|&(lane, _)| core.draw(lane as u32))
            }
        }
        .map(|(_, head)| head)
    }

    fn taken(&self, microbatch: MicrobatchId, core: &Core) -> Memo {
        let memo = core.memo();
        match core.policy().take {
            Take::RoundRobin => {
                let next = (self.lane(microbatch, core) + 1) % core.state().lanes.len();
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

/// The head of the first lane from `from` on, and round, that may be taken.
fn next_in_turn(from: usize, drafter: DrafterId, core: &Core) -> Option<MicrobatchId> {
    let (earlier, later) = core.state().lanes.split_at(from);
    let mut heads = later.iter().chain(earlier).filter_map(Line::first);
    heads.find(|&head| core.may_take(drafter, head))
}
