//! When rows are computed again.

use std::collections::BTreeSet;

/// Which rows of which microbatches are computed again: [`FIRST`] rows of the first microbatch of
/// each bucket, spread over it, and one row of every n-th microbatch after.
///
/// The first ones find what is wrong with a set-up, which shows in any row; all rows would hold the
/// drafter up for several forwards, since they are computed one by one. The later ones find what goes
/// wrong while it runs, at no more than 1/n of the targets' work.
#[derive(Debug)]
pub struct Turns {
    every: u64,
    seen: BTreeSet<usize>,
    count: u64,
}

/// Rows of the first microbatch of each bucket that are computed again, among them its first and last.
const FIRST: usize = 4;

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
    pub fn next(&mut self, bucket: usize, rows: usize) -> Vec<usize> {
        self.count += 1;
        if self.seen.insert(bucket) {
            let some = rows.min(FIRST);
            return (0..some).map(|i| spread(i, some, rows)).collect();
        }
        if rows == 0 || self.every == 0 || !self.count.is_multiple_of(self.every) {
            return Vec::new();
        }
        // Not always the same one: the row moves on with the turns.
        vec![(self.count / self.every) as usize % rows]
    }
}

/// The `i`-th of `some` rows of `rows`, from the first to the last.
fn spread(i: usize, some: usize, rows: usize) -> usize {
    i * (rows - 1) / (some - 1).max(1)
}

#[cfg(test)]
mod tests {
    use super::Turns;

    #[test]
    fn some_of_the_first_of_each_bucket_and_one_row_of_every_nth() {
        let mut turns = Turns::new(4);
        let due: Vec<_> = [0, 0, 1, 0, 1, 0, 0, 0]
            .map(|bucket| turns.next(bucket, 3))
            .into();
        let none = Vec::new;
        let all = || vec![0, 1, 2];
        let expected = [
            all(),
            none(),
            all(),
            vec![1],
            none(),
            none(),
            none(),
            vec![2],
        ];
        assert_eq!(due, expected);
        let mut first = Turns::new(0);
        let rows: usize = (0..100).map(|_| first.next(0, 3).len()).sum();
        assert_eq!(rows, 3);
    }

    #[test]
    fn the_first_rows_are_spread_from_end_to_end() {
        let first = |rows| Turns::new(0).next(0, rows);
        assert_eq!(first(56), [0, 18, 36, 55]);
        assert_eq!(first(4), [0, 1, 2, 3]);
        assert_eq!((first(1), first(0)), (vec![0], Vec::new()));
    }
}
