//! Drafters in the layouts of other trainers, recognised by name, with the way to the native one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::weight_files::Entry;
use super::{BOTH, Notes, SGLANG, VLLM};

/// Notes a layout that is known and not the native one.
pub(super) fn check(json: &Value, entries: &BTreeMap<String, Entry>, notes: &mut Notes) {
    let class = json["architectures"][0].as_str().unwrap_or_default();
    let has = |part: &str| entries.keys().any(|name| name.contains(part));
    if is_speculators(json) {
        speculators(json, notes);
    }
    if class == "Qwen3DSparkModel" || has("markov_head") {
        let way_out = "if markov_rank is 0, write dflash_config with mask_token_id and target_layer_ids, name DFlashDraftModel and drop embed_tokens and lm_head; else it is no plain DFlash";
        notes.refuse(
            BOTH,
            "layout",
            "is DeepSpec's: flat keys, its own embedding and heads",
            way_out,
        );
    }
    if has("context_proj.") || has("context_norm.") || has("final_norm.") {
        let way_out =
            "rename context_proj to fc, context_norm to hidden_norm and final_norm to norm";
        notes.refuse(
            BOTH,
            "layout",
            "is TorchSpec's: the same tensors by other names",
            way_out,
        );
    }
    if has("candidate_selector.") && class != "DFlash2DraftModel" {
        let way_out = "set architectures to [\"DFlash2DraftModel\"]";
        notes.refuse(
            BOTH,
            "layout",
            "has the tensors of DFlash 2 under another architecture",
            way_out,
        );
    }
    if class.contains("Eagle3") || has("midlayer.") {
        let way_out = "serve it by the engines' EAGLE-3 method";
        notes.refuse(
            BOTH,
            "layout",
            "is an EAGLE-3 drafter, not a DFlash one",
            way_out,
        );
    }
    if has("first_moment.") || entries.keys().any(|name| name.starts_with("weight.")) {
        let way_out = "name the folder with model.safetensors";
        notes.refuse(BOTH, "layout", "is a trainer's state", way_out);
    }
}

/// The native config that a drafter of speculators amounts to, as vLLM rewrites it while it loads; others as they are.
pub(super) fn native(json: Value) -> Value {
    if !is_speculators(&json) {
        return json;
    }
    let mut native = json["transformer_layer_config"].clone();
    if !native.is_object() {
        return json;
    }
    let ids = json["aux_hidden_state_layer_ids"].as_array();
    let below = |id: &Value| id.as_u64().and_then(|id| id.checked_sub(1));
    let ids: Vec<u64> = ids.into_iter().flatten().filter_map(below).collect();
    for (key, value) in [
        ("architectures", json!(["DFlashDraftModel"])),
        ("model_type", json!("qwen3")),
        ("block_size", json["block_size"].clone()),
        ("draft_vocab_size", json["draft_vocab_size"].clone()),
        (
            "dflash_config",
            json!({"mask_token_id": json["mask_token_id"], "target_layer_ids": ids}),
        ),
    ] {
        native[key] = value;
    }
    for key in ["speculators_model_type", "aux_hidden_state_layer_ids"] {
        native[key] = json[key].clone();
    }
    native
}

fn is_speculators(json: &Value) -> bool {
    let is_named = |key: &str| json.get(key).is_some_and(|value| !value.is_null());
    is_named("speculators_model_type") || json["architectures"][0] == "DFlashSpeculator"
}

fn speculators(json: &Value, notes: &mut Notes) {
    let way_out = "lift transformer_layer_config to the top, write dflash_config with mask_token_id and target_layer_ids = aux_hidden_state_layer_ids - 1, name DFlashDraftModel and drop embed_tokens, lm_head, t2d and d2t";
    notes.refuse(
        SGLANG,
        "layout",
        "is that of speculators, which vLLM alone reads",
        way_out,
    );
    let ids = &json["aux_hidden_state_layer_ids"];
    let finding = format!(
        "is that of speculators, which vLLM rewrites while it loads; aux_hidden_state_layer_ids {ids} are one above target_layer_ids. What follows compares with the native layout"
    );
    notes.warn(VLLM, "layout", finding, way_out);
}
