//! Finding the newest checkpoint that is whole.

use std::path::{Path, PathBuf};

use candle_core::Device;

use super::{CONFIG, Checkpoint, CheckpointError, MANIFEST, MODEL, Manifest, RUN, TRAINER};
use crate::model::{DrafterConfig, decode};

/// What a search for a checkpoint found.
#[derive(Debug)]
pub struct Latest {
    /// The newest whole checkpoint, if there is any.
    pub checkpoint: Option<Checkpoint>,
    /// Newer ones that are damaged, newest first.
    pub skipped: Vec<Skipped>,
}

/// A checkpoint that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its directory.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// Reads the newest whole checkpoint in `dir`.
///
/// The step directories decide, not the pointer `latest`: a crash between publishing a step and
/// moving the pointer loses nothing. A missing `dir` holds no checkpoint. Every file is compared
/// with the manifest's size and digest; damaged steps are skipped and reported.
pub fn read_latest(dir: &Path) -> Result<Latest, CheckpointError> {
    let mut skipped = Vec::new();
    for step in steps(dir)?.into_iter().rev() {
        let path = dir.join(format!("step-{step}"));
        match read_step(&path, step) {
            Ok(checkpoint) => {
                return Ok(Latest {
                    checkpoint: Some(checkpoint),
                    skipped,
                });
            }
            Err(reason) => skipped.push(Skipped { path, reason }),
        }
    }
    Ok(Latest {
        checkpoint: None,
        skipped,
    })
}

/// Numbers of all published steps, ascending.
pub(super) fn steps(dir: &Path) -> Result<Vec<u64>, CheckpointError> {
    let refuse = |source| CheckpointError::Io {
        action: "list",
        path: dir.to_owned(),
        source,
    };
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(refuse)?,
    };
    let mut steps = Vec::new();
    for entry in entries {
        let name = entry.map_err(refuse)?.file_name();
        steps.extend(name.to_str().and_then(step_of));
    }
    steps.sort_unstable();
    Ok(steps)
}

/// The step that a directory's name says, if it is a checkpoint's.
pub(super) fn step_of(name: &str) -> Option<u64> {
    name.strip_prefix("step-")?.parse().ok()
}

/// Compares every file of a step's directory with its manifest; the step, or what is wrong.
pub(super) fn intact(path: &Path) -> Result<u64, String> {
    let manifest = std::fs::read(path.join(MANIFEST)).map_err(|e| format!("{MANIFEST}: {e}"))?;
    Manifest::parse_any(&manifest)?.verify(path)
}

/// The caller's own state in one step's `run.json`, if it is whole.
pub fn run_of(dir: &Path, step: u64) -> Option<String> {
    let path = dir.join(format!("step-{step}"));
    let manifest = std::fs::read(path.join(MANIFEST)).ok()?;
    let run = Manifest::parse(&manifest, step)
        .ok()?
        .read(&path, RUN)
        .ok()?;
    String::from_utf8(run).ok()
}

/// Reads one step's directory; says what is wrong if it is not whole.
pub(super) fn read_step(path: &Path, step: u64) -> Result<Checkpoint, String> {
    let manifest = std::fs::read(path.join(MANIFEST)).map_err(|e| format!("{MANIFEST}: {e}"))?;
    let manifest = Manifest::parse(&manifest, step)?;
    let config = manifest.read(path, CONFIG)?;
    let config = serde_json::from_slice(&config).map_err(|e| format!("{CONFIG}: {e}"))?;
    manifest.read(path, MODEL)?;
    let trainer = manifest.read(path, TRAINER)?;
    let run = String::from_utf8(manifest.read(path, RUN)?).map_err(|e| format!("{RUN}: {e}"))?;
    Ok(Checkpoint {
        step,
        config: DrafterConfig::from_json(config, CONFIG).map_err(|e| e.to_string())?,
        trainer: decode(&trainer, Path::new(TRAINER), &Device::Cpu).map_err(|e| e.to_string())?,
        run,
    })
}
