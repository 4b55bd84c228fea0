//! The frozen target: token rows in, hidden states out.

mod attention;
#[cfg(test)]
mod tests;

use std::path::Path;

use candle_core::{DType, Device, Tensor};

use super::config::TargetConfig;
use super::layer::{LayerWeights, feed_forward};
use super::names::target_shapes;
use super::normal::normals;
use super::ops::rms_norm;
use super::{ModelError, PaddedBatch, Tensors, safetensors_io};
use attention::CausalAttention;

/// A frozen Qwen3-like decoder. Clones share their weights, so each worker thread may hold one.
#[derive(Debug, Clone)]
pub struct Target {
    config: TargetConfig,
    embed: Tensor,
    lm_head: Tensor,
    norm: Tensor,
    layers: Vec<LayerWeights>,
    captured: Vec<usize>,
    last_hidden: bool,
    storage: DType,
}

/// What a target hands a drafter for one microbatch.
#[derive(Debug, Clone)]
pub struct HiddenStates {
    /// Outputs of the captured layers, concatenated in the order of `target_layer_ids` [B, S, K·H].
    pub features: Tensor,
    /// The last hidden state after the final norm [B, S, H], when it was asked for.
    pub last_hidden: Option<Tensor>,
}

impl HiddenStates {
    /// Bytes that the tensors occupy.
    pub fn bytes(&self) -> u64 {
        let size = |t: &Tensor| (t.elem_count() * t.dtype().size_in_bytes()) as u64;
        size(&self.features) + self.last_hidden.as_ref().map_or(0, size)
    }
}

impl Target {
    /// Loads `config.json` and the safetensors of `dir` (one file, or shards with an index).
    /// `captured` are the layers to capture: a drafter's `target_layer_ids`.
    ///
    /// Errors: unreadable or damaged files, tensors that do not fit the config, layers that the
    /// target does not have.
    pub fn load(dir: &Path, captured: &[usize], device: &Device) -> Result<Self, ModelError> {
        let config = TargetConfig::load(dir)?;
        let mut tensors = safetensors_io::load_dir(dir, device)?;
        if config.tie_word_embeddings {
            // Some files repeat the embedding under the second name.
            tensors.remove("lm_head.weight");
        }
        Self::new(config, &tensors, captured, &dir.display().to_string())
    }

    /// A target with random weights, the same for the same seed: normal with the config's
    /// `initializer_range`, norms 1.
    pub fn random(
        config: TargetConfig,
        seed: u64,
        captured: &[usize],
        device: &Device,
    ) -> Result<Self, ModelError> {
        let tensors = random(
            &target_shapes(&config),
            config.initializer_range,
            seed,
            device,
        )?;
        Self::new(config, &tensors, captured, "random target")
    }

    fn new(
        config: TargetConfig,
        tensors: &Tensors,
        captured: &[usize],
        origin: &str,
    ) -> Result<Self, ModelError> {
        safetensors_io::check(tensors, &target_shapes(&config), origin)?;
        let g = &config.geometry;
        if let Some(id) = captured.iter().find(|&&id| id >= g.num_hidden_layers) {
            return Err(ModelError::Config {
                file: origin.to_owned(),
                key: "target_layer_ids".to_owned(),
                value: id.to_string(),
                problem: format!("the target has {} layers, from 0", g.num_hidden_layers),
            });
        }
        let embed = tensors["model.embed_tokens.weight"].clone();
        Ok(Self {
            lm_head: tensors.get("lm_head.weight").unwrap_or(&embed).clone(),
            norm: tensors["model.norm.weight"].clone(),
            layers: (0..g.num_hidden_layers)
                .map(|n| LayerWeights::of(tensors, &format!("model.layers.{n}."), g))
                .collect(),
            captured: captured.to_vec(),
            last_hidden: false,
            storage: DType::F32,
            embed,
            config,
        })
    }

    /// The same target capturing other layers.
    #[cfg(test)]
    pub(crate) fn capturing(&self, captured: &[usize]) -> Self {
        let captured = captured.to_vec();
        Self {
            captured,
            ..self.clone()
        }
    }

