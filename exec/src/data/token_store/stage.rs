//! The folder in which a store is made, and how it gets its name.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::open::is_store;
use crate::data::error::Result;

/// The folder that becomes the store: beside it, hidden, and locked while a process writes it.
///
/// What a killed process left there is cleared by the next one.
pub(super) struct Stage {
    pub(super) path: PathBuf,
    dir: PathBuf,
    /// Held until the folder is in place or gone.
    _lock: File,
}

impl Stage {
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let is_empty = |dir: &Path| fs::read_dir(dir).is_ok_and(|mut all| all.next().is_none());
        if dir.exists() && !is_store(dir) && !is_empty(dir) {
            return Err(StoreError::Occupied { dir: dir.into() }.into());
        }
        let path = beside(dir, "preparing");
        let refuse = |source| StoreError::write(&path, source);
        fs::create_dir_all(&path).map_err(refuse)?;
        let lock = File::create(path.join(LOCK)).map_err(refuse)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Busy { dir: dir.into() }.into());
            }
            Err(TryLockError::Error(source)) => return Err(refuse(source).into()),
        }
        Ok(Self {
            path,
            dir: dir.into(),
            _lock: lock,
        })
    }

    /// Puts the folder in its place, once all of it is on the disk.
    pub(super) fn publish(self) -> Result<()> {
        let refuse = |source| StoreError::write(&self.dir, source);
        let replaced = beside(&self.dir, "replaced");
        let publish = || -> io::Result<()> {
            fs::remove_file(self.path.join(LOCK))?;
            sync(&self.path)?;
            if self.dir.exists() {
                remove(&replaced)?;
                fs::rename(&self.dir, &replaced)?;
            }
            if let Err(error) = fs::rename(&self.path, &self.dir) {
                // As it was before; where even this fails, the first error says more.
                let _ = fs::rename(&replaced, &self.dir);
                return Err(error);
            }
            sync(match self.dir.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            })?;
            remove(&replaced)
        };
        Ok(publish().map_err(refuse)?)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Once published, the folder is no longer there under this name. What cannot be removed
        // is cleared by the next run.
        let _ = fs::remove_dir_all(&self.path);
    }
}

const LOCK: &str = "lock";

/// A hidden name beside `dir`.
fn beside(dir: &Path, what: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(dir.file_name().unwrap_or_else(|| "store".as_ref()));
    name.push(".");
    name.push(what);
    dir.with_file_name(name)
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A new name is safe from power loss once its folder is on the disk.
fn sync(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}
