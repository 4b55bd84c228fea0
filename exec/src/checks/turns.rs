//! When rows are computed again.

use std::collections::BTreeSet;
use std::ops::Range;

/// Which rows of which microbatches are computed again: every row of the first microbatch of each
/// bucket, and one row of every n-th microbatch after.
///
/// The first ones find what is wrong with a set-up, at the cost of one forward a bucket. The later
/// ones find what goes wrong while it runs, at no more than 1/n of the targets' work.
#[derive(Debug)]
pub struct Turns {
    every: u64,
    seen: BTreeSet<usize>,
    count: u64,
}

impl Turns {
    /// Every `every`-th; 0: only the first of each bucket.
    pub fn new(every: u32) -> Self {
        Self {
            every: every.into(),
            seen: BTreeSet::new(),
            count: 0,
        }
    }

    /// The rows to compute again of the next microbatch, which has `rows` of them.
    pub fn next(&mut self, bucket: usize, rows: usize) -> Range<usize> {
        self.count += 1;
        if self.seen.insert(bucket) {
            return 0..rows;
        }
        if rows == 0 || self.every == 0 || !self.count.is_multiple_of(self.every) {
            return 0..0;
        }
        // Not always the same one: the row moves on with the turns.
        let row = (self.count / self.every) as usize % rows;
        row..row + 1
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    #[test]
    fn the_first_of_each_bucket_and_one_row_of_every_nth() {
        let mut turns = Turns::new(4);
        let due: Vec<_> = [0, 0, 1, 0, 1, 0, 0, 0]
            .map(|bucket| turns.next(bucket, 3))
            .into();
        assert_eq!(due, [0..3, 0..0, 0..3, 1..2, 0..0, 0..0, 0..0, 2..3]);
        let mut first = Turns::new(0);
        let rows: usize = (0..100).map(|_| first.next(0, 3).len()).sum();
        assert_eq!(rows, 3);
    }
}
