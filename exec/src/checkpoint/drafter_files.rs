//! The two files of a drafter that vLLM and SGLang load.

use std::path::Path;

use candle_core::DType;
use serde_json::{Value, json};

use super::{CONFIG, CheckpointError, MODEL, NamedBytes, publish};
use crate::model::{DrafterConfig, Tensors, check_drafter, encode};

/// Release of transformers whose key names the config follows.
const TRANSFORMERS: &str = "4.57.1";

/// Publishes `config.json` and `model.safetensors` as the directory `dir`, which must not exist.
/// `dtype` is bf16 for serving; f32 keeps every bit.
///
/// Errors: `dir` exists, weights that do not fit the config, a disk that refuses.
pub fn write_drafter(
    dir: &Path,
    config: &DrafterConfig,
    weights: &Tensors,
    dtype: DType,
) -> Result<(), CheckpointError> {
    if dir.exists() {
        return Err(CheckpointError::Exists {
            path: dir.to_owned(),
        });
    }
    publish::directory(dir, &render(config, weights, dtype)?)
}

/// The two files in memory.
///
/// Engines skip unknown tensors silently, so names and shapes are checked here.
pub(super) fn render(
    config: &DrafterConfig,
    weights: &Tensors,
    dtype: DType,
) -> Result<Vec<NamedBytes>, CheckpointError> {
    check_drafter(config, weights, "weights to be saved")?;
    let mut text = format!("{:#}", config_json(config, dtype)).into_bytes();
    text.push(b'\n');
    Ok(vec![(CONFIG, text), (MODEL, encode(weights, dtype)?)])
}

/// All keys that either engine reads, with full attention in every layer: the one mask on which
/// both agree.
fn config_json(config: &DrafterConfig, dtype: DType) -> Value {
    let g = &config.geometry;
    json!({
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": g.hidden_size,
        "intermediate_size": g.intermediate_size,
        "num_hidden_layers": g.num_hidden_layers,
        "num_attention_heads": g.num_attention_heads,
        "num_key_value_heads": g.num_key_value_heads,
        "head_dim": g.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": g.rms_norm_eps,
        "attention_bias": false,
        "attention_dropout": 0.0,
        "rope_theta": whole_if_whole(g.rope_theta),
        "rope_scaling": null,
        "max_position_embeddings": g.max_position_embeddings,
        "vocab_size": g.vocab_size,
        "tie_word_embeddings": false,
        "layer_types": vec!["full_attention"; g.num_hidden_layers],
        "sliding_window": null,
        "use_sliding_window": false,
        "max_window_layers": g.num_hidden_layers,
        "num_target_layers": config.num_target_layers,
        "block_size": config.block_size,
        "dflash_config": {
            "block_size": config.block_size,
            "mask_token_id": config.mask_token_id,
            "target_layer_ids": config.target_layer_ids,
        },
        "dtype": if dtype == DType::BF16 { "bfloat16" } else { "float32" },
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
        "pad_token_id": config.pad_token_id,
        "initializer_range": config.initializer_range,
        "use_cache": true,
        "transformers_version": TRANSFORMERS,
    })
}

/// Released configs write the rope base as a whole number.
fn whole_if_whole(x: f64) -> Value {
    match x.fract() == 0.0 && x < 1e15 {
        true => (x as u64).into(),
        false => x.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_config_reads_back_as_itself() {
        let released = json!({
            "architectures": ["DFlashDraftModel"], "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 16, "vocab_size": 300, "rope_theta": 1e7, "num_target_layers": 6,
            "eos_token_id": 7, "dflash_config":
                {"mask_token_id": 299, "target_layer_ids": [1, 4], "block_size": 8},
        });
        let config = DrafterConfig::from_json(released, "config.json").unwrap();
        let written = config_json(&config, DType::BF16);
        assert_eq!(written["rope_theta"].to_string(), "10000000");
        assert_eq!(written["sliding_window"], Value::Null);
        assert_eq!(
            written["layer_types"],
            json!(["full_attention", "full_attention"])
        );
        assert_eq!(written.as_object().unwrap().len(), 31);
        assert_eq!(
            DrafterConfig::from_json(written, "written").unwrap(),
            config
        );
    }
}
