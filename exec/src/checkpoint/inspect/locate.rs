//! Which folder is meant: a drafter's own, a checkpoint's step, or a run that holds checkpoints.

use std::path::{Path, PathBuf};

use super::{BOTH, InspectError, Notes, read};
use crate::checkpoint::{CONFIG, LATEST, MANIFEST};

/// The folder with `config.json` that `dir` names or holds. Where it is one of our checkpoints, its manifest is checked too.
pub(super) fn drafter_in(dir: &Path, notes: &mut Notes) -> Result<PathBuf, InspectError> {
    if !dir.is_dir() {
        return Err(InspectError::NoFolder { path: dir.into() });
    }
    let below = dir.join("checkpoint");
    let found = if dir.join(CONFIG).exists() || has_weights(dir) {
        dir.to_owned()
    } else if let Some(step) = newest_step(dir, notes) {
        step
    } else if let Some(step) = newest_step(&below, notes) {
        step
    } else {
        return Err(InspectError::NoDrafter { path: dir.into() });
    };
    if found.join(MANIFEST).exists() {
        match read::intact(&found) {
            Ok(step) => notes.pass(
                MANIFEST,
                format!("every file is as it was written at step {step}"),
            ),
            Err(problem) => notes.refuse(
                BOTH,
                MANIFEST,
                problem,
                "take another checkpoint; this one was damaged after it was written",
            ),
        }
    }
    Ok(found)
}

/// A folder with weights is a drafter's own, even where its config is missing.
fn has_weights(dir: &Path) -> bool {
    let names = ["model.safetensors", "model.safetensors.index.json"];
    names.iter().any(|name| dir.join(name).exists())
}

/// The step that `latest` names, else the newest one there.
fn newest_step(dir: &Path, notes: &mut Notes) -> Option<PathBuf> {
    let newest = read::steps(dir).ok()?.pop()?;
    let newest = dir.join(format!("step-{newest}"));
    let named = std::fs::read_to_string(dir.join(LATEST)).ok();
    match named.map(|name| dir.join(name.trim())) {
        Some(named) if named.is_dir() => Some(named),
        Some(named) => {
            let finding = format!("names {}, which is not there", named.display());
            notes.warn(BOTH, LATEST, finding, "the newest step is taken instead");
            Some(newest)
        }
        None => Some(newest),
    }
}
