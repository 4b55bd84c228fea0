//! Every microbatch's course, kept where a run is at work, so that its memory does not grow with its length.
//!
//! ```text
//!  part of the weights, or given up  |  kept: begun, next in turn, in sight  |  pending
//!                                  first                                    end
//! ```

use super::{Life, Status};
use crate::id::MicrobatchId;
use crate::plan::Microbatch;
use std::collections::BTreeSet;
use std::ops::{Index, IndexMut, Range};

/// The courses of a plan's microbatches.
///
/// Indexing is for those that are kept; it panics for others, of which [`Self::status`] tells all there is to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lives {
    /// In plan order.
    kept: Vec<Life>,
    /// The first that is kept.
    first: u32,
    /// The first that has not ended: courses before it are kept until enough of them can be let go at once.
    undone: u32,
    /// Those before `first` that were given up.
    failed: BTreeSet<MicrobatchId>,
    /// Microbatches of the plan.
    total: u32,
}

/// So many are kept beyond who is reached for, and so many let go at once.
const MANY: u32 = 64;

impl Lives {
    pub(super) fn new(total: u32) -> Self {
        Self {
            kept: Vec::new(),
            first: 0,
            undone: 0,
            failed: BTreeSet::new(),
            total,
        }
    }

    /// Microbatches of the plan.
    #[inline]
    pub fn len(&self) -> usize {
        self.total as usize
    }

    /// Whether the plan has none.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// A microbatch's course, if it is kept.
    #[inline]
    pub fn get(&self, id: MicrobatchId) -> Option<&Life> {
        // For who comes before the first this wraps to far beyond the last.
        self.kept.get(id.0.wrapping_sub(self.first) as usize)
    }

    /// Where a microbatch is on its way.
    #[inline]
    pub fn status(&self, id: MicrobatchId) -> Status {
        match self.get(id) {
            Some(life) => life.status,
            None if id.0 >= self.first => Status::Pending,
            None => self.ended(id),
        }
    }

    /// Where all are on their way, in plan order.
    pub fn statuses(&self) -> impl Iterator<Item = Status> {
        let before = (0..self.first).map(|row| self.ended(MicrobatchId(row)));
        let kept = self.kept.iter().map(|life| life.status);
        let beyond = self.len() - self.first as usize - self.kept.len();
        let beyond = std::iter::repeat_n(Status::Pending, beyond);
        before.chain(kept).chain(beyond)
    }

    /// How one ended whose course is not kept any more.
    #[inline]
    fn ended(&self, id: MicrobatchId) -> Status {
        if self.failed.contains(&id) {
            Status::Failed
        } else {
            Status::Committed
        }
    }

    /// Those that are kept, in plan order: all that are begun and neither given up nor part of the weights, and more.
    pub fn kept(&self) -> impl Iterator<Item = (MicrobatchId, &Life)> {
        (self.first..).map(MicrobatchId).zip(&self.kept)
    }

    /// Those that are kept and picked, in plan order.
    pub fn all_where(&self, pick: impl Fn(&Life) -> bool) -> Vec<MicrobatchId> {
        let picked = self.kept().filter(|(_, life)| pick(life));
        picked.map(|(id, _)| id).collect()
    }

    /// Those of so many rows that are kept, in plan order, with the row of the first.
    #[inline]
    pub(super) fn in_rows(&self, rows: Range<u32>) -> (u32, &[Life]) {
        let from = rows.start.max(self.first);
        let place = (from - self.first) as usize;
        let count = rows.end.saturating_sub(from) as usize;
        (from, &self.kept[place..place + count])
    }

    /// Keeps all before `end` from now on.
    #[inline]
    pub(super) fn reach(&mut self, end: u32, planned: &[Microbatch]) {
        if end as usize > self.first as usize + self.kept.len() {
            self.extend(end, planned);
        }
    }

    #[cold]
    fn extend(&mut self, end: u32, planned: &[Microbatch]) {
        self.let_go();
        let from = self.first as usize + self.kept.len();
        let to = end.saturating_add(MANY).min(self.total) as usize;
        self.kept.extend(planned[from..to].iter().map(Life::new));
    }

    /// Lets go of those at the front that have ended.
    fn let_go(&mut self) {
        let known = (self.undone - self.first) as usize;
        let more = self.kept[known..]
            .iter()
            .take_while(|life| matches!(life.status, Status::Committed | Status::Failed));
        self.undone += more.count() as u32;
        let ended = (self.undone - self.first) as usize;
        if ended < MANY as usize || ended * 2 < self.kept.len() {
            return;
        }
        let ids = (self.first..).map(MicrobatchId);
        let leaving = ids.zip(self.kept.drain(..ended));
        let failed = leaving.filter(|(_, life)| life.status == Status::Failed);
        self.failed.extend(failed.map(|(id, _)| id));
        self.first = self.undone;
    }
}

impl Index<MicrobatchId> for Lives {
    type Output = Life;

    #[inline]
    fn index(&self, id: MicrobatchId) -> &Life {
        &self.kept[id.0.wrapping_sub(self.first) as usize]
    }
}

impl IndexMut<MicrobatchId> for Lives {
    #[inline]
    fn index_mut(&mut self, id: MicrobatchId) -> &mut Life {
        &mut self.kept[id.0.wrapping_sub(self.first) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{BucketId, Bytes, Tokens};

    fn planned(count: u32) -> Vec<Microbatch> {
        let row = |key| Microbatch {
            bucket: BucketId(0),
            epoch: 0,
            key,
            samples: key..key + 1,
            tokens: Tokens(1),
            padded: Tokens(1),
            tokens_squared: 1,
            bytes: Bytes(u64::from(key)),
        };
        (0..count).map(row).collect()
    }

    #[test]
    fn what_has_ended_leaves_and_is_remembered_by_how_it_ended() {
        let plan = planned(1_000);
        let mut lives = Lives::new(1_000);
        for row in 0..1_000 {
            let id = MicrobatchId(row);
            assert_eq!(lives.status(id), Status::Pending);
            lives.reach(row + 1, &plan);
            assert_eq!(lives[id].bytes, Bytes(u64::from(row)));
            lives[id].status = match row {
                7 | 500 => Status::Failed,
                _ => Status::Committed,
            };
        }
        assert!(lives.kept.capacity() < 300, "{}", lives.kept.capacity());
        let failed = (0..).zip(lives.statuses());
        let failed: Vec<u32> = failed
            .filter(|&(_, status)| status != Status::Committed)
            .map(|(row, _)| row)
            .collect();
        assert_eq!(failed, [7, 500]);
    }

    #[test]
    fn who_is_under_way_stays_and_so_do_those_behind() {
        let plan = planned(1_000);
        let mut lives = Lives::new(1_000);
        for row in 0..1_000 {
            lives.reach(row + 1, &plan);
            if row != 300 {
                lives[MicrobatchId(row)].status = Status::Committed;
            }
        }
        let first = lives.kept().next().map(|(id, _)| id);
        assert!(first <= Some(MicrobatchId(300)) && first > Some(MicrobatchId(0)));
        assert_eq!(lives.status(MicrobatchId(300)), Status::Pending);
        let (from, some) = lives.in_rows(0..302);
        assert_eq!(Some(MicrobatchId(from)), first);
        assert_eq!(some.len() as u32, 302 - from);
        assert_eq!(some[300 - from as usize].status, Status::Pending);
    }
}
