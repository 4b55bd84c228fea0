//! Files and directories that appear whole or not at all, and survive a power cut once they do.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use candle_core::DType;
use safetensors::SafeTensorError;

use super::CheckpointError;
use crate::model::{Tensors, write_tensors};

/// Publishes what `fill` puts into the directory that it is given as the directory `path`, replacing what is there. Parents are created.
pub(super) fn directory(
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<(), CheckpointError>,
) -> Result<(), CheckpointError> {
    let parent = parent(path)?;
    let staging = beside(path, "tmp");
    remove(&staging)?;
    step("create", &staging, fs::create_dir(&staging))?;
    fill(&staging)?;
    sync_directory(&staging)?;
    remove(path)?;
    step("rename to", path, fs::rename(&staging, path))?;
    sync_directory(parent)
}

/// Publishes one file, replacing what is there.
pub(super) fn file(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let parent = parent(path)?;
    let staging = beside(path, "tmp");
    write_synced(&staging, bytes)?;
    step("rename to", path, fs::rename(&staging, path))?;
    sync_directory(parent)
}

/// The directory that holds `path`, created if need be.
fn parent(path: &Path) -> Result<&Path, CheckpointError> {
    let parent = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    step("create", parent, fs::create_dir_all(parent))?;
    Ok(parent)
}

/// `path` with `.suffix` behind its whole name: `with_extension` would cut a name at its dot.
fn beside(path: &Path, suffix: &str) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// Takes a published directory away: under another name first, so that nobody meets a part of it.
pub(super) fn retire(path: &Path) -> Result<(), CheckpointError> {
    let staging = beside(path, "tmp");
    remove(&staging)?;
    step("rename", path, fs::rename(path, &staging))?;
    sync_directory(parent(path)?)?;
    remove(&staging)
}

/// Removes a file or a directory; what is not there is no error.
pub(super) fn remove(path: &Path) -> Result<(), CheckpointError> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => step("remove", path, result),
    }
}

/// Writes a file of tensors that as many may read as `like`, for good.
pub(super) fn tensors(
    path: &Path,
    tensors: &Tensors,
    dtype: DType,
    like: &Path,
) -> Result<(), CheckpointError> {
    match write_tensors(path, tensors, dtype, like) {
        Ok(()) => step(
            "sync",
            path,
            File::open(path).and_then(|file| file.sync_all()),
        ),
        Err(SafeTensorError::IoError(source)) => step("write", path, Err(source)),
        Err(error) => Err(CheckpointError::Tensors {
            path: path.to_owned(),
            problem: error.to_string(),
        }),
    }
}

/// Writes a file for good.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let written = File::create(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    step("write", path, written)
}

fn sync_directory(path: &Path) -> Result<(), CheckpointError> {
    step(
        "sync",
        path,
        File::open(path).and_then(|directory| directory.sync_all()),
    )
}

fn step(
    action: &'static str,
    path: &Path,
    result: std::io::Result<()>,
) -> Result<(), CheckpointError> {
    result.map_err(|source| CheckpointError::Io {
        action,
        path: path.to_owned(),
        source,
    })
}
