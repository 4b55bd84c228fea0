//! What a target's config must say, family by family.

use std::path::Path;

use serde_json::Value;

use super::fields::Fields;
use super::hybrid::Hybrid;
use super::rotary::Rotary;
use super::{Geometry, geometry, sizes};
use crate::model::ModelError;
use crate::model::gguf::{GgufFile, is_gguf};

/// The kinds of decoder that a target can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Family {
    /// Dense Qwen3: queries and keys are normalised head by head.
    Qwen3,
    /// Llama 2 and 3 and what is built like them (SmolLM2): no norm on queries and keys.
    Llama,
    /// Dense Qwen3.5 and 3.6: gated delta rule in most layers, gated attention in the others,
    /// norms that store their weight minus 1.
    Qwen3_5(Hybrid),
}

/// What mixes the tokens in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerKind {
    /// Softmax attention over all tokens before.
    FullAttention,
    /// A recurrent state under the gated delta rule.
    GatedDelta,
}

/// A target: a decoder of one of the families.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetConfig {
    /// The family.
    pub family: Family,
    /// The decoder.
    pub geometry: Geometry,
    /// How positions turn queries and keys.
    pub rotary: Rotary,
    /// Whether `lm_head` is the embedding.
    pub tie_word_embeddings: bool,
    /// Spread of random weights.
    pub initializer_range: f64,
    /// Beginning-of-text token, if any.
    pub bos_token_id: Option<u32>,
    /// End-of-text token, if any (the first one when the config lists several).
    pub eos_token_id: Option<u32>,
    /// Padding token, if any.
    pub pad_token_id: Option<u32>,
}

impl TargetConfig {
    /// Reads and checks `path/config.json`, or the metadata of the file `path` if it is a GGUF.
    pub fn load(path: &Path) -> Result<Self, ModelError> {
        if is_gguf(path) {
            return GgufFile::open(path)?.target_config();
        }
        Self::from_fields(&Fields::load(&path.join("config.json"))?)
    }

    /// Checks a parsed config; `file` names its origin in errors.
    pub fn from_json(json: Value, file: &str) -> Result<Self, ModelError> {
        Self::from_fields(&Fields::new(json, file)?)
    }

    /// What mixes the tokens in layer `n`.
    pub fn layer_kind(&self, n: usize) -> LayerKind {
        match &self.family {
            Family::Qwen3 | Family::Llama => LayerKind::FullAttention,
            Family::Qwen3_5(hybrid) => hybrid.layers[n],
        }
    }

    fn from_fields(f: &Fields) -> Result<Self, ModelError> {
        match f.architecture_name() {
            Some("Qwen3ForCausalLM") => Self::dense(f, Family::Qwen3),
            Some("LlamaForCausalLM") => Self::dense(f, Family::Llama),
            Some("Qwen3_5ForConditionalGeneration") => Self::hybrid(f, &f.object("text_config")?),
            Some("Qwen3_5ForCausalLM") => Self::hybrid(f, f),
            _ => Err(f.wrong("architectures", ARCHITECTURES)),
        }
    }

    fn dense(f: &Fields, family: Family) -> Result<Self, ModelError> {
        let (rope_theta, scaling) = f.rope()?;
        let geometry = geometry(f, rope_theta)?;
        let plain = Rotary::new(geometry.head_dim, rope_theta);
        let rotary = match scaling {
            Some(scaling) => plain.scaled(&scaling),
            None => plain,
        };
        Self::of(f, f, family, geometry, rotary)
    }

    /// `text` is the section of the language model in the whole config `f`.
    fn hybrid(f: &Fields, text: &Fields) -> Result<Self, ModelError> {
        let (rope_theta, scaling) = text.rope()?;
        if scaling.is_some() {
            let problem = "scaled rope is not supported for this family, only \"default\"";
            return Err(text.wrong("rope_parameters", problem));
        }
        text.expect_or_absent("attn_output_gate", true.into())?;
        let geometry = sizes(text, rope_theta)?;
        let dims = text.rotary_dims(geometry.head_dim)?;
        let hybrid = Hybrid::from_fields(text, geometry.num_hidden_layers)?;
        let rotary = Rotary::new(dims, rope_theta);
        Self::of(f, text, Family::Qwen3_5(hybrid), geometry, rotary)
    }

    fn of(
        f: &Fields,
        text: &Fields,
        family: Family,
        geometry: Geometry,
        rotary: Rotary,
    ) -> Result<Self, ModelError> {
        let tie = "tie_word_embeddings";
        let tied = if f.has(tie) { f } else { text };
        Ok(Self {
            family,
            geometry,
            rotary,
            tie_word_embeddings: tied.bool_or(tie, false)?,
            initializer_range: text.positive_or("initializer_range", 0.02)?,
            bos_token_id: text.token("bos_token_id")?,
            eos_token_id: text.token("eos_token_id")?,
            pad_token_id: text.token("pad_token_id")?,
        })
    }
}

const ARCHITECTURES: &str = "expected [\"Qwen3ForCausalLM\"], [\"LlamaForCausalLM\"], [\"Qwen3_5ForConditionalGeneration\"] or [\"Qwen3_5ForCausalLM\"]; choose a target of one of these";
