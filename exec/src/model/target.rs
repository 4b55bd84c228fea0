//! The frozen target: token rows in, hidden states out.

use std::path::Path;

use candle_core::{D, DType, Device, Tensor};

use super::config::{Geometry, TargetConfig};
use super::layer::{LayerWeights, feed_forward};
use super::names::target_shapes;
use super::normal::normals;
use super::ops::{Rope, linear, rms_norm};
use super::{ModelError, PaddedBatch, Tensors, safetensors_io};

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

    /// Whether `forward` also gives the last hidden state (off at first). Without it the layers above
    /// the highest captured one are skipped.
    #[must_use]
    pub fn with_last_hidden(mut self, wanted: bool) -> Self {
        self.last_hidden = wanted;
        self
    }

    /// The dtype in which hidden states are stored: f32 (at first) or bf16. Computation stays in f32.
    #[must_use]
    pub fn with_storage(mut self, dtype: DType) -> Self {
        self.storage = dtype;
        self
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

    /// Hidden states of a batch. What stands at pad positions is finite and without meaning; no real
    /// position depends on it.
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

/// Causal self-attention with grouped queries over B rows of S tokens.
struct CausalAttention<'a> {
    rows: usize,
    tokens: usize,
    g: &'a Geometry,
    rope: Rope,
}

/// Queries scored at a time: what must fit in memory is [heads, this, S], and keys behind the last
/// of them are left out, which saves nearly half of a long row's work.
const QUERIES_MAX: usize = 64;

impl<'a> CausalAttention<'a> {
    fn new(
        rows: usize,
        tokens: usize,
        g: &'a Geometry,
        device: &Device,
    ) -> candle_core::Result<Self> {
        let positions: Vec<u32> = (0..tokens as u32).collect();
        let rope = Rope::new(&positions, &[tokens], g.head_dim, g.rope_theta, device)?;
        Ok(Self {
            rows,
            tokens,
            g,
            rope,
        })
    }

    /// o_proj(attention(input_layernorm(x))) for x [B·S, H].
    fn forward(&self, x: &Tensor, w: &LayerWeights) -> candle_core::Result<Tensor> {
        let g = self.g;
        let y = rms_norm(x, &w.input_layernorm, g.rms_norm_eps)?.y;
        let scale = (g.head_dim as f64).powf(-0.5);
        let q = self
            .turned(&linear(&y, &w.q_proj)?, &w.q_norm)?
            .affine(scale, 0.0)?;
        let k = self.turned(&linear(&y, &w.k_proj)?, &w.k_norm)?;
        let v = self.by_head(&linear(&y, &w.v_proj)?)?;
        let mut mixed = Vec::new();
        for row in 0..self.rows {
            let (q, k, v) = (q.get(row)?, k.get(row)?, v.get(row)?);
            for first in (0..self.tokens).step_by(QUERIES_MAX) {
                let count = QUERIES_MAX.min(self.tokens - first);
                let until = |x: &Tensor| x.narrow(1, 0, first + count);
                mixed.push(self.mix(&q.narrow(1, first, count)?, &until(&k)?, &until(&v)?)?);
            }
        }
        linear(&Tensor::cat(&mixed, 0)?, &w.o_proj)
    }

    /// Rows [B·S, heads·D] as [B, heads, S, D].
    fn by_head(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        x.reshape((self.rows, self.tokens, (), self.g.head_dim))?
            .transpose(1, 2)?
            .contiguous()
    }

    fn turned(&self, x: &Tensor, norm: &Tensor) -> candle_core::Result<Tensor> {
        let heads = x.reshape(((), self.g.head_dim))?;
        self.rope
            .rotate(&self.by_head(&rms_norm(&heads, norm, self.g.rms_norm_eps)?.y)?)
    }

