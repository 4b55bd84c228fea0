//! `manifest.json`: what a store holds, what it was made from, and how to tell it whole from damaged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::StoreError;
use super::layout::{FORMAT, MANIFEST, Part};
use crate::data::counts::Counts;

/// The contents of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) kind: String,
    pub(super) format: u64,
    /// The version of dflash that wrote it.
    pub(super) version: String,
    /// How ids are stored.
    pub(super) dtype: String,
    pub(super) summary: Summary,
    /// Everything but the sources that decides what is in the store.
    pub(super) settings: BTreeMap<String, String>,
    /// The files read, in order.
    pub(super) sources: Vec<Source>,
    /// The other files of the store.
    pub(super) files: BTreeMap<String, Written>,
}

/// What a store holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Number of samples.
    pub samples: u64,
    /// Tokens of all samples.
    pub tokens: u64,
    /// Loss-bearing tokens of all samples.
    pub loss_tokens: u64,
    /// Digest of all samples, as [`crate::data::Dataset::digest_hex`] gives it.
    pub digest: String,
    /// What was read and what was dropped.
    pub counts: Counts,
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// When it was last written, in nanoseconds of the Unix epoch; 0 where the system does not say.
    pub(super) modified_ns: u64,
    /// Of its bytes: FNV-1a, 64 bits, in hexadecimal digits.
    pub(super) digest: String,
}

/// Size and sum of a file that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) bytes: u64,
    pub(super) crc32: u32,
}

/// What tells a manifest from any other JSON.
pub(super) const KIND: &str = "dflash token store";

pub(super) const DTYPE: &str = "u32-le";

impl Manifest {
    /// Reads the manifest of the store in `dir`.
    pub(super) fn read(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(MANIFEST);
        let text = std::fs::read(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                StoreError::NotThere { dir: dir.into() }
            }
            _ => StoreError::read(&path, source),
        })?;
        let damaged = |reason: String| StoreError::Manifest {
            path: path.clone(),
            reason,
        };
        let json: serde_json::Value =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if json["kind"] != KIND {
            return Err(StoreError::Occupied { dir: dir.into() });
        }
        // The layout may have changed: its number comes before its fields.
        match json["format"].as_u64() {
            Some(FORMAT) => {}
            Some(found) => {
                let known = FORMAT;
                return Err(StoreError::Version { path, found, known });
            }
            None => return Err(damaged("it names no format".into())),
        }
        let manifest: Self =
            serde_json::from_value(json).map_err(|error| damaged(error.to_string()))?;
        if let Some(part) = Part::ALL
            .iter()
            .find(|p| !manifest.files.contains_key(p.name()))
        {
            return Err(damaged(format!("it does not list {}", part.name())));
        }
        Ok(manifest)
    }

    /// The text of the file.
    pub(super) fn render(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }
}
