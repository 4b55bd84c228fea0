//! The two models: a frozen [`Target`] that produces hidden states and the [`Drafter`] that learns
//! from them.
//!
//! The drafter is a Qwen3-shaped decoder (pre-norm, RMSNorm, per-head q/k norm, rotate-half RoPE,
//! grouped queries, SwiGLU, no biases), the target one of the [`Family`] kinds; both compute in f32. A [`PaddedBatch`] goes into the target,
//! [`HiddenStates`] come out of it, and the drafter reads them together with a block plan
//! ([`crate::train::BlockPlan`]).
//!
//! Shapes use these letters everywhere: B rows (samples), S tokens a row, A anchors a row, T slots
//! a block, K captured layers, H hidden size, V vocabulary, D head dimension.

mod batch;
mod config;
pub(crate) mod drafter;
mod error;
#[cfg(test)]
pub(crate) mod fixture;
pub mod gguf;
mod layer;
mod layer_ids;
mod names;
mod normal;
mod ops;
mod safetensors_io;
mod target;

pub use batch::{PaddedBatch, Sample};
pub use candle_core::Device;
pub use config::{
    DrafterConfig, DrafterSize, Family, Geometry, Hybrid, LayerKind, Rotary, SlidingAttention,
    TargetConfig,
};
pub use drafter::{Drafter, DrafterSession};
pub use error::ModelError;
pub use layer_ids::default_target_layer_ids;
pub use names::drafter_shapes;
pub(crate) use normal::{hash, normals};
pub(crate) use safetensors_io::{check_drafter, decode, write as write_tensors};
pub use target::{
    BatchExtension, BatchSession, Extension, HiddenStates, Target, TargetSession, target_shapes,
};

/// Tensors by name; the order of names is the order of every reduction and of every file.
pub type Tensors = std::collections::BTreeMap<String, candle_core::Tensor>;
