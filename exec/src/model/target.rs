//! The frozen target: token rows in, hidden states out.

mod attention;
mod cache;
mod capture;
mod delta;
mod layer;
mod names;
mod pass;
mod session;
#[cfg(test)]
mod tests;

use std::path::Path;

use candle_core::{DType, Device, Tensor};

use super::config::{Family, TargetConfig};
use super::gguf::{GgufFile, is_gguf};
use super::normal::normals;
use super::ops::{linear, rms_norm};
use super::{ModelError, PaddedBatch, Tensors, safetensors_io};
use cache::LayerCache;
use capture::check_layers;
use layer::{Layer, stored_norm};
use pass::{Pass, Span};

pub use names::target_shapes;
pub(super) use names::{EMBED, LM_HEAD, NORM};
pub use session::{BatchExtension, BatchSession, Extension, TargetSession};

/// A frozen decoder. Clones share their weights, so each worker thread may hold one.
#[derive(Debug, Clone)]
pub struct Target {
    config: TargetConfig,
    tensors: Tensors,
    embed: Tensor,
    lm_head: Tensor,
    norm: Tensor,
    layers: Vec<Layer>,
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
    /// Loads `config.json` and the safetensors of the folder `path` (one file, or shards with an
    /// index), or a GGUF file with all its tensors widened to f32.
    /// `captured` are the layers to capture: a drafter's `target_layer_ids`.
    ///
    /// Errors: unreadable or damaged files, tensors that do not fit the config, layers that the
    /// target does not have.
    pub fn load(path: &Path, captured: &[usize], device: &Device) -> Result<Self, ModelError> {
        let (config, mut tensors) = if is_gguf(path) {
            let file = GgufFile::open(path)?;
            let config = file.target_config()?;
            let tensors = file.tensors(&config, device)?;
            (config, tensors)
        } else {
            let config = TargetConfig::load(path)?;
            let tensors = safetensors_io::load_dir_as(path, device, names::own_name)?;
            (config, tensors)
        };
        if config.tie_word_embeddings {
            // Some files repeat the embedding under the second name.
            tensors.remove(LM_HEAD);
        }
        // Tables of older files, which follow from the config.
        tensors.retain(|name, _| !name.ends_with(".rotary_emb.inv_freq"));
        Self::from_tensors(config, &tensors, captured, &path.display().to_string())
    }

    /// The same as a source of weights for another device: tensors that are stored in bf16 stay so, and no layer is made ready to run
    /// here. A GGUF's tensors are widened all the same.
    ///
    /// Errors: as [`Target::load`]; [`Target::forward`] refuses.
    pub fn load_for_device(path: &Path, captured: &[usize]) -> Result<Self, ModelError> {
        let device = Device::Cpu;
        if is_gguf(path) {
            return Self::load(path, captured, &device);
        }
        let config = TargetConfig::load(path)?;
        let stored = safetensors_io::Width::Stored;
        let mut tensors = safetensors_io::load_dir_in(path, &device, names::own_name, stored)?;
        if config.tie_word_embeddings {
            tensors.remove(LM_HEAD);
        }
        let origin = path.display().to_string();
        safetensors_io::check(&tensors, &target_shapes(&config), &origin)?;
        check_layers(captured, config.geometry.num_hidden_layers, &origin)?;
        let embed = tensors[EMBED].clone();
        Ok(Self {
            lm_head: tensors.get(LM_HEAD).unwrap_or(&embed).clone(),
            norm: tensors[NORM].clone(),
            layers: Vec::new(),
            captured: captured.to_vec(),
            last_hidden: false,
            storage: DType::BF16,
            embed,
            config,
            tensors,
        })
    }

    /// A target with random weights, the same for the same seed: normal with the config's
    /// `initializer_range`, norms 1.
    pub fn random(
        config: TargetConfig,
        seed: u64,
        captured: &[usize],
        device: &Device,
    ) -> Result<Self, ModelError> {
        let shapes = target_shapes(&config);
        let mut tensors = random(&shapes, config.initializer_range, seed, device)?;
        if matches!(config.family, Family::Qwen3_5(_)) {
            // Norms are stored minus 1; rates of decay begin at 1 with no offset.
            for (_, vector) in tensors
                .iter_mut()
                .filter(|(name, tensor)| tensor.rank() == 1 && !name.ends_with(names::DELTA_NORM))
            {
                *vector = vector.zeros_like()?;
            }
        }
        Self::from_tensors(config, &tensors, captured, "random target")
    }