    /// Attention of the last n of m tokens of a row: q [heads, n, D], k and v [kv heads, m, D],
    /// giving [n, heads·D].
    fn mix(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> candle_core::Result<Tensor> {
        let (heads, kv) = (self.g.num_attention_heads, self.g.num_key_value_heads);
        let (n, m) = (q.dim(1)?, k.dim(1)?);
        // The query heads of a group follow one another: their queries become rows of one product.
        let q = q
            .contiguous()?
            .reshape((kv, heads / kv * n, self.g.head_dim))?;
        let scores = q.matmul(&k.transpose(1, 2)?)?.reshape((heads, n, m))?;
        let scores = scores.broadcast_add(&causal_bias(n, m, q.device())?)?;
        let p = scores
            .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
            .exp()?;
        let total = p.sum_keepdim(D::Minus1)?;
        let out = p
            .reshape((kv, heads / kv * n, m))?
            .matmul(v)?
            .reshape((heads, n, ()))?;
        out.broadcast_div(&total)?
            .transpose(0, 1)?
            .contiguous()?
            .reshape((n, ()))
    }
}

/// Additive mask of the last n of m tokens [n, m]: 0 where a key may be seen, −∞ behind the query.
fn causal_bias(n: usize, m: usize, device: &Device) -> candle_core::Result<Tensor> {
    let seen = |query: usize| m - n + query;
    let bias: Vec<f32> = (0..n)
        .flat_map(|query| (0..m).map(move |key| (key, seen(query))))
        .map(|(key, last)| if key <= last { 0.0 } else { f32::NEG_INFINITY })
        .collect();
    Tensor::from_vec(bias, (n, m), device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::{microbatch, models, row, target_config, target_json};
    use crate::model::{encode, fixture::Row};

    fn vectors(states: &HiddenStates) -> Vec<Vec<f32>> {
        states.features.get(0).unwrap().to_vec2().unwrap()
    }

    fn cosine(a: &[f32], b: &[f32]) -> f32 {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
    }

    #[test]
    fn features_of_a_random_target_tell_tokens_and_contexts_apart() {
        let (target, _) = models();
        let mut first = row(1, 24, 0);
        first.input_ids[23] = first.input_ids[0];
        let features = vectors(&target.forward(&microbatch(&[&first], 24).0).unwrap());
        for (i, a) in features.iter().enumerate() {
            for (j, b) in features.iter().enumerate().skip(i + 1) {
                let same = first.input_ids[i] == first.input_ids[j];
                let close = cosine(a, b);
                assert!(
                    if same { close < 0.9999 } else { close < 0.9 },
                    "{i} {j}: {close}"
                );
            }
        }
    }

    #[test]
    fn a_seed_gives_the_same_weights_and_another_seed_others() {
        let embed = |seed| {
            let target = Target::random(target_config(), seed, &[1], &Device::Cpu).unwrap();
            target.embed().to_vec2::<f32>().unwrap()
        };
        assert_eq!(embed(1), embed(1));
        assert_ne!(embed(1), embed(2));
    }

    #[test]
    fn captured_layers_come_in_the_order_asked_for_and_without_the_layers_above() {
        let row = row(1, 12, 0);
        let (batch, _) = microbatch(&[&row], 12);
        let capture = |ids: &[usize], last| {
            let target = Target::random(target_config(), 3, ids, &Device::Cpu).unwrap();
            target.with_last_hidden(last).forward(&batch).unwrap()
        };
        let (forth, back) = (capture(&[0, 3], false), capture(&[3, 0], true));
        for (a, b) in vectors(&forth).iter().zip(vectors(&back)) {
            assert_eq!([&a[32..], &a[..32]].concat(), b);
        }
        assert!(forth.last_hidden.is_none());
        assert_eq!(back.last_hidden.unwrap().dims(), [1, 12, 32]);
    }

    #[test]
    fn later_tokens_do_not_change_earlier_features() {
        let (target, _) = models();
        let whole = row(1, 12, 0);
        let start = Row {
            input_ids: whole.input_ids[..7].to_vec(),
            loss_mask: whole.loss_mask[..7].to_vec(),
            anchors: vec![],
        };
        let of = |row: &Row| vectors(&target.forward(&microbatch(&[row], 12).0).unwrap());
        assert_eq!(of(&whole)[..7], of(&start)[..7]);
    }

    #[test]
    fn shards_and_one_file_load_the_same_tied_target() {
        let tensors = random(&target_shapes(&target_config()), 0.02, 5, &Device::Cpu).unwrap();
        let (one, shards) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in [&one, &shards] {
            std::fs::write(dir.path().join("config.json"), target_json().to_string()).unwrap();
        }
        let write = |path: std::path::PathBuf, tensors: &Tensors| {
            std::fs::write(path, encode(tensors, DType::F32).unwrap()).unwrap();
        };
        write(one.path().join("model.safetensors"), &tensors);
        let (mut low, mut map) = (tensors.clone(), serde_json::Map::new());
        let high = low.split_off("model.layers.3");
        for (file, part) in [("low.safetensors", &low), ("high.safetensors", &high)] {
            write(shards.path().join(file), part);
            map.extend(part.keys().map(|name| (name.clone(), file.into())));
        }
        let index = serde_json::json!({"metadata": {}, "weight_map": map}).to_string();
        std::fs::write(shards.path().join("model.safetensors.index.json"), index).unwrap();

        let (batch, _) = microbatch(&[&row(1, 12, 0)], 12);
        let features = |dir: &Path| {
            vectors(
                &Target::load(dir, &[5], &Device::Cpu)
                    .unwrap()
                    .forward(&batch)
                    .unwrap(),
            )
        };
        assert_eq!(features(one.path()), features(shards.path()));

        let mut short = tensors;
        short.remove("model.layers.2.mlp.up_proj.weight");
        write(one.path().join("model.safetensors"), &short);
        let error = Target::load(one.path(), &[5], &Device::Cpu)
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with(
                "model.layers.2.mlp.up_proj.weight: is missing; expected shape [48, 32]"
            ),
            "{error}"
        );
    }

    #[test]
    fn tokens_outside_the_vocabulary_are_refused() {
        let (target, _) = models();
        let wild = Row {
            input_ids: vec![1, 50],
            loss_mask: vec![true; 2],
            anchors: vec![],
        };
        let error = target
            .forward(&microbatch(&[&wild], 2).0)
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "batch row 0: token 50 is outside the vocabulary of 50"
        );
    }
}
