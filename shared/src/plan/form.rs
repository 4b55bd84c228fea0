//! Lengths to microbatches.

use super::shuffle::shuffle;
use super::{FormError, FormSpec, Formation, Microbatch};
use crate::draw::Stream;
use crate::id::{BucketId, Bytes, SampleId, Tokens};
use serde::{Deserialize, Serialize};

/// Limits of one microbatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Padded tokens. (tokens)
    pub token_budget: u32,
    /// Samples.
    pub batch_max: u32,
}

impl Limits {
    /// Samples that one microbatch of a bucket may hold: as many as fit the budget when each is as long as the bucket's edge, so
    /// that the number does not depend on which samples meet. 0 when not even one fits.
    pub fn capacity(&self, edge: u32) -> u32 {
        self.batch_max.min(self.token_budget / edge.max(1))
    }
}

/// What happens to samples longer than the last edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverLong {
    /// The plan is refused, and the error names them.
    Refuse,
    /// They are left out, counted and listed.
    Skip,
}

impl Formation {
    /// Forms the microbatches of a run from the lengths of its samples. (tokens)
    ///
    /// In each epoch samples are shuffled, sorted into buckets, and each bucket is cut into microbatches from its first sample on:
    /// [`Limits::capacity`] samples each, and the last one what is left. A microbatch is as wide as its longest sample, so `padded`
    /// is samples times that length, and never over the token budget.
    ///
    /// # Errors
    /// When limits, lengths and edges do not fit together; each variant of [`FormError`] says how.
    pub fn form(lengths: &[u32], spec: &FormSpec) -> Result<Self, FormError> {
        let capacities = capacities(spec)?;
        let sorted = Sorted::new(lengths, spec)?;
        let per_epoch: usize = sorted.counts.iter().sum();
        let all = per_epoch as u64 * u64::from(spec.epochs);
        if all > u64::from(u32::MAX) {
            return Err(FormError::TooManySamples {
                samples: per_epoch as u64,
                epochs: spec.epochs,
            });
        }
        let cuts: usize = sorted
            .counts
            .iter()
            .zip(&capacities)
            .map(|(n, &cap)| n.div_ceil(cap as usize))
            .sum();
        let mut samples = Vec::with_capacity(all as usize);
        let mut microbatches = Vec::with_capacity(cuts * usize::from(spec.epochs));
        let mut order = Vec::with_capacity(per_epoch);
        for epoch in 0..spec.epochs {
            order.clear();
            order.extend((0..lengths.len() as u32).filter(|&id| sorted.keeps(id)));
            shuffle(
                &mut order,
                spec.seed.derive(u64::from(epoch)),
                Stream::Shuffle,
            );
            let mut start = samples.len() as u32;
            sorted.deal(&order, &mut samples);
            for (bucket, (&count, &capacity)) in sorted.counts.iter().zip(&capacities).enumerate() {
                let end = start + count as u32;
                while start < end {
                    let range = start..end.min(start.saturating_add(capacity));
                    start = range.end;
                    let ids = &samples[range.start as usize..range.end as usize];
                    microbatches.push(Microbatch {
                        bucket: BucketId::from_index(bucket),
                        epoch,
                        key: microbatches.len() as u32,
                        samples: range,
                        ..measure(
                            ids.iter().map(|id| lengths[id.index()]),
                            spec.bytes_per_token,
                        )?
                    });
                }
            }
        }
        let (edges, over_long) = (spec.edges.clone(), sorted.over_long);
        Ok(Self {
            samples,
            microbatches,
            edges,
            epochs: spec.epochs,
            over_long,
        })
    }
}

/// Hidden states of `padded` tokens.
pub(super) fn hidden_states(padded: Tokens, bytes_per_token: Bytes) -> Result<Bytes, FormError> {
    let bytes = padded.0.checked_mul(bytes_per_token.0).map(Bytes);
    bytes.ok_or(FormError::BytesOverflow {
        padded,
        bytes_per_token,
    })
}

/// A microbatch's amounts; who it is stays at the default. The token budget bounds every sum.
fn measure(
    lengths: impl Iterator<Item = u32>,
    bytes_per_token: Bytes,
) -> Result<Microbatch, FormError> {
    let (mut samples, mut longest, mut tokens, mut tokens_squared) = (0_u64, 0_u64, 0_u64, 0_u64);
    for length in lengths.map(u64::from) {
        samples += 1;
        longest = longest.max(length);
        tokens += length;
        tokens_squared += length * length;
    }
    let padded = Tokens(samples * longest);
    Ok(Microbatch {
        bucket: BucketId(0),
        epoch: 0,
        key: 0,
        samples: 0..0,
        tokens: Tokens(tokens),
        padded,
        tokens_squared,
        bytes: hidden_states(padded, bytes_per_token)?,
    })
}

