//! The drafter: predicts a block of tokens from the hidden states before its anchor.

mod attention;
#[cfg(test)]
pub(crate) mod dense;
mod layer;
mod network;
mod session;
mod sight;
#[cfg(test)]
mod tests;

use std::path::Path;

use candle_core::{Device, Tensor};

use super::config::DrafterConfig;
use super::names::drafter_shapes;
use super::target::random;
use super::{HiddenStates, ModelError, Target, Tensors, safetensors_io};
use crate::train::BlockPlan;
use layer::DrafterLayer;
pub use session::DrafterSession;

/// A trainable drafter with f32 weights and the frozen embedding and head of its target.
///
/// Clones share their tensors, and tensors are never changed in place: one replica a worker thread
/// is cheap, and [`Drafter::set_weights`] makes replicas equal again after a step.
#[derive(Debug, Clone)]
pub struct Drafter {
    config: DrafterConfig,
    weights: Tensors,
    layers: Vec<DrafterLayer>,
    embed: Tensor,
    lm_head: Tensor,
}

impl Drafter {
    /// Loads `config.json` and the safetensors of `dir`, widened to f32.
    ///
    /// Errors: unreadable or damaged files, any tensor missing, misshapen or unknown, a config that
    /// does not fit `target`.
    pub fn load(dir: &Path, target: &Target) -> Result<Self, ModelError> {
        let config = DrafterConfig::load(dir)?;
        let weights = safetensors_io::load_dir(dir, target.embed().device())?;
        Self::from_weights(config, weights, target, &dir.display().to_string())
    }

    /// A drafter with random weights, the same for the same seed: normal with the config's
    /// `initializer_range`, norms 1.
    pub fn random(config: DrafterConfig, seed: u64, target: &Target) -> Result<Self, ModelError> {
        let device = target.embed().device();
        let weights = random(
            &drafter_shapes(&config),
            config.initializer_range,
            seed,
            device,
        )?;
        Self::from_weights(config, weights, target, "random drafter")
    }

    /// A drafter from weights by their released names, for example a checkpoint's f32 masters.
    /// `origin` names them in errors.
    pub fn from_weights(
        config: DrafterConfig,
        weights: Tensors,
        target: &Target,
        origin: &str,
    ) -> Result<Self, ModelError> {
        config.check_target(target.config())?;
        safetensors_io::check_drafter(&config, &weights, origin)?;
        Ok(Self {
            layers: layers(&config, &weights),
            embed: target.embed().clone(),
            lm_head: target.lm_head().clone(),
            config,
            weights,
        })
    }

    /// The drafter's config.
    pub fn config(&self) -> &DrafterConfig {
        &self.config
    }

    /// The weights by their released names.
    pub fn weights(&self) -> &Tensors {
        &self.weights
    }

    /// Takes over other weights of the same names and shapes; copies no data.
    pub fn set_weights(&mut self, weights: &Tensors) -> Result<(), ModelError> {
        safetensors_io::check_drafter(&self.config, weights, "new drafter weights")?;
        self.layers = layers(&self.config, weights);
        self.weights = weights.clone();
        Ok(())
    }

    /// Hidden states of all slots after the final norm [B, A, T, H]. What stands in dropped blocks
    /// has no meaning.
    pub fn hidden(&self, states: &HiddenStates, plan: &BlockPlan) -> Result<Tensor, ModelError> {
        let (rows, blocks, slots) = plan.shape();
        let tape = self.forward(states, plan)?;
        Ok(tape.hidden().reshape((rows, blocks, slots, ()))?)
    }

    /// The target's head over drafter hidden states [.., H], giving logits [.., V].
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor, ModelError> {
        let mut shape = hidden.dims().to_vec();
        let width = shape.pop().unwrap_or_default();
        shape.push(self.config.geometry.vocab_size);
        Ok(super::ops::linear(&hidden.reshape(((), width))?, &self.lm_head)?.reshape(shape)?)
    }

    /// The same drafter computing in another dtype.
    #[cfg(test)]
    pub(crate) fn to_dtype(&self, dtype: candle_core::DType) -> candle_core::Result<Self> {
        let cast = |(name, tensor): (&String, &Tensor)| Ok((name.clone(), tensor.to_dtype(dtype)?));
        let weights: Tensors = self
            .weights
            .iter()
            .map(cast)
            .collect::<candle_core::Result<_>>()?;
        Ok(Self {
            layers: layers(&self.config, &weights),
            embed: self.embed.to_dtype(dtype)?,
            lm_head: self.lm_head.to_dtype(dtype)?,
            config: self.config.clone(),
            weights,
        })
    }

    pub(crate) fn lm_head(&self) -> &Tensor {
        &self.lm_head
    }

    pub(crate) fn device(&self) -> &Device {
        self.embed.device()
    }
}

fn layers(config: &DrafterConfig, weights: &Tensors) -> Vec<DrafterLayer> {
    (0..config.geometry.num_hidden_layers)
        .map(|n| DrafterLayer::of(weights, n, &config.geometry))
        .collect()
}
