//! A file being read: its bytes counted and digested on the way, decompressed where it is gzip.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::read::MultiGzDecoder;

use super::digest::Digest;
use super::error::{DataError, Result};
use super::walk::{Format, extension_is};
use super::watch::Watch;

/// The contents of a file, decompressed.
pub(super) struct SourceFile<'a> {
    contents: Box<dyn Read + 'a>,
    seen: Rc<RefCell<Seen>>,
}

/// What came from the disk so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Bytes on the disk, compressed where the file is.
    pub(super) bytes: u64,
    /// Digest of those bytes.
    pub(super) digest: Digest,
}

impl<'a> SourceFile<'a> {
    /// Opens `path`; JSONL may be gzip, which is told by its name.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn open(path: &Path, format: Format, watch: &'a dyn Watch) -> Result<Self> {
        let file = File::open(path).map_err(|e| DataError::io(path, e))?;
        let seen = Rc::new(RefCell::new(Seen {
            bytes: 0,
            digest: Digest::new(),
        }));
        let raw = Counted {
            file,
            seen: Rc::clone(&seen),
            watch,
        };
        let contents: Box<dyn Read + 'a> =
            if format == Format::JsonLines && extension_is(path, &["gz"]) {
                Box::new(MultiGzDecoder::new(raw))
            } else {
                Box::new(raw)
            };
        Ok(Self { contents, seen })
    }

    /// What came from the disk so far.
    pub(super) fn seen(&self) -> Seen {
        *self.seen.borrow()
    }
}

impl Read for SourceFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.contents.read(buffer)
    }
}

struct Counted<'a> {
    file: File,
    seen: Rc<RefCell<Seen>>,
    watch: &'a dyn Watch,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        let mut seen = self.seen.borrow_mut();
        seen.bytes += read as u64;
        seen.digest.add(&buffer[..read]);
        self.watch.advanced(read as u64);
        Ok(read)
    }
}

/// Size and digest of a whole file, as [`SourceFile`] sees them.
///
/// # Errors
/// The file cannot be read.
pub(super) fn digest_of(path: &Path, watch: &dyn Watch) -> Result<Seen> {
    let mut raw = Counted {
        file: File::open(path).map_err(|e| DataError::io(path, e))?,
        seen: Rc::new(RefCell::new(Seen {
            bytes: 0,
            digest: Digest::new(),
        })),
        watch,
    };
    let mut buffer = vec![0; 1 << 16];
    while raw.read(&mut buffer).map_err(|e| DataError::io(path, e))? > 0 {
        if watch.is_stopped() {
            return Err(DataError::Stopped);
        }
    }
    let seen = *raw.seen.borrow();
    Ok(seen)
}
