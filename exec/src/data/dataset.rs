//! The samples of a run: in memory, or in a token store that is mapped.

use std::ops::Range;
use std::sync::Arc;

use super::counts::{Counts, DropReason};
use super::digest::{Digest, scrambled};
use super::error::Place;
use super::owned::Owned;
use super::token_store::Mapped;

/// One training sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Its index in the data set.
    pub index: u32,
    /// Token ids.
    pub input_ids: Vec<u32>,
    /// 1 where a token bears loss, else 0; as long as `input_ids`.
    pub loss_mask: Vec<u8>,
}

/// All samples of a run: 5 bytes a token and 24 bytes a sample, in memory or mapped.
///
/// Invariant: no sample is empty, and its mask is as long as its ids.
#[derive(Debug, Clone)]
pub struct Dataset {
    samples: Samples,
    /// The samples that count, in ascending order; all of them where there is no list.
    chosen: Option<Vec<u32>>,
    counts: Counts,
}

#[derive(Debug, Clone)]
enum Samples {
    Owned(Arc<Owned>),
    Mapped(Arc<Mapped>),
}

impl Dataset {
    pub(super) fn owned(samples: Owned, counts: Counts) -> Self {
        Self {
            samples: Samples::Owned(Arc::new(samples)),
            chosen: None,
            counts,
        }
    }

    pub(super) fn mapped(samples: Mapped, counts: Counts) -> Self {
        Self {
            samples: Samples::Mapped(Arc::new(samples)),
            chosen: None,
            counts,
        }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.chosen
            .as_ref()
            .map_or_else(|| self.samples.len(), Vec::len)
    }

    /// Whether there is no sample; never so for a data set that was loaded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Length of sample `i` in tokens.
    ///
    /// # Panics
    /// `i` is not below [`len`](Self::len); so for every method that takes an index.
    pub fn length(&self, i: usize) -> u32 {
        let range = self.samples.range(self.stored(i));
        u32::try_from(range.len()).expect("a sample is at most max_len tokens, a u32")
    }

    /// Lengths of all samples in tokens.
    pub fn lengths(&self) -> Vec<u32> {
        (0..self.len()).map(|i| self.length(i)).collect()
    }

    /// Tokens of all samples.
    pub fn tokens(&self) -> u64 {
        (0..self.len()).map(|i| u64::from(self.length(i))).sum()
    }

    /// Loss-bearing tokens of all samples.
    pub fn loss_tokens(&self) -> u64 {
        let of = |i| match &self.samples {
            Samples::Owned(owned) => owned.loss_tokens(self.stored(i)),
            Samples::Mapped(mapped) => mapped.loss_tokens(self.stored(i)),
        };
        (0..self.len()).map(of).sum()
    }

    /// Token ids of sample `i`.
    pub fn ids(&self, i: usize) -> &[u32] {
        let range = self.samples.range(self.stored(i));
        match &self.samples {
            Samples::Owned(owned) => &owned.ids[range],
            Samples::Mapped(mapped) => &mapped.ids()[range],
        }
    }

    /// Loss mask of sample `i`: 1 where a token bears loss, else 0.
    pub fn mask(&self, i: usize) -> &[u8] {
        let range = self.samples.range(self.stored(i));
        match &self.samples {
            Samples::Owned(owned) => &owned.mask[range],
            Samples::Mapped(mapped) => &mapped.mask()[range],
        }
    }

    /// A copy of sample `i`.
    pub fn sample(&self, i: usize) -> Sample {
        let index = u32::try_from(i).expect("there are at most u32::MAX samples");
        Sample {
            index,
            input_ids: self.ids(i).to_vec(),
            loss_mask: self.mask(i).to_vec(),
        }
    }

    /// The `id` of the record that sample `i` was made of, where it has one.
    pub fn name(&self, i: usize) -> Option<&str> {
        let i = self.stored(i);
        let name = match &self.samples {
            Samples::Owned(owned) => owned.name(i),
            Samples::Mapped(mapped) => mapped.name(i),
        };
        Some(name).filter(|name| !name.is_empty())
    }

    /// The file and line at which sample `i` begins.
    pub fn place(&self, i: usize) -> Place {
        let i = self.stored(i);
        let place = match &self.samples {
            Samples::Owned(owned) => owned.places[i],
            Samples::Mapped(mapped) => mapped.place(i),
        };
        self.samples.place(place)
    }

    /// Every record that became no sample, in the order read, with where it begins; a subset keeps
    /// the list of the whole.
    pub fn dropped(&self) -> impl ExactSizeIterator<Item = (Place, DropReason)> {
        let number = match &self.samples {
            Samples::Owned(owned) => owned.dropped.len(),
            Samples::Mapped(mapped) => mapped.dropped_len(),
        };
        (0..number).map(|i| {
            let (file, line, reason) = match &self.samples {
                Samples::Owned(owned) => owned.dropped[i],
                Samples::Mapped(mapped) => mapped.dropped(i),
            };
            (self.samples.place((file, line)), reason)
        })
    }

    /// What was read and what was dropped; a subset keeps the counts of the whole.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Digest of lengths, ids and masks in order: equal on every machine for equal samples,
    /// whichever files they came from.
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::new();
        for i in 0..self.len() {
            add_sample(&mut digest, self.ids(i), self.mask(i));
        }
        digest.finish()
    }

    /// The [`digest`](Self::digest) as 16 hexadecimal digits.
    pub fn digest_hex(&self) -> String {
        format!("{:016x}", self.digest())
    }

    /// At most `samples_max` samples, drawn by `seed`, in the order they stand here.
    ///
    /// With one seed, a smaller subset lies inside a larger one.
    pub fn subset(self, samples_max: usize, seed: u64) -> Self {
        if samples_max >= self.len() {
            return self;
        }
        let mut drawn: Vec<usize> = (0..self.len()).collect();
        drawn.sort_by_cached_key(|&i| (scrambled(seed, i as u64), i));
        drawn.truncate(samples_max);
        drawn.sort_unstable();
        let number =
            |i: usize| u32::try_from(self.stored(i)).expect("there are at most u32::MAX samples");
        Self {
            chosen: Some(drawn.into_iter().map(number).collect()),
            ..self.clone()
        }
    }

    /// Where sample `i` stands among all that are stored.
    fn stored(&self, i: usize) -> usize {
        self.chosen.as_ref().map_or(i, |chosen| chosen[i] as usize)
    }
}

