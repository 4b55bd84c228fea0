//! The samples of a run, stored flat.

use std::path::{Path, PathBuf};

use super::chat::Tokens;
use super::counts::{Counts, DropReason};
use super::digest::{Digest, scrambled};
use super::error::{DataError, Place, Result};

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

/// All samples of a run: 5 bytes a token and 16 bytes a sample.
///
/// Invariant: no sample is empty, and its mask is as long as its ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    ids: Vec<u32>,
    mask: Vec<u8>,
    /// Where each sample begins in `ids`, and after the last the end.
    offsets: Vec<u64>,
    files: Vec<PathBuf>,
    /// File and line at which each sample begins.
    places: Vec<(u32, u32)>,
    /// File and line of every record that became no sample.
    dropped: Vec<(u32, u32, DropReason)>,
    counts: Counts,
}

impl Dataset {
    pub(super) fn new() -> Self {
        Self {
            ids: Vec::new(),
            mask: Vec::new(),
            offsets: vec![0],
            files: Vec::new(),
            places: Vec::new(),
            dropped: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no sample; never so for a data set that was loaded.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Length of sample `i` in tokens.
    ///
    /// # Panics
    /// `i` is not below [`len`](Self::len); so for every method that takes an index.
    pub fn length(&self, i: usize) -> u32 {
        u32::try_from(self.ids(i).len()).expect("a sample is at most max_len tokens, a u32")
    }

    /// Lengths of all samples in tokens.
    pub fn lengths(&self) -> Vec<u32> {
        (0..self.len()).map(|i| self.length(i)).collect()
    }

    /// Tokens of all samples.
    pub fn tokens(&self) -> u64 {
        self.ids.len() as u64
    }

    /// Loss-bearing tokens of all samples.
    pub fn loss_tokens(&self) -> u64 {
        self.mask.iter().map(|&flag| u64::from(flag)).sum()
    }

    /// Token ids of sample `i`.
    pub fn ids(&self, i: usize) -> &[u32] {
        &self.ids[self.range(i)]
    }

    /// Loss mask of sample `i`: 1 where a token bears loss, else 0.
    pub fn mask(&self, i: usize) -> &[u8] {
        &self.mask[self.range(i)]
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

    /// The file and line at which sample `i` begins.
    pub fn place(&self, i: usize) -> Place {
        let (file, line) = self.places[i];
        self.place_of(file, line)
    }

    /// Every record that became no sample, in the order read, with where it begins; a subset keeps
    /// the list of the whole.
    pub fn dropped(&self) -> impl ExactSizeIterator<Item = (Place, DropReason)> {
        self.dropped
            .iter()
            .map(|&(file, line, reason)| (self.place_of(file, line), reason))
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
            digest.add(&self.length(i).to_le_bytes());
            for id in self.ids(i) {
                digest.add(&id.to_le_bytes());
            }
            digest.add(self.mask(i));
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
        let mut subset = Self {
            files: self.files.clone(),
            dropped: self.dropped.clone(),
            counts: self.counts.clone(),
            ..Self::new()
        };
        for i in drawn {
            subset.push(self.ids(i), self.mask(i), self.places[i]);
        }
        subset
    }

    /// Adds a file; samples and drops that follow are of this file, until the next.
    pub(super) fn add_file(&mut self, path: &Path) -> Result<()> {
        if self.files.len() == u32::MAX as usize {
            return Err(DataError::TooMany {
                path: path.to_path_buf(),
                what: "files",
                limit: u32::MAX,
            });
        }
        self.files.push(path.to_path_buf());
        self.counts.files += 1;
        Ok(())
    }

    /// Adds a record that became a sample.
    pub(super) fn accept(&mut self, tokens: &Tokens, line: u32, truncated: bool) -> Result<()> {
        assert_eq!(
            tokens.ids.len(),
            tokens.mask.len(),
            "a mask is as long as its ids"
        );
        assert!(!tokens.ids.is_empty(), "no sample is empty");
        let file = self.last_file();
        if self.len() == u32::MAX as usize {
            let path = self.files[file as usize].clone();
            return Err(DataError::TooMany {
                path,
                what: "samples",
                limit: u32::MAX,
            });
        }
        self.counts.records += 1;
        self.counts.accepted += 1;
        self.counts.truncated += u64::from(truncated);
        self.push(&tokens.ids, &tokens.mask, (file, line));
        Ok(())
    }

    /// Adds a record that became none.
    pub(super) fn drop_record(&mut self, line: u32, reason: DropReason) {
        self.counts.count_drop(reason);
        self.dropped.push((self.last_file(), line, reason));
    }

    pub(super) fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    fn last_file(&self) -> u32 {
        let last = self
            .files
            .len()
            .checked_sub(1)
            .expect("a record comes from a file");
        u32::try_from(last).expect("there are at most u32::MAX files")
    }

    fn place_of(&self, file: u32, line: u32) -> Place {
        Place {
            path: self.files[file as usize].clone(),
            line,
            column: None,
        }
    }

    fn push(&mut self, ids: &[u32], mask: &[u8], place: (u32, u32)) {
        self.ids.extend_from_slice(ids);
        self.mask.extend_from_slice(mask);
        self.offsets.push(self.ids.len() as u64);
        self.places.push(place);
    }

    fn range(&self, i: usize) -> std::ops::Range<usize> {
        self.offsets[i] as usize..self.offsets[i + 1] as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_lengths(lengths: &[usize]) -> Dataset {
        let mut dataset = Dataset::new();
        dataset.add_file(Path::new("f.jsonl")).expect("first file");
        for (i, &length) in lengths.iter().enumerate() {
            let tokens = Tokens {
                ids: vec![i as u32; length],
                mask: vec![1; length],
            };
            dataset
                .accept(&tokens, i as u32 + 1, false)
                .expect("few samples");
        }
        dataset
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
    }

    #[test]
    fn the_digest_sees_ids_masks_and_borders() {
        let base = of_lengths(&[2, 1]);
        assert_eq!(base.digest(), of_lengths(&[2, 1]).digest());
        assert_eq!(base.digest_hex(), format!("{:016x}", base.digest()));
        let mut masked = base.clone();
        masked.mask[1] = 0;
        let mut other_id = base.clone();
        other_id.ids[2] = 9;
        let mut other_border = base.clone();
        other_border.offsets[1] = 1;
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
