//! Which checkpoints stay, and which one is the best.

use std::fs;
use std::path::Path;

use super::{BEST, CheckpointError, publish, read};

/// Removes what a killed run left half written. Call it before a run writes checkpoints into `dir`.
///
/// # Errors
/// When the disk refuses.
pub fn clear_leftovers(dir: &Path) -> Result<(), CheckpointError> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| {
            let stem = name.strip_suffix(".tmp");
            stem.is_some_and(|stem| {
                stem.starts_with("step-") || [super::LATEST, BEST].contains(&stem)
            })
        });
        if is_ours {
            publish::remove(&entry.path())?;
        }
    }
    Ok(())
}

/// The step that the pointer `best` names, if there is one.
pub fn best_step(dir: &Path) -> Option<u64> {
    let name = fs::read_to_string(dir.join(BEST)).ok()?;
    read::step_of(name.trim())
}

/// Points `best` at a published step.
pub(super) fn point_best(dir: &Path, step: u64) -> Result<(), CheckpointError> {
    publish::file(&dir.join(BEST), format!("step-{step}\n").as_bytes())
}

/// Removes all steps but the newest `keep` and the best; 0 keeps all. Returns those removed, oldest first.
///
/// Call it when the newest is on the disk: whenever the machine stops, `keep` steps or more are whole. A step that is being removed
/// has another name already, so no reader meets a part of it.
pub(super) fn rotate(dir: &Path, keep: usize) -> Result<Vec<u64>, CheckpointError> {
    let mut old = read::steps(dir)?;
    if keep == 0 || old.len() <= keep {
        return Ok(Vec::new());
    }
    old.truncate(old.len() - keep);
    let best = best_step(dir);
    old.retain(|step| Some(*step) != best);
    for step in &old {
        publish::retire(&dir.join(format!("step-{step}")))?;
    }
    Ok(old)
}
