//! Bucket edges: given, by quantile, or optimal.

use super::least_padding;
use crate::id::BucketId;
use serde::{Deserialize, Serialize};

/// Upper edges of the buckets, strictly rising; bucket b holds lengths above edge b-1 and up to edge b. (tokens)
///
/// Invariant: at least one edge, at most [`Edges::MAX`], none 0, each above the one before.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u32>", into = "Vec<u32>")]
pub struct Edges(Vec<u32>);

/// Why edges cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EdgesError {
    /// No edge was given.
    #[error(
        "no bucket edges were given; name at least one, the longest length that is to be trained"
    )]
    Empty,
    /// More buckets than a bucket identity can count.
    #[error("{count} buckets are more than the {max} that a plan can hold; ask for fewer", max = Edges::MAX)]
    TooMany {
        /// How many were asked for.
        count: usize,
    },
    /// A bucket that nothing fits in.
    #[error("edge {position} is 0 tokens, and no sample is that short; leave it out")]
    Zero {
        /// Its place in the list, from 0.
        position: usize,
    },
    /// Two buckets overlap.
    #[error(
        "edge {position} is {edge} tokens, not above edge {} of {previous}, so their buckets overlap; \
         list edges in rising order, each once",
        position - 1
    )]
    NotRising {
        /// Place of the second of the two, from 0.
        position: usize,
        /// The first of the two. (tokens)
        previous: u32,
        /// The second of the two. (tokens)
        edge: u32,
    },
    /// No bucket was asked for.
    #[error("edges for 0 buckets were asked for; ask for at least 1")]
    NoBuckets,
    /// No lengths to choose edges by.
    #[error("there are no lengths to choose bucket edges by; give edges, or data")]
    NoLengths,
    /// A sample without tokens.
    #[error("sample {sample} has length 0; leave it out of the data")]
    ZeroLength {
        /// Its row in the data.
        sample: usize,
    },
}

#[expect(clippy::len_without_is_empty, reason = "edges are never empty")]
impl Edges {
    /// The most edges there can be: bucket identities are a byte.
    pub const MAX: usize = 250;

    /// Edges as a user lists them.
    ///
    /// # Errors
    /// When there are none or too many, when one is 0, or when they do not rise.
    pub fn given(edges: Vec<u32>) -> Result<Self, EdgesError> {
        if edges.is_empty() {
            return Err(EdgesError::Empty);
        }
        if edges.len() > Self::MAX {
            return Err(EdgesError::TooMany { count: edges.len() });
        }
        if let Some(position) = edges.iter().position(|&edge| edge == 0) {
            return Err(EdgesError::Zero { position });
        }
        for (before, pair) in edges.windows(2).enumerate() {
            if pair[0] >= pair[1] {
                let (previous, edge) = (pair[0], pair[1]);
                return Err(EdgesError::NotRising {
                    position: before + 1,
                    previous,
                    edge,
                });
            }
        }
        Ok(Self(edges))
    }

    /// Edges that put about the same number of samples in each of `buckets` buckets.
    ///
    /// Each edge is a length that occurs, and the last is the longest. A length that many samples share can be several quantiles
    /// at once; it then makes one edge, and there are fewer buckets.
    ///
    /// # Errors
    /// When there are no lengths or one is 0, or when `buckets` is 0 or more than [`Edges::MAX`].
    pub fn quantile(lengths: &[u32], buckets: usize) -> Result<Self, EdgesError> {
        let sorted = sorted(lengths, buckets)?;
        let mut edges: Vec<u32> = (1..=buckets)
            .map(|bucket| {
                let samples = (sorted.len() as u128 * bucket as u128).div_ceil(buckets as u128);
                sorted[samples as usize - 1]
            })
            .collect();
        edges.dedup();
        Self::given(edges)
    }

    /// Edges with the least total padding when each sample is padded to its bucket's edge, at most `buckets` of them.
    ///
    /// Exact. Each edge is a length that occurs, and the last is the longest. There are fewer than `buckets` only when fewer
    /// lengths occur.
    ///
    /// # Errors
    /// When there are no lengths or one is 0, or when `buckets` is 0 or more than [`Edges::MAX`].
    pub fn optimal(lengths: &[u32], buckets: usize) -> Result<Self, EdgesError> {
        let sorted = sorted(lengths, buckets)?;
        let distinct: Vec<(u32, u64)> = sorted
            .chunk_by(|a, b| a == b)
            .map(|equal| (equal[0], equal.len() as u64))
            .collect();
        Self::given(least_padding::edges(&distinct, buckets))
    }