    /// A target from weights by their released names. `origin` names them in errors.
    ///
    /// Errors: tensors that do not fit the config, layers that the target does not have.
    pub fn from_tensors(
        config: TargetConfig,
        tensors: &Tensors,
        captured: &[usize],
        origin: &str,
    ) -> Result<Self, ModelError> {
        safetensors_io::check(tensors, &target_shapes(&config), origin)?;
        let g = &config.geometry;
        check_layers(captured, g.num_hidden_layers, origin)?;
        let embed = tensors[EMBED].clone();
        Ok(Self {
            lm_head: tensors.get(LM_HEAD).unwrap_or(&embed).clone(),
            norm: stored_norm(&tensors[NORM], &config.family)?,
            layers: (0..g.num_hidden_layers)
                .map(|n| Layer::of(tensors, n, &config))
                .collect::<candle_core::Result<_>>()?,
            captured: captured.to_vec(),
            last_hidden: false,
            storage: DType::F32,
            embed,
            config,
            tensors: tensors.clone(),
        })
    }

    /// All weights by their released names.
    pub fn weights(&self) -> &Tensors {
        &self.tensors
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

    /// Logits [n, V] of hidden states [n, H] after the final norm.
    pub fn head(&self, hidden: &Tensor) -> Result<Tensor, ModelError> {
        Ok(linear(&hidden.to_dtype(DType::F32)?, &self.lm_head)?)
    }

    /// An empty session, which reads tokens piece by piece.
    pub fn session(&self) -> Result<TargetSession, ModelError> {
        TargetSession::new(self)
    }

    /// An empty session of `rows` independent rows.
    ///
    /// Errors: no rows.
    pub fn batch_session(&self, rows: usize) -> Result<BatchSession, ModelError> {
        BatchSession::new(self, rows)
    }

    /// Hidden states of a batch. What stands at pad positions is finite and without meaning; no
    /// real position depends on it.
    pub fn forward(&self, batch: &PaddedBatch) -> Result<HiddenStates, ModelError> {
        let (rows, tokens) = (batch.rows(), batch.padded_tokens());
        let span = Span {
            past: 0,
            new: tokens,
        };
        let device = self.embed.device();
        let pass = Pass::new(&self.config, vec![span; rows], tokens, device)?;
        let (features, x) = self.run(&batch.input_ids, &pass, None, self.depth())?;
        let last_hidden = match self.last_hidden {
            true => Some(self.normed(&x, &pass)?.to_dtype(self.storage)?),
            false => None,
        };
        Ok(HiddenStates {
            features,
            last_hidden,
        })
    }

    /// Captured outputs [B, S, K·H] and the output [B·S, H] of the first `depth` layers.
    fn run(
        &self,
        ids: &[Vec<u32>],
        pass: &Pass<'_>,
        mut caches: Option<&mut [LayerCache]>,
        depth: usize,
    ) -> Result<(Tensor, Tensor), ModelError> {
        let ids = token_tensor(ids, self.config.geometry.vocab_size, self.embed.device())?;
        let mut x = self.embed.index_select(&ids, 0)?;
        let mut outputs = vec![None; self.captured.len()];
        let Some(layers) = self.layers.get(..depth) else {
            let problem =
                "this target was loaded for another device; load it to run here".to_owned();
            return Err(ModelError::Batch { row: 0, problem });
        };
        for (n, layer) in layers.iter().enumerate() {
            let cache = caches.as_mut().map(|caches| &mut caches[n]);
            x = layer.forward(&x, pass, cache)?;
            for (slot, _) in self.captured.iter().enumerate().filter(|(_, id)| **id == n) {
                outputs[slot] = Some(x.to_dtype(self.storage)?);
            }
        }
        let outputs: Vec<Tensor> = outputs.into_iter().flatten().collect();
        let (rows, tokens) = (pass.rows(), pass.tokens);
        let features = match outputs.is_empty() {
            true => Tensor::zeros((rows, tokens, 0), self.storage, x.device())?,
            false => Tensor::cat(&outputs, 1)?.reshape((rows, tokens, ()))?,
        };
        Ok((features, x))
    }

    /// The final norm of x [B·S, H], as [B, S, H].
    fn normed(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor, ModelError> {
        let y = rms_norm(x, &self.norm, self.config.geometry.rms_norm_eps)?.y;
        Ok(y.reshape((pass.rows(), pass.tokens, ()))?)
    }

    /// Layers that must run.
    fn depth(&self) -> usize {
        match self.last_hidden {
            true => self.config.geometry.num_hidden_layers,
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
