//! What can go wrong with checkpoints.

use std::path::PathBuf;

use crate::model::ModelError;

/// A checkpoint that could not be written or looked for.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The system refused a file operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something intact is already there.
    #[error("{} exists already; choose another directory or resume from it", path.display())]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// The caller's state is not JSON.
    #[error("the run state of a checkpoint is not valid JSON: {source}")]
    Run {
        /// Where and why parsing stopped.
        source: serde_json::Error,
    },
    /// Tensors that the format cannot hold.
    #[error("cannot write {}: {problem}", path.display())]
    Tensors {
        /// The file.
        path: PathBuf,
        /// What the format says.
        problem: String,
    },
    /// Weights do not fit the config.
    #[error(transparent)]
    Model(#[from] ModelError),
}
