//! The one place that maps files into memory.

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use super::error::StoreError;

/// Maps the whole file at `path`, for reading.
#[allow(unsafe_code)]
pub(super) fn map(path: &Path) -> Result<Mmap, StoreError> {
    let file = File::open(path).map_err(|source| StoreError::read(path, source))?;
    // SAFETY: the map must not change while it is read. Files of a store are written below another
    // name, renamed with their folder and never written again; `prepare` replaces folders and leaves
    // the files of the old one to those who mapped them. Whoever else writes into a store breaks
    // this, as with any file that a program maps.
    unsafe { Mmap::map(&file) }.map_err(|source| StoreError::read(path, source))
}
