//! The list of a checkpoint's files, by which a reader tells whole from damaged.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::CheckpointError;

/// Raised when the layout of checkpoints changes.
const FORMAT: u32 = 1;

/// What `manifest.json` holds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    format: u32,
    step: u64,
    files: BTreeMap<String, Entry>,
}

/// One file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    bytes: u64,
    crc32: String,
}

impl Manifest {
    /// The list of these files of `dir`, as they are on the disk.
    pub(super) fn of(step: u64, dir: &Path, names: &[&str]) -> Result<Self, CheckpointError> {
        let entry = |name: &&str| {
            let path = dir.join(name);
            let sum = File::open(&path).and_then(|mut file| Entry::of(&mut file));
            let entry = sum.map_err(|source| CheckpointError::Io {
                action: "read",
                path,
                source,
            })?;
            Ok(((*name).to_owned(), entry))
        };
        Ok(Self {
            format: FORMAT,
            step,
            files: names
                .iter()
                .map(entry)
                .collect::<Result<_, CheckpointError>>()?,
        })
    }

    pub(super) fn render(&self) -> Vec<u8> {
        // Numbers, strings and string keys always serialise.
        let mut text = serde_json::to_vec_pretty(self).expect("a manifest is plain JSON");
        text.push(b'\n');
        text
    }

    /// Parses a manifest that must be for `step`; says what is wrong otherwise.
    pub(super) fn parse(bytes: &[u8], step: u64) -> Result<Self, String> {
        let manifest = Self::parse_any(bytes)?;
        if manifest.step != step {
            return Err(format!(
                "manifest.json: says step {}, not {step}",
                manifest.step
            ));
        }
        Ok(manifest)
    }

    /// Parses a manifest of any step; says what is wrong otherwise.
    pub(super) fn parse_any(bytes: &[u8]) -> Result<Self, String> {
        let manifest: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("manifest.json: {error}"))?;
        if manifest.format != FORMAT {
            return Err(format!(
                "manifest.json: format {}, this is {FORMAT}",
                manifest.format
            ));
        }
        Ok(manifest)
    }

    /// Reads every file in `dir`; the step, or what is not as it was written.
    pub(super) fn verify(&self, dir: &Path) -> Result<u64, String> {
        for (name, entry) in &self.files {
            let unreadable = |error: std::io::Error| format!("{name}: {error}");
            let mut file = File::open(dir.join(name)).map_err(unreadable)?;
            let bytes = file.metadata().map_err(unreadable)?.len();
            entry.must_have(name, bytes)?;
            entry.must_sum(name, Entry::of(&mut file).map_err(unreadable)?.crc32)?;
        }
        Ok(self.step)
    }

    /// Reads `name` in `dir`; says what is wrong if it is not what was written.
    pub(super) fn read(&self, dir: &Path, name: &str) -> Result<Vec<u8>, String> {
        let entry = self
            .files
            .get(name)
            .ok_or_else(|| format!("manifest.json: lacks {name}"))?;
        let bytes = std::fs::read(dir.join(name)).map_err(|error| format!("{name}: {error}"))?;
        entry.must_have(name, bytes.len() as u64)?;
        entry.must_sum(name, digest(&bytes))?;
        Ok(bytes)
    }
}

impl Entry {
    /// Reads a file to its end.
    fn of(file: &mut File) -> std::io::Result<Self> {
        let mut hasher = Sum(crc32fast::Hasher::new());
        let bytes = std::io::copy(file, &mut hasher)?;
        let crc32 = format!("{:08x}", hasher.0.finalize());
        Ok(Self { bytes, crc32 })
    }

    fn must_have(&self, name: &str, bytes: u64) -> Result<(), String> {
        if bytes == self.bytes {
            return Ok(());
        }
        Err(format!(
            "{name}: {bytes} bytes, {} were written",
            self.bytes
        ))
    }

    fn must_sum(&self, name: &str, crc32: String) -> Result<(), String> {
        if crc32 == self.crc32 {
            return Ok(());
        }
        Err(format!("{name}: crc32 {crc32}, {} was written", self.crc32))
    }
}

/// Sums up what is written to it: a trainer's state may not fit in memory twice.
struct Sum(crc32fast::Hasher);

impl Write for Sum {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(bytes))
}
