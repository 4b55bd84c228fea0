//! `config.json` of targets and drafters.

mod fields;
mod hybrid;
mod rotary;
mod sliding;
mod target;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde_json::Value;

use super::{ModelError, default_target_layer_ids};
use fields::Fields;
pub use sliding::SlidingAttention;

pub use hybrid::Hybrid;
pub use rotary::Rotary;
pub use target::{Family, LayerKind, TargetConfig};

/// The shape of a decoder; fields have the names of config.json.
#[derive(Debug, Clone, PartialEq)]
pub struct Geometry {
    /// Width of the residual stream (H).
    pub hidden_size: usize,
    /// Width inside the feed-forward layers.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; divides `num_attention_heads`.
    pub num_key_value_heads: usize,
    /// Width of a head (D), even.
    pub head_dim: usize,
    /// Rows of the embedding (V).
    pub vocab_size: usize,
    /// Added to the mean square in every norm.
    pub rms_norm_eps: f64,
    /// Base of the rotary angles.
    pub rope_theta: f64,
    /// Longest position the model is declared for, in tokens.
    pub max_position_embeddings: usize,
}

/// A drafter: `DFlashDraftModel`.
#[derive(Debug, Clone, PartialEq)]
pub struct DrafterConfig {
    /// The decoder. `hidden_size` and `vocab_size` are the target's.
    pub geometry: Geometry,
    /// Slots a block (T), anchor included.
    pub block_size: usize,
    /// The token that fills slots 1 … T−1.
    pub mask_token_id: u32,
    /// Target layers whose outputs are read, in the order of concatenation.
    pub target_layer_ids: Vec<usize>,
    /// Layers of the target.
    pub num_target_layers: usize,
    /// Layers that see a window of the context only; none: full attention in every layer, the one
    /// mask on which all engines agree.
    pub sliding: Option<SlidingAttention>,
    /// Spread of random weights.
    pub initializer_range: f64,
    /// Beginning-of-text token, if any.
    pub bos_token_id: Option<u32>,
    /// End-of-text token, if any.
    pub eos_token_id: Option<u32>,
    /// Padding token, if any.
    pub pad_token_id: Option<u32>,
}

/// The sizes of a new drafter that do not follow from its target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DrafterSize {
    /// Decoder layers.
    pub layers: usize,
    /// Width inside the feed-forward layers.
    pub intermediate_size: usize,
    /// Query heads.
    pub attention_heads: usize,
    /// Key and value heads.
    pub key_value_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

impl DrafterConfig {
    /// Reads and checks `dir/config.json`.
    pub fn load(dir: &Path) -> Result<Self, ModelError> {
        Self::from_fields(&Fields::load(&dir.join("config.json"))?)
    }

    /// Checks a parsed config; `file` names its origin in errors.
    pub fn from_json(json: Value, file: &str) -> Result<Self, ModelError> {
        Self::from_fields(&Fields::new(json, file)?)
    }

    fn from_fields(f: &Fields) -> Result<Self, ModelError> {
        f.architecture("DFlashDraftModel")?;
        let dflash = f.object("dflash_config")?;
        let block_size = match dflash.has("block_size") {
            true => dflash.size("block_size")?,
            false => f.size_or("block_size", 16)?,
        };
        let config = Self {
            geometry: sizes(f, f.rope_theta()?)?,
            block_size,
            mask_token_id: dflash.required_token("mask_token_id")?,
            target_layer_ids: dflash.sizes("target_layer_ids")?,
            num_target_layers: f.size("num_target_layers")?,
            sliding: SlidingAttention::read(f, &dflash)?,
            initializer_range: f.positive_or("initializer_range", 0.02)?,
            bos_token_id: f.token("bos_token_id")?,
            eos_token_id: f.token("eos_token_id")?,
            pad_token_id: f.token("pad_token_id")?,
        };
        config.check(f.file())?;
        Ok(config)
    }

    /// A new drafter for `target` with the default layers to read.
    pub fn for_target(
        target: &TargetConfig,
        size: DrafterSize,
        block_size: usize,
        mask_token_id: u32,
    ) -> Result<Self, ModelError> {
        let t = &target.geometry;
        let config = Self {
            geometry: Geometry {
                intermediate_size: size.intermediate_size,
                num_hidden_layers: size.layers,
                num_attention_heads: size.attention_heads,
                num_key_value_heads: size.key_value_heads,
                head_dim: size.head_dim,
                ..t.clone()
            },
            block_size,
            mask_token_id,
            target_layer_ids: default_target_layer_ids(t.num_hidden_layers, size.layers),
            num_target_layers: t.num_hidden_layers,
            sliding: None,
            initializer_range: target.initializer_range,
            bos_token_id: target.bos_token_id,
            eos_token_id: target.eos_token_id,
            pad_token_id: target.pad_token_id,
        };
        check_geometry(&config.geometry, "new drafter")?;
        config.check("new drafter")?;
        Ok(config)
    }

    /// The same drafter reading other target layers.
    ///
    /// Errors: no layers, a layer twice, or one that the target does not have.
    pub fn with_target_layer_ids(self, target_layer_ids: Vec<usize>) -> Result<Self, ModelError> {
        let config = Self {
            target_layer_ids,
            ..self
        };
        config.check("new drafter")?;
        Ok(config)
    }

