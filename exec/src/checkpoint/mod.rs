//! Checkpoints: a drafter that serving engines load, and beside it what resuming needs.
//!
//! A checkpoint directory holds one `step-N/` a checkpoint, a text file `latest` with the name of
//! the newest and, where a run asked for it, `best` with the name of the best. Inside `step-N/`:
//!
//! | file | content |
//! |---|---|
//! | `config.json`, `model.safetensors` | the drafter in bf16, as vLLM and SGLang load it |
//! | `trainer.safetensors` | f32 masters and AdamW's moments |
//! | `run.json` | the caller's own state, as given |
//! | `manifest.json` | the step, and size and CRC-32 of every other file |
//!
//! Invariant: a checkpoint is visible whole or not at all. Everything is written and synced in
//! `step-N.tmp/`, which is then renamed; a crash leaves at most a `.tmp` that no reader looks at.
//! The same state gives the same bytes.

mod drafter_files;
mod error;
mod inspect;
mod manifest;
mod publish;
mod read;
mod retention;
#[cfg(test)]
mod tests;
mod writer;

use std::path::{Path, PathBuf};

use candle_core::DType;

use crate::model::{DrafterConfig, Tensors, check_drafter};
pub use drafter_files::write_drafter;
pub use error::CheckpointError;
pub use inspect::{Check, Engine, InspectError, Inspection, Severity, TargetFacts, inspect};
use manifest::Manifest;
pub use read::{Latest, Skipped, read_latest, run_of};
pub use retention::{best_step, clear_leftovers};
pub use writer::{Retention, Writer, Written};

const CONFIG: &str = "config.json";
const MODEL: &str = "model.safetensors";
const TRAINER: &str = "trainer.safetensors";
const RUN: &str = "run.json";
const MANIFEST: &str = "manifest.json";
const LATEST: &str = "latest";
const BEST: &str = "best";

/// Everything that resuming needs.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Optimizer steps done.
    pub step: u64,
    /// The drafter's config.
    pub config: DrafterConfig,
    /// What [`crate::train::Optimizer::export`] gave: masters under `weight.*`, and the moments.
    pub trainer: Tensors,
    /// The caller's own state as JSON text (data cursor, ledger, seeds); stored byte for byte.
    pub run: String,
}

impl Checkpoint {
    /// The f32 master weights by their released names.
    pub fn weights(&self) -> Tensors {
        let named = self.trainer.iter().filter_map(|(name, tensor)| {
            Some((name.strip_prefix("weight.")?.to_owned(), tensor.clone()))
        });
        named.collect()
    }

    /// Publishes this checkpoint as `dir/step-N` and points `dir/latest` at it. Returns the path of
    /// the step's directory. A damaged `step-N` is replaced; an intact one is an error.
    ///
    /// Errors: `run` is not JSON, masters do not fit the config, the step exists, or the disk
    /// refuses.
    pub fn write(&self, dir: &Path) -> Result<PathBuf, CheckpointError> {
        serde_json::from_str::<serde::de::IgnoredAny>(&self.run)
            .map_err(|source| CheckpointError::Run { source })?;
        let weights = self.weights();
        check_drafter(&self.config, &weights, drafter_files::SAVED)?;
        let name = format!("step-{}", self.step);
        let path = dir.join(&name);
        if path.exists() && read::read_step(&path, self.step).is_ok() {
            return Err(CheckpointError::Exists { path });
        }
        publish::directory(&path, |dir| {
            drafter_files::put(dir, &self.config, &weights, DType::BF16)?;
            let trainer = dir.join(TRAINER);
            publish::tensors(&trainer, &self.trainer, DType::F32, &dir.join(CONFIG))?;
            publish::write_synced(&dir.join(RUN), self.run.as_bytes())?;
            let manifest = Manifest::of(self.step, dir, &[CONFIG, MODEL, TRAINER, RUN])?;
            publish::write_synced(&dir.join(MANIFEST), &manifest.render())
        })?;
        publish::file(&dir.join(LATEST), format!("{name}\n").as_bytes())?;
        Ok(path)
    }
}
