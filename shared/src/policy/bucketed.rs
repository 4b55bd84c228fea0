//! One queue a bucket; a free drafter takes from whichever bucket the policy's `take` prefers.
//!
//! Better mixing than one queue, and no guarantee: what is not there cannot be taken.

use super::dispatch::Dispatch;
use super::{Policy, Take};
use crate::core::{Core, Memo, Takeable};
use crate::id::{DrafterId, MicrobatchId};
use crate::plan::Plan;

/// By bucket.
#[derive(Debug)]
pub(super) struct Bucketed;

impl Dispatch for Bucketed {
    fn lanes(&self, plan: &Plan, _policy: &Policy) -> usize {
        usize::from(plan.buckets())
    }

    fn lane(&self, microbatch: MicrobatchId, core: &Core) -> usize {
        core.bucket(microbatch).index()
    }

    #[inline]
    fn pick(&self, drafter: DrafterId, core: &Core) -> Option<Takeable> {
        match core.policy().take {
            Take::RoundRobin => next_in_turn(drafter, core),
            take => preferred(take, drafter, core),
        }
    }

    fn taken(&self, picked: Takeable, core: &Core) -> Memo {
        let memo = core.memo();
        match core.policy().take {
            Take::RoundRobin => {
                let next = lane_after(picked.lane(), core.state().lanes.len());
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

/// The next of so many lanes, on and round.
#[inline]
fn lane_after(lane: usize, lanes: usize) -> usize {
    if lane + 1 < lanes { lane + 1 } else { 0 }
}

/// The head of the first lane that has one to take, from the one whose turn it is on and round.
#[inline]
fn next_in_turn(drafter: DrafterId, core: &Core) -> Option<Takeable> {
    let lanes = core.state().lanes.len();
    let mut lane = core.memo().cursor as usize;
    for _ in 0..lanes {
        let head = core.head(lane);
        if let Some(found) = head.and_then(|head| core.takeable(drafter, head, lane)) {
            return Some(found);
        }
        lane = lane_after(lane, lanes);
    }
    None
}

/// The head that comes first by its age, its lane's length, its bucket or by chance.
#[inline(never)]
fn preferred(take: Take, drafter: DrafterId, core: &Core) -> Option<Takeable> {
    let lanes = 0..core.state().lanes.len();
    let mut heads = lanes.filter_map(|lane| core.takeable(drafter, core.head(lane)?, lane));
    match take {
        Take::RoundRobin | Take::Shortest => heads.next(),
        Take::Oldest => heads.min_by_key(|head| core.state().lives[head.microbatch()].ticket),
        Take::Longest => heads.min_by_key(|head| {
            let length = core.state().lanes[head.lane()].len();
            (usize::MAX - length, head.lane())
        }),
        // A maximum of independent words is a uniform choice, without counting first.
        Take::Random => heads.max_by_key(|head| core.draw(head.lane() as u32)),
    }
}
