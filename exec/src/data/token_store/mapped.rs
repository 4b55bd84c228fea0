//! The samples of a store, where they lie.

use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::error::StoreError;
use super::layout::{self, Entry, HEADER_BYTES, Part};
use crate::data::counts::DropReason;

/// The mapped files of a store whose entries were checked.
#[derive(Debug)]
pub(in crate::data) struct Mapped {
    tokens: Mmap,
    mask: Mmap,
    index: Mmap,
    names: Mmap,
    dropped: Mmap,
    files: Vec<PathBuf>,
}

impl Mapped {
    /// Takes the files in the order of [`Part::ALL`] and checks that no entry points out of them.
    pub(super) fn new(
        dir: &Path,
        [tokens, mask, index, names, dropped]: [Mmap; 5],
        files: Vec<PathBuf>,
    ) -> Result<Self, StoreError> {
        let mapped = Self {
            tokens,
            mask,
            index,
            names,
            dropped,
            files,
        };
        mapped.check(dir)?;
        Ok(mapped)
    }

    /// Number of samples.
    pub(in crate::data) fn len(&self) -> usize {
        entries(&self.index, Part::Index)
    }

    /// Token ids of all samples.
    pub(in crate::data) fn ids(&self) -> &[u32] {
        // Checked when the store was opened: maps begin at a page, and headers keep ids aligned.
        bytemuck::cast_slice(&self.tokens[HEADER_BYTES..])
    }

    /// Loss flags of all samples.
    pub(in crate::data) fn mask(&self) -> &[u8] {
        &self.mask[HEADER_BYTES..]
    }

    /// Where sample `i` lies among the ids.
    pub(in crate::data) fn range(&self, i: usize) -> Range<usize> {
        let entry = self.entry(i);
        let start = entry.start as usize;
        start..start + entry.length as usize
    }

    /// Loss-bearing tokens of sample `i`.
    pub(in crate::data) fn loss_tokens(&self, i: usize) -> u64 {
        self.entry(i).loss_tokens.into()
    }

    /// Source and line of sample `i`.
    pub(in crate::data) fn place(&self, i: usize) -> (u32, u32) {
        let entry = self.entry(i);
        (entry.file, entry.line)
    }

    /// Name of sample `i`, empty where it has none.
    pub(in crate::data) fn name(&self, i: usize) -> &str {
        let start = i
            .checked_sub(1)
            .map_or(0, |before| self.entry(before).name_end);
        let range = start as usize..self.entry(i).name_end as usize;
        std::str::from_utf8(&self.names[HEADER_BYTES..][range]).unwrap_or("")
    }

    /// The sources.
    pub(in crate::data) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Number of records that became no sample.
    pub(in crate::data) fn dropped_len(&self) -> usize {
        entries(&self.dropped, Part::Dropped)
    }

    /// Source, line and reason of dropped record `i`.
    pub(in crate::data) fn dropped(&self, i: usize) -> (u32, u32, DropReason) {
        let (file, line, reason) = layout::dropped(&self.dropped[HEADER_BYTES..], i);
        (
            file,
            line,
            reason.expect("reasons were checked when the store was opened"),
        )
    }

    fn entry(&self, i: usize) -> Entry {
        Entry::read(&self.index[HEADER_BYTES..], i)
    }

    fn check(&self, dir: &Path) -> Result<(), StoreError> {
        let bad = |part: Part, entry, reason| StoreError::Entry {
            path: dir.join(part.name()),
            entry,
            reason,
        };
        let tokens = entries(&self.tokens, Part::Tokens) as u64;
        let names = entries(&self.names, Part::Names) as u64;
        let (mut start, mut name) = (0, 0);
        for i in 0..self.len() {
            let entry = self.entry(i);
            let fault = if entry.start != start || entry.length == 0 {
                Some("it does not begin where the one before ends")
            } else if entry.start + u64::from(entry.length) > tokens {
                Some("it ends behind the tokens")
            } else if entry.name_end < name || entry.name_end > names {
                Some("its name ends behind the names")
            } else if entry.file as usize >= self.files.len() {
                Some("its source is not listed")
            } else {
                None
            };
            if let Some(reason) = fault {
                return Err(bad(Part::Index, i, reason));
            }
            start = entry.start + u64::from(entry.length);
            name = entry.name_end;
        }
        for i in 0..self.dropped_len() {
            let (file, _, reason) = layout::dropped(&self.dropped[HEADER_BYTES..], i);
            if reason.is_none() || file as usize >= self.files.len() {
                return Err(bad(Part::Dropped, i, "its reason or source is not known"));
            }
        }
        Ok(())
    }
}

/// Entries of a file.
fn entries(map: &Mmap, part: Part) -> usize {
    (map.len() - HEADER_BYTES) / part.entry_bytes()
}
