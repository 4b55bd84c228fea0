//! Samples in memory.

use std::path::{Path, PathBuf};

use super::chat::Tokens;
use super::counts::DropReason;
use super::error::Result;
use super::loader::Sink;
use super::source_file::Seen;

/// Samples in memory, stored flat.
#[derive(Debug, Clone)]
pub(super) struct Owned {
    pub(super) ids: Vec<u32>,
    pub(super) mask: Vec<u8>,
    /// Where each sample begins in `ids`, and after the last the end.
    pub(super) offsets: Vec<u64>,
    pub(super) files: Vec<PathBuf>,
    /// File and line at which each sample begins.
    pub(super) places: Vec<(u32, u32)>,
    /// Names of all samples, one behind another, and where each ends.
    names: String,
    name_ends: Vec<u64>,
    /// File and line of every record that became no sample.
    pub(super) dropped: Vec<(u32, u32, DropReason)>,
}

impl Owned {
    pub(super) fn new() -> Self {
        Self {
            ids: Vec::new(),
            mask: Vec::new(),
            offsets: vec![0],
            files: Vec::new(),
            places: Vec::new(),
            names: String::new(),
            name_ends: Vec::new(),
            dropped: Vec::new(),
        }
    }

    pub(super) fn loss_tokens(&self, i: usize) -> u64 {
        let range = self.offsets[i] as usize..self.offsets[i + 1] as usize;
        self.mask[range].iter().map(|&flag| u64::from(flag)).sum()
    }

    pub(super) fn name(&self, i: usize) -> &str {
        let start = i.checked_sub(1).map_or(0, |before| self.name_ends[before]);
        &self.names[start as usize..self.name_ends[i] as usize]
    }

    fn last_file(&self) -> u32 {
        let last = self
            .files
            .len()
            .checked_sub(1)
            .expect("a record comes from a file");
        u32::try_from(last).expect("there are at most u32::MAX files")
    }
}

impl Sink for Owned {
    fn begin_file(&mut self, path: &Path) -> Result<()> {
        self.files.push(path.to_path_buf());
        Ok(())
    }

    fn end_file(&mut self, _: &Path, _: Seen) -> Result<()> {
        Ok(())
    }

    fn sample(&mut self, tokens: &Tokens, line: u32, name: Option<&str>) -> Result<()> {
        assert_eq!(
            tokens.ids.len(),
            tokens.mask.len(),
            "a mask is as long as its ids"
        );
        assert!(!tokens.ids.is_empty(), "no sample is empty");
        self.ids.extend_from_slice(&tokens.ids);
        self.mask.extend_from_slice(&tokens.mask);
        self.offsets.push(self.ids.len() as u64);
        self.places.push((self.last_file(), line));
        self.names.push_str(name.unwrap_or(""));
        self.name_ends.push(self.names.len() as u64);
        Ok(())
    }

    fn dropped(&mut self, line: u32, reason: DropReason) -> Result<()> {
        self.dropped.push((self.last_file(), line, reason));
        Ok(())
    }
}