impl PartialEq for Dataset {
    /// Equal samples from equal places, wherever they are kept.
    fn eq(&self, other: &Self) -> bool {
        let same = |i| {
            (self.ids(i), self.mask(i), self.name(i), self.place(i))
                == (other.ids(i), other.mask(i), other.name(i), other.place(i))
        };
        self.counts == other.counts
            && self.len() == other.len()
            && (0..self.len()).all(same)
            && self.dropped().eq(other.dropped())
    }
}

impl Samples {
    fn len(&self) -> usize {
        match self {
            Self::Owned(owned) => owned.places.len(),
            Self::Mapped(mapped) => mapped.len(),
        }
    }

    fn range(&self, i: usize) -> Range<usize> {
        match self {
            Self::Owned(owned) => owned.offsets[i] as usize..owned.offsets[i + 1] as usize,
            Self::Mapped(mapped) => mapped.range(i),
        }
    }

    fn place(&self, (file, line): (u32, u32)) -> Place {
        let files = match self {
            Self::Owned(owned) => &owned.files,
            Self::Mapped(mapped) => mapped.files(),
        };
        Place {
            path: files[file as usize].clone(),
            line,
            column: None,
        }
    }
}

/// Adds a sample to the digest of a data set.
pub(super) fn add_sample(digest: &mut Digest, ids: &[u32], mask: &[u8]) {
    let length = u32::try_from(ids.len()).expect("a sample is at most max_len tokens, a u32");
    digest.add(&length.to_le_bytes());
    for id in ids {
        digest.add(&id.to_le_bytes());
    }
    digest.add(mask);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::data::chat::Tokens;
    use crate::data::loader::Sink;

    fn of(samples: &[&[u32]], mask: &[u8]) -> Dataset {
        let mut owned = Owned::new();
        owned.begin_file(Path::new("f.jsonl")).expect("memory");
        let mut mask = mask.iter().copied();
        for (line, ids) in (1..).zip(samples) {
            let tokens = Tokens {
                ids: ids.to_vec(),
                mask: mask.by_ref().take(ids.len()).collect(),
            };
            let name = format!("s{line}");
            let name = (line % 2 == 0).then_some(name.as_str());
            owned.sample(&tokens, line, name).expect("memory");
        }
        Dataset::owned(owned, Counts::default())
    }

    fn of_lengths(lengths: &[usize]) -> Dataset {
        let ids = lengths
            .iter()
            .enumerate()
            .map(|(i, &length)| vec![i as u32; length]);
        let ids: Vec<_> = ids.collect();
        let ids: Vec<&[u32]> = ids.iter().map(Vec::as_slice).collect();
        of(&ids, &vec![1; lengths.iter().sum()])
    }

    #[test]
    fn samples_come_back_as_they_went_in() {
        let dataset = of_lengths(&[2, 1, 3]);
        assert_eq!(dataset.lengths(), [2, 1, 3]);
        assert_eq!(
            (dataset.len(), dataset.tokens(), dataset.loss_tokens()),
            (3, 6, 6)
        );
        let expected = Sample {
            index: 2,
            input_ids: vec![2; 3],
            loss_mask: vec![1; 3],
        };
        assert_eq!(dataset.sample(2), expected);
        assert_eq!(dataset.place(1).to_string(), "f.jsonl:2");
        assert!(!dataset.is_empty());
        assert_eq!(
            (dataset.name(0), dataset.name(1), dataset.name(2)),
            (None, Some("s2"), None)
        );
    }

    #[test]
    fn the_digest_sees_ids_masks_and_borders() {
        let base = of_lengths(&[2, 1]);
        assert_eq!(base.digest(), of_lengths(&[2, 1]).digest());
        assert_eq!(base.digest_hex(), format!("{:016x}", base.digest()));
        let masked = of(&[&[0, 0], &[1]], &[1, 0, 1]);
        let other_id = of(&[&[0, 0], &[9]], &[1; 3]);
        let other_border = of(&[&[0], &[0, 1]], &[1; 3]);
        let digests = [&base, &masked, &other_id, &other_border].map(Dataset::digest);
        for (i, digest) in digests.iter().enumerate() {
            assert!(!digests[..i].contains(digest), "digest {i} repeats");
        }
    }

    #[test]
    fn a_subset_is_ordered_repeatable_and_nested() {
        let dataset = of_lengths(&(1..=100).collect::<Vec<_>>());
        let small = dataset.clone().subset(10, 7);
        let large = dataset.clone().subset(30, 7);
        assert_eq!(small, dataset.clone().subset(10, 7));
        assert_ne!(small, dataset.clone().subset(10, 8));
        assert_eq!((small.len(), large.len()), (10, 30));
        assert!(small.lengths().is_sorted());
        assert!(
            small
                .lengths()
                .iter()
                .all(|length| large.lengths().contains(length))
        );
        // Sample i begins on line i + 1 and is i + 1 tokens long: places moved along.
        assert!((0..10).all(|i| small.place(i).line == small.length(i)));
        assert_eq!(dataset.clone().subset(1000, 7), dataset);
    }
}
