//! What a target's config must say, family by family.

use std::path::Path;

use serde_json::Value;

use super::fields::Fields;
use super::rotary::Rotary;
use super::{Geometry, geometry};
use crate::model::ModelError;
use crate::model::gguf::{GgufFile, is_gguf};

/// The kinds of decoder that a target can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Family {
    /// Dense Qwen3: queries and keys are normalised head by head.
    Qwen3,
    /// Llama 2 and 3 and what is built like them (SmolLM2): no norm on queries and keys.
    Llama,
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

    fn from_fields(f: &Fields) -> Result<Self, ModelError> {
        let family = match f.architecture_name() {
            Some("Qwen3ForCausalLM") => Family::Qwen3,
            Some("LlamaForCausalLM") => Family::Llama,
            _ => return Err(f.wrong("architectures", ARCHITECTURES)),
        };
        let (rope_theta, scaling) = f.rope()?;
        let geometry = geometry(f, rope_theta)?;
        let rotary = Rotary::new(geometry.head_dim, rope_theta);
        Ok(Self {
            rotary: match scaling {
                Some(scaling) => rotary.scaled(&scaling),
                None => rotary,
            },
            family,
            geometry,
            tie_word_embeddings: f.bool_or("tie_word_embeddings", false)?,
            initializer_range: f.positive_or("initializer_range", 0.02)?,
            bos_token_id: f.token("bos_token_id")?,
            eos_token_id: f.token("eos_token_id")?,
            pad_token_id: f.token("pad_token_id")?,
        })
    }
}

const ARCHITECTURES: &str =
    "expected [\"Qwen3ForCausalLM\"] or [\"LlamaForCausalLM\"]; other targets are not supported";
