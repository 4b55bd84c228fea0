//! What can be wrong with a model directory or with a batch.

use std::path::PathBuf;

/// A model that cannot be loaded, or input that a model cannot read.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A JSON file is not what it should be.
    #[error("{}: not valid JSON: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why parsing stopped.
        source: serde_json::Error,
    },
    /// A key of a config has a value that this program cannot use.
    #[error("{file}: {key} = {value}: {problem}")]
    Config {
        /// The config file, or a word for a config that was built in memory.
        file: String,
        /// The key.
        key: String,
        /// The value found, as JSON; `(missing)` when there is none.
        value: String,
        /// What is expected instead.
        problem: String,
    },
    /// A safetensors file is damaged.
    #[error("{}: not a valid safetensors file: {problem}; fetch or write it again", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        problem: String,
    },
    /// A GGUF file is damaged or lacks what is asked of it.
    #[error("{}: {problem}", path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The tensors of a directory are not those of its config.
    #[error("{origin}: tensor {name}: {problem}")]
    Weights {
        /// Directory or other source of the tensors.
        origin: String,
        /// The tensor.
        name: String,
        /// What is missing, unexpected or misshapen.
        problem: String,
    },
    /// A batch breaks a limit of the model or of its own padding.
    #[error("batch row {row}: {problem}")]
    Batch {
        /// The row, from 0.
        row: usize,
        /// The limit and the value.
        problem: String,
    },
    /// The tensor library failed (out of memory, device error).
    #[error("tensor computation failed: {0}")]
    Tensor(#[from] candle_core::Error),
}
