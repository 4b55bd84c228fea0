//! A set of buckets, small enough to copy.

use crate::id::BucketId;

/// Any of the 256 buckets that a [`BucketId`] can name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BucketSet([u64; 4]);

impl BucketSet {
    /// Adds a bucket.
    pub fn insert(&mut self, bucket: BucketId) {
        let (word, bit) = place(bucket);
        self.0[word] |= bit;
    }

    /// Whether a bucket is in it.
    pub fn contains(&self, bucket: BucketId) -> bool {
        let (word, bit) = place(bucket);
        self.0[word] & bit != 0
    }

    /// The number of buckets in it.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Its buckets, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = BucketId> {
        let set = *self;
        (0..=u8::MAX)
            .map(BucketId)
            .filter(move |&bucket| set.contains(bucket))
    }
}

impl FromIterator<BucketId> for BucketSet {
    fn from_iter<I: IntoIterator<Item = BucketId>>(buckets: I) -> Self {
        let mut set = Self::default();
        for bucket in buckets {
            set.insert(bucket);
        }
        set
    }
}

fn place(bucket: BucketId) -> (usize, u64) {
    (bucket.index() / 64, 1 << (bucket.0 % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_of_every_word_are_told_apart() {
        let all = [0, 1, 63, 64, 127, 128, 255].map(BucketId);
        let set: BucketSet = all.into_iter().collect();
        assert_eq!(set.count(), 7);
        assert!(set.iter().eq(all));
        assert!(!set.contains(BucketId(65)));
    }
}