    /// Whether `forward` also gives the last hidden state (off at first). Without it the layers
    /// above the highest captured one are skipped.
    #[must_use]
    pub fn with_last_hidden(mut self, wanted: bool) -> Self {
        self.last_hidden = wanted;
        self
    }

    /// The dtype in which hidden states are stored: f32 (at first) or bf16. Computation stays in
    /// f32.
    #[must_use]
    pub fn with_storage(mut self, dtype: DType) -> Self {
        self.storage = dtype;
        self
    }

    /// The captured layers, in the order in which their outputs are concatenated.
    pub fn captured(&self) -> &[usize] {
        &self.captured
    }

    /// Whether `forward` also gives the last hidden state.
    pub fn gives_last_hidden(&self) -> bool {
        self.last_hidden
    }

    /// The target's config.
    pub fn config(&self) -> &TargetConfig {
        &self.config
    }

    /// The embedding [V, H], shared with the drafter.
    pub fn embed(&self) -> &Tensor {
        &self.embed
    }

    /// The output head [V, H], shared with the drafter.
    pub fn lm_head(&self) -> &Tensor {
        &self.lm_head
    }

    /// Hidden states of a batch. What stands at pad positions is finite and without meaning; no
    /// real position depends on it.
    pub fn forward(&self, batch: &PaddedBatch) -> Result<HiddenStates, ModelError> {
        let g = &self.config.geometry;
        let (rows, tokens) = (batch.rows(), batch.padded_tokens());
        let ids = token_tensor(&batch.input_ids, g.vocab_size, self.embed.device())?;
        let mut x = self.embed.index_select(&ids, 0)?;
        let attention = CausalAttention::new(rows, tokens, g, self.embed.device())?;
        let mut outputs = vec![None; self.captured.len()];
        for (n, layer) in self.layers[..self.depth()].iter().enumerate() {
            x = (&x + attention.forward(&x, layer)?)?;
            x = feed_forward(&x, layer, g.rms_norm_eps)?.0;
            for (slot, _) in self.captured.iter().enumerate().filter(|(_, id)| **id == n) {
                outputs[slot] = Some(x.to_dtype(self.storage)?);
            }
        }
        let outputs: Vec<Tensor> = outputs.into_iter().flatten().collect();
        let features = match outputs.is_empty() {
            true => Tensor::zeros((rows, tokens, 0), self.storage, x.device())?,
            false => Tensor::cat(&outputs, 1)?.reshape((rows, tokens, ()))?,
        };
        let last_hidden = match self.last_hidden {
            true => {
                let y = rms_norm(&x, &self.norm, g.rms_norm_eps)?.y;
                Some(y.reshape((rows, tokens, ()))?.to_dtype(self.storage)?)
            }
            false => None,
        };
        Ok(HiddenStates {
            features,
            last_hidden,
        })
    }

    /// Layers that must run.
    fn depth(&self) -> usize {
        match self.last_hidden {
            true => self.layers.len(),
            false => self.captured.iter().max().map_or(0, |id| id + 1),
        }
    }
}

/// Weights by shape: matrices normal, vectors (all of them norms) 1.
pub(super) fn random(
    shapes: &std::collections::BTreeMap<String, Vec<usize>>,
    std: f64,
    seed: u64,
    device: &Device,
) -> Result<Tensors, ModelError> {
    let mut tensors = Tensors::new();
    for (name, shape) in shapes {
        let tensor = match shape.len() {
            1 => Tensor::ones(shape.as_slice(), DType::F32, device)?,
            _ => {
                let draws = normals(seed, name, shape.iter().product(), std);
                Tensor::from_vec(draws, shape.as_slice(), device)?
            }
        };
        tensors.insert(name.clone(), tensor);
    }
    Ok(tensors)
}

/// Token ids as a flat tensor [B·S]; refuses ids without a row in the embedding.
fn token_tensor(rows: &[Vec<u32>], vocab: usize, device: &Device) -> Result<Tensor, ModelError> {
    for (row, ids) in rows.iter().enumerate() {
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab) {
            let problem = format!("token {id} is outside the vocabulary of {vocab}");
            return Err(ModelError::Batch { row, problem });
        }
    }
    let flat = rows.concat();
    let count = flat.len();
    Ok(Tensor::from_vec(flat, count, device)?)
}
