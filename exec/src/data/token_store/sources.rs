//! Whether the sources of a store are still what they were.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::error::StoreError;
use super::manifest::{Manifest, Source};
use crate::data::counts::Counts;
use crate::data::error::{DataError, Result};
use crate::data::source_file::{Seen, digest_of};
use crate::data::walk;
use crate::data::watch::Watch;

/// A source that was read to its end.
///
/// # Errors
/// The system no longer knows the file.
pub(super) fn source(path: &Path, seen: Seen) -> Result<Source> {
    let metadata = std::fs::metadata(path).map_err(|error| DataError::io(path, error))?;
    Ok(Source {
        path: path.to_path_buf(),
        bytes: seen.bytes,
        modified_ns: modified_ns(&metadata),
        digest: hex(seen),
    })
}

/// Compares the files that `inputs` name now with those the store was made from.
///
/// A file of the same size and time is taken for the same; of another time, it is read and its
/// digest decides; under `full`, every file is read. Where none of the inputs is on this machine
/// there is nothing to compare with: a store can be used without its sources.
///
/// # Errors
/// The first source that is new, gone or changed.
pub(super) fn check(
    dir: &Path,
    manifest: &Manifest,
    inputs: &[PathBuf],
    line_bytes_max: usize,
    full: bool,
    watch: &dyn Watch,
) -> Result<()> {
    if inputs.iter().all(|input| !input.exists()) {
        return Ok(());
    }
    let changed = |path: &Path, how: String| StoreError::Source {
        dir: dir.into(),
        source_path: path.into(),
        how,
    };
    let found = walk::files(inputs, line_bytes_max, &mut Counts::default())?;
    let mut found = found.into_iter().map(|(path, _)| path);
    for was in &manifest.sources {
        let now = found.next();
        if now.as_ref() != Some(&was.path) {
            let path = now.filter(|path| !manifest.sources.iter().any(|s| s.path == *path));
            let (path, how) = path.map_or_else(
                || (was.path.clone(), "is gone or comes at another place"),
                |path| (path, "is new"),
            );
            return Err(changed(&path, how.into()).into());
        }
        check_one(was, full, watch)?.map_or(Ok(()), |how| Err(changed(&was.path, how)))?;
    }
    match found.next() {
        Some(path) => Err(changed(&path, "is new".into()).into()),
        None => Ok(()),
    }
}

/// How a source changed, if it did.
fn check_one(was: &Source, full: bool, watch: &dyn Watch) -> Result<Option<String>> {
    let path = &was.path;
    let metadata = std::fs::metadata(path).map_err(|error| DataError::io(path, error))?;
    let bytes = metadata.len();
    if bytes != was.bytes {
        return Ok(Some(format!("has {bytes} bytes, it had {}", was.bytes)));
    }
    if !full && was.modified_ns == modified_ns(&metadata) {
        return Ok(None);
    }
    let same = hex(digest_of(path, watch)?) == was.digest;
    Ok((!same).then(|| "has other contents than it had".into()))
}

fn modified_ns(metadata: &Metadata) -> u64 {
    let since = metadata
        .modified()
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |span| span.as_nanos() as u64)
}

fn hex(seen: Seen) -> String {
    format!("{:016x}", seen.digest.finish())
}
