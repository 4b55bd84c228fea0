//! Full and sliding layers, and whether a block sees itself whole or only backwards.
//!
//! | layer | SGLang | vLLM |
//! |---|---|---|
//! | full | whole block | whole block, unless `is_causal` or `dflash_config.causal` says otherwise |
//! | sliding | backwards only, window W − 1 to the left | backwards only, unless the same keys say otherwise |

use serde_json::{Map, Value};

use super::config::{shown, whole};
use super::{BOTH, Notes, SGLANG, VLLM};

/// What the config says about its layers.
pub(super) fn check(
    map: &Map<String, Value>,
    dflash: Option<&Map<String, Value>>,
    layers: usize,
    notes: &mut Notes,
) {
    let Some(sliding) = kinds(map, dflash, layers, notes) else {
        return;
    };
    if sliding > 0 {
        window(map, dflash, notes);
    }
    if 0 < sliding && sliding < layers {
        let finding =
            format!("{sliding} of {layers} layers slide: vLLM needs its second model runner");
        let way_out = "start it with VLLM_USE_V2_MODEL_RUNNER=1";
        notes.warn(VLLM, "layer_types", finding, way_out);
    }
    causality(map, dflash, sliding, layers, notes);
}

/// How many layers slide; none where the list cannot be used.
fn kinds(
    map: &Map<String, Value>,
    dflash: Option<&Map<String, Value>>,
    layers: usize,
    notes: &mut Notes,
) -> Option<usize> {
    const KEY: &str = "layer_types";
    let way_out = "write full_attention or sliding_attention for each layer, as it was trained";
    let uses_swa = dflash.and_then(|inner| inner.get("use_swa")) == Some(&Value::Bool(true));
    let types = match map.get(KEY).filter(|types| !types.is_null()) {
        None if uses_swa => {
            let finding = "left out: vLLM slides every layer by dflash_config.use_swa, SGLang none";
            notes.refuse(SGLANG, KEY, finding, way_out);
            return None;
        }
        None => {
            notes.pass(KEY, "left out, so full attention in every layer");
            return Some(0);
        }
        Some(types) => types,
    };
    let Some(list) = types.as_array() else {
        notes.refuse(
            BOTH,
            KEY,
            format!("{types}: expected a list of names"),
            way_out,
        );
        return None;
    };
    if list.len() != layers {
        let finding = format!(
            "{} entries for num_hidden_layers = {layers}; it must have one a layer",
            list.len()
        );
        notes.refuse(BOTH, KEY, finding, way_out);
        return None;
    }
    let unknown = list
        .iter()
        .find(|kind| *kind != "full_attention" && *kind != "sliding_attention");
    if let Some(kind) = unknown {
        let finding = format!("{kind} is neither full_attention nor sliding_attention");
        notes.refuse(BOTH, KEY, finding, way_out);
        return None;
    }
    let sliding = list
        .iter()
        .filter(|kind| *kind == "sliding_attention")
        .count();
    notes.pass(KEY, format!("{} full, {sliding} sliding", layers - sliding));
    Some(sliding)
}

fn window(map: &Map<String, Value>, dflash: Option<&Map<String, Value>>, notes: &mut Notes) {
    const KEY: &str = "sliding_window";
    let way_out = "write the window it was trained with";
    match map.get(KEY) {
        Some(value) if whole(value).is_some() => {
            notes.pass(KEY, format!("{value} tokens, the token itself included"));
        }
        other => {
            let finding = format!(
                "{}: sliding layers need a window of at least 1 token",
                shown(other)
            );
            let inner = dflash.and_then(|inner| inner.get("swa_window_size"));
            if inner.and_then(whole).is_some() {
                notes.refuse(SGLANG, KEY, finding, way_out);
            } else {
                notes.refuse(BOTH, KEY, finding, way_out);
            }
        }
    }
    if map.get("use_sliding_window") != Some(&Value::Bool(true)) {
        let finding = format!(
            "{}: the config class then drops sliding_window, which sliding layers need",
            shown(map.get("use_sliding_window"))
        );
        notes.refuse(BOTH, "use_sliding_window", finding, "set it to true");
    }
}

/// Where the two engines would give a block different masks.
fn causality(
    map: &Map<String, Value>,
    dflash: Option<&Map<String, Value>>,
    sliding: usize,
    layers: usize,
    notes: &mut Notes,
) {
    let said = map
        .get("is_causal")
        .filter(|value| !value.is_null())
        .or_else(|| {
            dflash
                .and_then(|inner| inner.get("causal"))
                .filter(|value| !value.is_null())
        });
    match said {
        None => {
            let finding = match sliding {
                0 => "every slot of a block sees the whole block, in both engines",
                _ => "sliding layers see the block backwards, full ones whole, in both engines",
            };
            notes.pass("is_causal", finding);
        }
        Some(Value::Bool(true)) if sliding < layers => notes.warn(
            SGLANG,
            "is_causal",
            format!(
                "true: vLLM lets {} full layers see backwards only, SGLang the whole block",
                layers - sliding
            ),
            "serve it with the engine whose mask it was trained with",
        ),
        Some(Value::Bool(false)) if sliding > 0 => notes.warn(
            SGLANG,
            "is_causal",
            format!("false: vLLM lets {sliding} sliding layers see the whole block, SGLang backwards only"),
            "serve it with the engine whose mask it was trained with",
        ),
        Some(Value::Bool(is_causal)) => notes.pass("is_causal", is_causal.to_string()),
        Some(other) => {
            let finding = format!("{other}: expected true or false");
            notes.refuse(BOTH, "is_causal", finding, "leave it out for the usual mask");
        }
    }
}