/// Samples a microbatch of each bucket may hold, at least 1.
fn capacities(spec: &FormSpec) -> Result<Vec<u32>, FormError> {
    let Limits {
        token_budget,
        batch_max,
    } = spec.limits;
    if spec.epochs == 0 {
        return Err(FormError::NoEpochs);
    }
    if batch_max == 0 {
        return Err(FormError::ZeroLimit {
            limit: "the maximum batch size",
            least: 1,
        });
    }
    if token_budget == 0 {
        let least = spec.edges.last();
        return Err(FormError::ZeroLimit {
            limit: "the token budget",
            least,
        });
    }
    let capacity = |(bucket, &edge): (usize, &u32)| match spec.limits.capacity(edge) {
        0 => {
            let bucket = BucketId::from_index(bucket);
            Err(FormError::EdgeOverBudget {
                bucket,
                edge,
                token_budget,
            })
        }
        capacity => Ok(capacity),
    };
    spec.edges
        .as_slice()
        .iter()
        .enumerate()
        .map(capacity)
        .collect()
}

/// The bucket of each sample.
struct Sorted {
    buckets: Vec<u8>,
    counts: Vec<usize>,
    over_long: Vec<SampleId>,
}

impl Sorted {
    /// Stands for a bucket where a sample has none; [`Edges::MAX`](super::Edges::MAX) keeps it free.
    const NONE: u8 = u8::MAX;

    fn new(lengths: &[u32], spec: &FormSpec) -> Result<Self, FormError> {
        if lengths.is_empty() {
            return Err(FormError::NoSamples);
        }
        if lengths.len() > u32::MAX as usize {
            let samples = lengths.len() as u64;
            return Err(FormError::TooManySamples {
                samples,
                epochs: spec.epochs,
            });
        }
        let mut buckets = Vec::with_capacity(lengths.len());
        let mut counts = vec![0; spec.edges.len()];
        let mut over_long = Vec::new();
        for (sample, &length) in lengths.iter().enumerate() {
            let sample = SampleId::from_index(sample);
            if length == 0 {
                return Err(FormError::ZeroLength { sample });
            }
            match spec.edges.bucket_of(length) {
                Some(bucket) => {
                    counts[bucket.index()] += 1;
                    buckets.push(bucket.0);
                }
                None => {
                    over_long.push(sample);
                    buckets.push(Self::NONE);
                }
            }
        }
        let (count, edge) = (over_long.len(), spec.edges.last());
        if count > 0 && spec.over_long == OverLong::Refuse {
            let named = |id: &SampleId| (*id, lengths[id.index()]);
            return Err(FormError::OverLong {
                count,
                samples: lengths.len(),
                first: over_long.iter().take(LISTED_MAX).map(named).collect(),
                longest: over_long
                    .iter()
                    .map(|id| lengths[id.index()])
                    .max()
                    .unwrap_or(edge),
                edge,
            });
        }
        if count == lengths.len() {
            return Err(FormError::AllOverLong { count, edge });
        }
        Ok(Self {
            buckets,
            counts,
            over_long,
        })
    }

    fn keeps(&self, id: u32) -> bool {
        self.buckets[id as usize] != Self::NONE
    }

    /// Appends the samples of `order` to `samples`, bucket by bucket, each bucket in the order of `order`.
    fn deal(&self, order: &[u32], samples: &mut Vec<SampleId>) {
        let mut next = samples.len();
        let mut places = Vec::with_capacity(self.counts.len());
        for &count in &self.counts {
            places.push(next);
            next += count;
        }
        samples.resize(next, SampleId(0));
        for &id in order {
            let place = &mut places[usize::from(self.buckets[id as usize])];
            samples[*place] = SampleId(id);
            *place += 1;
        }
    }
}

