//! The two files of a drafter that vLLM and SGLang load.

use std::path::Path;

use candle_core::DType;
use serde_json::{Value, json};

use super::{CONFIG, CheckpointError, MODEL, publish};
use crate::model::{DrafterConfig, Tensors, check_drafter};

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
    check_drafter(config, weights, SAVED)?;
    publish::directory(dir, |dir| put(dir, config, weights, dtype))
}

/// Name for errors of weights that are to be saved. Engines skip unknown tensors silently, so names and shapes are checked before.
pub(super) const SAVED: &str = "weights to be saved";

/// Puts the two files into `dir`.
pub(super) fn put(
    dir: &Path,
    config: &DrafterConfig,
    weights: &Tensors,
    dtype: DType,
) -> Result<(), CheckpointError> {
    let text = format!("{:#}\n", config_json(config, dtype));
    publish::write_synced(&dir.join(CONFIG), text.as_bytes())?;
    publish::tensors(&dir.join(MODEL), weights, dtype, &dir.join(CONFIG))
}

/// All keys that either engine reads. Full attention in every layer is the one mask on which both
/// agree; for sliding layers the rule inside a block is written as vLLM reads it.
fn config_json(config: &DrafterConfig, dtype: DType) -> Value {
    let g = &config.geometry;
    let mut json = json!({
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
        "layer_types": layer_types(config),
        "sliding_window": config.sliding.as_ref().map(|sliding| sliding.window),
        "use_sliding_window": config.sliding.is_some(),
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
    });
    if let Some(causal) = in_block_rule(config) {
        json["is_causal"] = causal.into();
        json["dflash_config"]["causal"] = causal.into();
    }
    json
}

fn layer_types(config: &DrafterConfig) -> Vec<&'static str> {
    let layers = config.geometry.num_hidden_layers;
    let slides = |n: usize| config.sliding.as_ref().is_some_and(|s| s.layers[n]);
    let kind = |n: usize| match slides(n) {
        true => "sliding_attention",
        false => "full_attention",
    };
    (0..layers).map(kind).collect()
}

/// What to write for all layers at once: whether slots see only those before them in the block.
///
/// The keys mean every layer. So causal sliding layers beside full ones are left to the engines'
/// default, which is just that: sliding layers causal, full ones not.
fn in_block_rule(config: &DrafterConfig) -> Option<bool> {
    let sliding = config.sliding.as_ref()?;
    (!sliding.causal || sliding.layers.iter().all(|slides| *slides)).then_some(sliding.causal)
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
    use crate::model::SlidingAttention;

    fn released() -> Value {
        json!({
            "architectures": ["DFlashDraftModel"], "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 16, "vocab_size": 300, "rope_theta": 1e7, "num_target_layers": 6,
            "eos_token_id": 7, "dflash_config":
                {"mask_token_id": 299, "target_layer_ids": [1, 4], "block_size": 8},
        })
    }

    #[test]
    fn sliding_layers_are_written_with_the_rule_inside_a_block_and_read_back() {
        // Layers that stay full, causal or not, and what is written.
        for (full, causal, rule) in [
            (0, true, json!(true)),
            (0, false, json!(false)),
            (1, false, json!(false)),
            (1, true, Value::Null),
        ] {
            let sliding = SlidingAttention::all_but_last(2, full, 64, causal);
            let config = DrafterConfig::from_json(released(), "config.json").unwrap();
            let config = config.with_sliding(sliding).unwrap();
            let written = config_json(&config, DType::BF16);
            assert_eq!(written["layer_types"][0], "sliding_attention");
            let last = ["sliding_attention", "full_attention"][full];
            assert_eq!(written["layer_types"][1], last);
            assert_eq!(written["sliding_window"], 64);
            assert_eq!(written["use_sliding_window"], true);
            let rules = [&written["is_causal"], &written["dflash_config"]["causal"]];
            assert_eq!(rules, [&rule, &rule]);
            assert_eq!(
                DrafterConfig::from_json(written, "written").unwrap(),
                config
            );
        }
    }

    #[test]
    fn a_rule_that_would_make_full_layers_causal_is_refused() {
        for (at, key) in [("", "is_causal"), ("dflash_config", "causal")] {
            let mut json = released();
            let object = if at.is_empty() {
                &mut json
            } else {
                &mut json[at]
            };
            object[key] = true.into();
            let error = DrafterConfig::from_json(json, "config.json").unwrap_err();
            assert!(error.to_string().contains("is_causal"), "{error}");
        }
    }

    #[test]
    fn a_window_shorter_than_a_block_is_refused() {
        let config = DrafterConfig::from_json(released(), "config.json").unwrap();
        let sliding = SlidingAttention::all_but_last(2, 0, 7, true);
        let error = config.with_sliding(sliding).unwrap_err().to_string();
        assert!(
            error.contains("sliding_window") && error.contains('7'),
            "{error}"
        );
    }

    #[test]
    fn a_written_config_reads_back_as_itself() {
        let config = DrafterConfig::from_json(released(), "config.json").unwrap();
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