    /// The bucket of a length, or none when it is longer than the last edge. Length 0 counts as the shortest.
    pub fn bucket_of(&self, length: u32) -> Option<BucketId> {
        let bucket = self.0.partition_point(|&edge| edge < length);
        (bucket < self.0.len()).then(|| BucketId::from_index(bucket))
    }

    /// The number of buckets.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The longest length that has a bucket. (tokens)
    pub fn last(&self) -> u32 {
        self.0[self.0.len() - 1]
    }

    /// All edges, rising. (tokens)
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }
}

impl TryFrom<Vec<u32>> for Edges {
    type Error = EdgesError;
    fn try_from(edges: Vec<u32>) -> Result<Self, EdgesError> {
        Self::given(edges)
    }
}

impl From<Edges> for Vec<u32> {
    fn from(edges: Edges) -> Self {
        edges.0
    }
}

fn sorted(lengths: &[u32], buckets: usize) -> Result<Vec<u32>, EdgesError> {
    if buckets == 0 {
        return Err(EdgesError::NoBuckets);
    }
    if buckets > Edges::MAX {
        return Err(EdgesError::TooMany { count: buckets });
    }
    if lengths.is_empty() {
        return Err(EdgesError::NoLengths);
    }
    if let Some(sample) = lengths.iter().position(|&length| length == 0) {
        return Err(EdgesError::ZeroLength { sample });
    }
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    Ok(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::value::{Error, SeqDeserializer};

    #[test]
    fn given_edges_are_checked_and_the_message_names_the_place() {
        let refused = |edges: &[u32]| Edges::given(edges.to_vec()).unwrap_err();
        assert_eq!(refused(&[]), EdgesError::Empty);
        assert_eq!(refused(&[0, 4]), EdgesError::Zero { position: 0 });
        assert_eq!(refused(&vec![1; 251]), EdgesError::TooMany { count: 251 });
        let overlap = refused(&[512, 2048, 2048, 4096]);
        assert_eq!(
            overlap.to_string(),
            "edge 2 is 2048 tokens, not above edge 1 of 2048, so their buckets overlap; \
             list edges in rising order, each once"
        );
        assert_eq!(Edges::given((1..=250).collect()).unwrap().len(), 250);
    }

    #[test]
    fn a_bucket_holds_its_upper_edge() {
        let edges = Edges::given(vec![10, 20]).unwrap();
        let buckets = [1, 10, 11, 20, 21].map(|l| edges.bucket_of(l).map(|b| b.0));
        assert_eq!(buckets, [Some(0), Some(0), Some(1), Some(1), None]);
        assert_eq!((edges.last(), edges.as_slice()), (20, &[10, 20][..]));
    }

    #[test]
    fn quantiles_share_samples_evenly() {
        let lengths: Vec<u32> = (1..=1200).rev().collect();
        let edges = Edges::quantile(&lengths, 6).unwrap();
        assert_eq!(edges.as_slice(), [200, 400, 600, 800, 1000, 1200]);
    }

    #[test]
    fn quantiles_that_coincide_merge() {
        let mut lengths = vec![7; 90];
        lengths.extend([3, 9, 9, 9, 9, 9, 9, 9, 9, 12]);
        assert_eq!(Edges::quantile(&lengths, 4).unwrap().as_slice(), [7, 12]);
        assert_eq!(Edges::quantile(&[5, 5], 8).unwrap().as_slice(), [5]);
        assert_eq!(Edges::optimal(&[5, 5, 3], 8).unwrap().as_slice(), [3, 5]);
    }

    #[test]
    fn choosing_needs_lengths_and_buckets() {
        for choose in [Edges::quantile, Edges::optimal] {
            assert_eq!(choose(&[], 3), Err(EdgesError::NoLengths));
            assert_eq!(
                choose(&[4, 0], 3),
                Err(EdgesError::ZeroLength { sample: 1 })
            );
            assert_eq!(choose(&[4], 0), Err(EdgesError::NoBuckets));
            assert_eq!(choose(&[4], 251), Err(EdgesError::TooMany { count: 251 }));
        }
    }

    #[test]
    fn edges_read_from_a_file_are_checked_too() {
        let read = |edges: Vec<u32>| {
            Edges::deserialize(SeqDeserializer::<_, Error>::new(edges.into_iter()))
        };
        assert_eq!(read(vec![8, 16]).unwrap(), Edges(vec![8, 16]));
        assert!(
            read(vec![16, 8])
                .unwrap_err()
                .to_string()
                .contains("overlap")
        );
    }
}