    /// The same drafter with layers that see a window of the context only.
    ///
    /// Errors: a window shorter than a block, other layers than the drafter has, none that slides.
    pub fn with_sliding(self, sliding: SlidingAttention) -> Result<Self, ModelError> {
        let config = Self {
            sliding: Some(sliding),
            ..self
        };
        config.check("new drafter")?;
        Ok(config)
    }

    /// Refuses a drafter that cannot read `target` or cannot share its embedding.
    pub fn check_target(&self, target: &TargetConfig) -> Result<(), ModelError> {
        let (d, t) = (&self.geometry, &target.geometry);
        for (key, have, want) in [
            ("hidden_size", d.hidden_size, t.hidden_size),
            ("vocab_size", d.vocab_size, t.vocab_size),
            (
                "num_target_layers",
                self.num_target_layers,
                t.num_hidden_layers,
            ),
        ] {
            if have != want {
                let problem = format!("the target has {want}; use the drafter of this target");
                return Err(refuse("drafter config", key, have, problem));
            }
        }
        Ok(())
    }

    fn check(&self, file: &str) -> Result<(), ModelError> {
        if self.block_size < 2 {
            let problem = "a block needs at least 2 slots, the anchor and one to predict";
            return Err(refuse(file, "block_size", self.block_size, problem));
        }
        if self.mask_token_id as usize >= self.geometry.vocab_size {
            let problem = format!("must be below vocab_size = {}", self.geometry.vocab_size);
            return Err(refuse(
                file,
                "dflash_config.mask_token_id",
                self.mask_token_id,
                problem,
            ));
        }
        if let Some(sliding) = &self.sliding {
            sliding.check(file, self.geometry.num_hidden_layers, self.block_size)?;
        }
        let ids = &self.target_layer_ids;
        let key = "dflash_config.target_layer_ids";
        if ids.is_empty() {
            return Err(refuse(file, key, "[]", "name at least one target layer"));
        }
        if let Some(id) = ids.iter().find(|&&id| id >= self.num_target_layers) {
            let problem = format!(
                "must be below num_target_layers = {}",
                self.num_target_layers
            );
            return Err(refuse(file, key, id, problem));
        }
        match ids
            .iter()
            .enumerate()
            .find(|(n, id)| ids[..*n].contains(id))
        {
            Some((_, id)) => Err(refuse(file, key, id, "names the same layer twice")),
            None => Ok(()),
        }
    }
}

/// A decoder with full attention in every layer.
fn geometry(f: &Fields, rope_theta: f64) -> Result<Geometry, ModelError> {
    f.expect_or_absent("use_sliding_window", false.into())?;
    f.full_attention_only()?;
    sizes(f, rope_theta)
}

fn sizes(f: &Fields, rope_theta: f64) -> Result<Geometry, ModelError> {
    f.expect_or_absent("hidden_act", "silu".into())?;
    f.expect_or_absent("attention_bias", false.into())?;
    f.expect_or_absent("mlp_bias", false.into())?;
    let (hidden_size, heads) = (f.size("hidden_size")?, f.size("num_attention_heads")?);
    let g = Geometry {
        hidden_size,
        intermediate_size: f.size("intermediate_size")?,
        num_hidden_layers: f.size("num_hidden_layers")?,
        num_attention_heads: heads,
        num_key_value_heads: f.size_or("num_key_value_heads", heads)?,
        head_dim: f.size_or("head_dim", hidden_size / heads)?,
        vocab_size: f.size("vocab_size")?,
        rms_norm_eps: f.positive_or("rms_norm_eps", 1e-6)?,
        rope_theta,
        max_position_embeddings: f.size_or("max_position_embeddings", 40_960)?,
    };
    check_geometry(&g, f.file())?;
    Ok(g)
}

pub(super) fn check_geometry(g: &Geometry, file: &str) -> Result<(), ModelError> {
    let (heads, kv) = (g.num_attention_heads, g.num_key_value_heads);
    for (key, value) in [
        ("hidden_size", g.hidden_size),
        ("intermediate_size", g.intermediate_size),
        ("num_hidden_layers", g.num_hidden_layers),
        ("num_attention_heads", heads),
        ("num_key_value_heads", kv),
        ("vocab_size", g.vocab_size),
    ] {
        if value == 0 {
            return Err(refuse(file, key, value, "must be at least 1"));
        }
    }
    if !heads.is_multiple_of(kv) {
        let problem = format!("must divide num_attention_heads = {heads}");
        return Err(refuse(file, "num_key_value_heads", kv, problem));
    }
    if g.head_dim == 0 || !g.head_dim.is_multiple_of(2) {
        return Err(refuse(
            file,
            "head_dim",
            g.head_dim,
            "must be even, rope turns pairs",
        ));
    }
    Ok(())
}

fn refuse(
    file: &str,
    key: &str,
    value: impl std::fmt::Display,
    problem: impl Into<String>,
) -> ModelError {
    let (file, key) = (file.to_owned(), key.to_owned());
    ModelError::Config {
        file,
        key,
        value: value.to_string(),
        problem: problem.into(),
    }
}
