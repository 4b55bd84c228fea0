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
        usize::from(plan.buckets)
    }

    fn lane(&self, microbatch: MicrobatchId, core: &Core) -> usize {
        core.bucket(microbatch).index()
    }

    fn pick(&self, drafter: DrafterId, core: &Core) -> Option<Takeable> {
        let lanes = core.state().lanes.len();
        let from = core.memo().cursor as usize;
        let head = |lane| core.takeable(drafter, core.head(lane)?, lane);
        let mut later = (from..lanes).filter_map(head);
        let mut earlier = (0..from).filter_map(head);
        let take = core.policy().take;
        if take == Take::RoundRobin {
            return later.next().or_else(|| earlier.next());
        }
        let heads = later.chain(earlier);
        match take {
            Take::RoundRobin | Take::Shortest => heads.min_by_key(Takeable::lane),
            Take::Oldest => {
                heads.min_by_key(|head| core.state().lives[head.microbatch().index()].ticket)
            }
            Take::Longest => heads.min_by_key(|head| {
                (
                    usize::MAX - core.state().lanes[head.lane()].len(),
                    head.lane(),
                )
            }),
            Take::Random => {
                // A maximum of independent words is a uniform choice, without counting first.
                heads.max_by_key(|head| core.draw(head.lane() as u32))
            }
        }
    }

    fn taken(&self, picked: Takeable, core: &Core) -> Memo {
        let memo = core.memo();
        match core.policy().take {
            Take::RoundRobin => {
                let next = (picked.lane() + 1) % core.state().lanes.len();
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
