//! Which drafters a path stands for.

use crate::failure::Failure;
use std::path::{Path, PathBuf};

/// A drafter on the disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// Optimizer steps trained, where the folder's name says so.
    pub(super) step: Option<u64>,
    /// Its folder.
    pub(super) path: PathBuf,
}

/// The drafters of `paths` by rising step. Each is a drafter's folder, a folder of `step-N`, or what `exec` wrote, with
/// `checkpoint/` in it. `key` names where they were given.
pub(super) fn find(key: &str, paths: &[PathBuf]) -> Result<Vec<Found>, Failure> {
    let mut found = Vec::new();
    for path in paths {
        found.extend(below(key, path)?);
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn below(key: &str, path: &Path) -> Result<Vec<Found>, Failure> {
    let refuse = |why: String| Failure::usage(format!("{key}: {}: {why}", path.display()));
    if !path.is_dir() {
        return Err(refuse("no such folder; check the path".into()));
    }
    if path.join(CONFIG).exists() {
        let name = path.file_name().and_then(|name| name.to_str());
        return Ok(vec![Found {
            step: name.and_then(step_of),
            path: path.to_path_buf(),
        }]);
    }
    for folder in [path.to_path_buf(), path.join("checkpoint")] {
        let steps = steps(&folder);
        if !steps.is_empty() {
            return Ok(steps);
        }
    }
    Err(refuse(
        "holds neither config.json nor step-N folders; give a checkpoint, or the folder that `dflash exec` wrote".into(),
    ))
}

/// The whole checkpoints in a folder: one under way has another name.
fn steps(folder: &Path) -> Vec<Found> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let path = entry.path();
        let step = Some(step_of(entry.file_name().to_str()?)?);
        path.join(CONFIG).exists().then_some(Found { step, path })
    });
    found.collect()
}

fn step_of(name: &str) -> Option<u64> {
    name.strip_prefix("step-")?.parse().ok()
}

const CONFIG: &str = "config.json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drafter_a_folder_of_steps_and_a_runs_folder_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["run/checkpoint/step-20", "run/checkpoint/step-3", "bare"] {
            std::fs::create_dir_all(at(name)).unwrap();
            std::fs::write(at(name).join(CONFIG), "{}").unwrap();
        }
        std::fs::create_dir_all(at("run/checkpoint/step-40.tmp")).unwrap();
        let steps = |names: &[&str]| {
            let paths: Vec<_> = names.iter().map(|name| at(name)).collect();
            let found = find("--checkpoint", &paths).map_err(|e| e.message)?;
            Ok::<_, String>(found.iter().map(|found| found.step).collect::<Vec<_>>())
        };
        assert_eq!(steps(&["run"]).unwrap(), [Some(3), Some(20)]);
        assert_eq!(
            steps(&["run/checkpoint", "run/checkpoint/step-3"]).unwrap(),
            [Some(3), Some(20)]
        );
        assert_eq!(steps(&["bare"]).unwrap(), [None]);
        assert!(
            steps(&["gone"])
                .unwrap_err()
                .ends_with("gone: no such folder; check the path")
        );
        let empty = steps(&["run/checkpoint/step-40.tmp"]).unwrap_err();
        assert!(
            empty.contains("holds neither config.json nor step-N folders"),
            "{empty}"
        );
    }
}