/// Over-long samples an error names.
const LISTED_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Seed;
    use crate::plan::Edges;

    fn spec(edges: &[u32], token_budget: u32, batch_max: u32) -> FormSpec {
        FormSpec {
            edges: Edges::given(edges.to_vec()).unwrap(),
            limits: Limits {
                token_budget,
                batch_max,
            },
            over_long: OverLong::Refuse,
            epochs: 1,
            bytes_per_token: Bytes(51_200),
            seed: Seed(1),
        }
    }

    fn lengths(seed: u64, count: u64, longest: u64) -> Vec<u32> {
        (0..count)
            .map(|i| 1 + Seed(seed).below(Stream::Length, i, longest) as u32)
            .collect()
    }

    #[test]
    fn every_sample_comes_once_an_epoch_within_every_limit() {
        for seed in 0..60 {
            let lengths = lengths(seed, 1 + 37 * seed, 4_000);
            let mut spec = spec(
                &[300, 800, 1_500, 4_000],
                4_000 + 500 * seed as u32,
                1 + seed as u32,
            );
            (spec.epochs, spec.seed) = (3, Seed(seed));
            let formation = Formation::form(&lengths, &spec).unwrap();
            let mut seen = vec![0_u32; lengths.len()];
            let mut end = 0;
            for (row, m) in formation.microbatches.iter().enumerate() {
                assert_eq!((m.key as usize, m.samples.start), (row, end));
                end = m.samples.end;
                let ids = &formation.samples[m.samples.start as usize..m.samples.end as usize];
                let held: Vec<u64> = ids
                    .iter()
                    .map(|id| u64::from(lengths[id.index()]))
                    .collect();
                let longest = *held.iter().max().unwrap();
                assert_eq!(m.tokens.0, held.iter().sum::<u64>());
                assert_eq!(m.tokens_squared, held.iter().map(|l| l * l).sum::<u64>());
                assert_eq!(m.padded.0, longest * held.len() as u64);
                assert_eq!(m.bytes.0, m.padded.0 * 51_200);
                assert!(m.padded.0 <= u64::from(spec.limits.token_budget));
                assert!(m.sample_count() <= spec.limits.batch_max);
                for id in ids {
                    assert_eq!(spec.edges.bucket_of(lengths[id.index()]), Some(m.bucket));
                    assert_eq!(
                        seen[id.index()],
                        u32::from(m.epoch),
                        "once an epoch, in order"
                    );
                    seen[id.index()] += 1;
                }
            }
            assert!(seen.iter().all(|&n| n == 3) && end as usize == formation.samples.len());
        }
    }

    #[test]
    fn microbatches_are_grouped_by_epoch_and_bucket_and_full_but_for_the_last() {
        let lengths = lengths(5, 1_000, 100);
        let mut spec = spec(&[50, 100], 400, 64);
        spec.epochs = 2;
        let formation = Formation::form(&lengths, &spec).unwrap();
        let groups: Vec<&[Microbatch]> = formation
            .microbatches
            .chunk_by(|a, b| (a.epoch, a.bucket) == (b.epoch, b.bucket))
            .collect();
        assert_eq!(groups.len(), 4);
        for group in groups {
            let capacity = if group[0].bucket.0 == 0 { 8 } else { 4 };
            let (last, full) = group.split_last().unwrap();
            assert!(full.iter().all(|m| m.sample_count() == capacity));
            assert!((1..=capacity).contains(&last.sample_count()));
        }
    }

    #[test]
    fn the_seed_decides_and_epochs_differ() {
        let lengths = lengths(2, 500, 100);
        let mut spec = spec(&[100], 1_000, 64);
        spec.epochs = 2;
        let formation = Formation::form(&lengths, &spec).unwrap();
        assert_eq!(formation, Formation::form(&lengths, &spec).unwrap());
        assert_ne!(formation.samples[..500], formation.samples[500..]);
        spec.seed = Seed(2);
        assert_ne!(
            formation.samples,
            Formation::form(&lengths, &spec).unwrap().samples
        );
    }

    #[test]
    fn over_long_samples_are_named_or_skipped_and_listed() {
        let lengths = [10, 99, 20, 50, 51, 52, 53, 54, 55];
        let mut spec = spec(&[20], 100, 8);
        let message = Formation::form(&lengths, &spec).unwrap_err().to_string();
        assert_eq!(
            message,
            "7 of 9 samples are longer than the last bucket edge of 20 tokens: #1 (99), #3 (50), #4 (51), \
             #5 (52), #6 (53), and 2 more; raise the last edge to 99, shorten them, or set over_long = \"skip\" to leave them out"
        );
        spec.over_long = OverLong::Skip;
        let formation = Formation::form(&lengths, &spec).unwrap();
        assert_eq!(formation.over_long, [1, 3, 4, 5, 6, 7, 8].map(SampleId));
        assert_eq!(formation.samples.len(), 2);
        let all = Formation::form(&lengths[3..], &spec);
        assert_eq!(all, Err(FormError::AllOverLong { count: 6, edge: 20 }));
    }

    #[test]
    fn what_cannot_be_formed_is_refused() {
        let refused =
            |lengths: &[u32], spec: &FormSpec| Formation::form(lengths, spec).unwrap_err();
        let good = spec(&[20, 40], 100, 8);
        assert_eq!(refused(&[], &good), FormError::NoSamples);
        assert_eq!(
            refused(&[3, 0], &good),
            FormError::ZeroLength {
                sample: SampleId(1)
            }
        );
        assert_eq!(
            refused(
                &[3],
                &FormSpec {
                    epochs: 0,
                    ..good.clone()
                }
            ),
            FormError::NoEpochs
        );
        assert!(
            refused(&[3], &spec(&[20], 0, 8))
                .to_string()
                .starts_with("the token budget is 0")
        );
        assert!(
            refused(&[3], &spec(&[20], 20, 0))
                .to_string()
                .contains("batch size is 0")
        );
        assert_eq!(
            refused(&[3], &spec(&[20, 40], 39, 8)).to_string(),
            "bucket b1 holds samples of up to 40 tokens, more than the token budget of 39; \
             raise the budget to at least 40 or lower the edge"
        );
        let heavy = FormSpec {
            bytes_per_token: Bytes(u64::MAX),
            ..good.clone()
        };
        assert!(matches!(
            refused(&[3], &heavy),
            FormError::BytesOverflow { .. }
        ));
        let many = FormSpec {
            epochs: u16::MAX,
            ..good
        };
        let expected = FormError::TooManySamples {
            samples: 70_000,
            epochs: u16::MAX,
        };
        assert_eq!(refused(&vec![1; 70_000], &many), expected);
    }
}
