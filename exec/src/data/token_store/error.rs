//! What can be wrong with a token store.

use std::io;
use std::path::{Path, PathBuf};

use crate::data::DataErrorKind;

/// Why a token store cannot be written, read or used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing is there.
    #[error("{}: no token store here: run `dflash prepare` first", dir.display())]
    NotThere {
        /// The folder.
        dir: PathBuf,
    },
    /// A folder with other things in it.
    #[error("{}: holds other things than a token store: name another folder", dir.display())]
    Occupied {
        /// The folder.
        dir: PathBuf,
    },
    /// A store among other inputs.
    #[error("{}: a token store cannot be mixed with other inputs: name it alone", dir.display())]
    Mixed {
        /// The store.
        dir: PathBuf,
    },
    /// Another process writes the same store.
    #[error("{}: another `dflash prepare` is writing this store: wait for it", dir.display())]
    Busy {
        /// The store.
        dir: PathBuf,
    },
    /// A layout that this version does not know.
    #[error(
        "{}: format {found}, this version reads {known}: run `dflash prepare --force`",
        path.display()
    )]
    Version {
        /// The file that says so.
        path: PathBuf,
        /// The format found.
        found: u64,
        /// The format known.
        known: u64,
    },
    /// A manifest that is none.
    #[error("{}: damaged: {reason}: run `dflash prepare --force`", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file of the store that is gone.
    #[error("{}: is missing from the token store: run `dflash prepare --force`", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file of another size than was written.
    #[error(
        "{}: {found} bytes, {written} were written: run `dflash prepare --force`",
        path.display()
    )]
    Size {
        /// The file.
        path: PathBuf,
        /// Bytes found.
        found: u64,
        /// Bytes written.
        written: u64,
    },
    /// A file that does not begin as it should.
    #[error(
        "{}: does not begin as this file of a token store does: run `dflash prepare --force`",
        path.display()
    )]
    Header {
        /// The file.
        path: PathBuf,
    },
    /// A file whose bytes changed.
    #[error(
        "{}: crc32 {found:08x}, {written:08x} was written: run `dflash prepare --force`",
        path.display()
    )]
    Checksum {
        /// The file.
        path: PathBuf,
        /// Of the bytes found.
        found: u32,
        /// Of the bytes written.
        written: u32,
    },
    /// An entry that points out of its file.
    #[error("{}: entry {entry}: {reason}: run `dflash prepare --force`", path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// Which entry, from 0.
        entry: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A setting that is not the one the store was made with.
    #[error(
        "{}: made with {key} = {was}, now it is {now}: run `dflash prepare` again, or set {key} back",
        dir.display()
    )]
    Setting {
        /// The store.
        dir: PathBuf,
        /// The key.
        key: String,
        /// Its value then.
        was: String,
        /// Its value now.
        now: String,
    },
    /// A source that is not the one the store was made from.
    #[error("{}: the source {} {how}: run `dflash prepare` again", dir.display(), source_path.display())]
    Source {
        /// The store.
        dir: PathBuf,
        /// The source.
        source_path: PathBuf,
        /// What happened to it.
        how: String,
    },
    /// Numbers of the store read the other way round here.
    #[error("{}: token stores are little-endian, this machine is not: name the text instead", dir.display())]
    ByteOrder {
        /// The store.
        dir: PathBuf,
    },
    /// The system refused to read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused to write; what was there before still is.
    #[error("{}: cannot be written: {source}; free space or name another folder", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl StoreError {
    /// Whose turn it is to act.
    pub fn kind(&self) -> DataErrorKind {
        match self {
            Self::NotThere { .. }
            | Self::Occupied { .. }
            | Self::Mixed { .. }
            | Self::Busy { .. }
            | Self::Setting { .. }
            | Self::Source { .. }
            | Self::ByteOrder { .. } => DataErrorKind::Usage,
            Self::Version { .. }
            | Self::Manifest { .. }
            | Self::Missing { .. }
            | Self::Size { .. }
            | Self::Header { .. }
            | Self::Checksum { .. }
            | Self::Entry { .. } => DataErrorKind::Content,
            Self::Read { .. } | Self::Write { .. } => DataErrorKind::Io,
        }
    }

    pub(super) fn read(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { path },
            _ => Self::Read { path, source },
        }
    }

    pub(super) fn write(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        Self::Write { path, source }
    }
}
