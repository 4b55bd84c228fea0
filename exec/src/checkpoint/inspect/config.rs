//! The keys of `config.json`.

use std::path::Path;

use serde_json::{Map, Value};

use super::{BOTH, InspectError, Notes, SGLANG, VLLM, attention, target_layers};
use crate::checkpoint::CONFIG;

/// What a target must have in common with its drafter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetFacts {
    /// Features a token.
    pub hidden_size: usize,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Decoder layers.
    pub num_hidden_layers: usize,
}

impl TargetFacts {
    /// Reads the config of a target: its folder, or the file itself. A multimodal target's text part counts.
    ///
    /// # Errors
    /// When it cannot be read or lacks a size.
    pub fn read(path: &Path) -> Result<Self, InspectError> {
        let file = if path.is_dir() {
            path.join(CONFIG)
        } else {
            path.to_owned()
        };
        let wrong = |problem: String| InspectError::Target {
            path: file.clone(),
            problem,
        };
        let text = std::fs::read(&file).map_err(|e| wrong(format!("cannot be read: {e}")))?;
        let json: Value =
            serde_json::from_slice(&text).map_err(|e| wrong(format!("is not JSON: {e}")))?;
        let text_part = json.get("text_config").unwrap_or(&json);
        let size = |key: &str| {
            whole(text_part.get(key).unwrap_or(&Value::Null))
                .ok_or_else(|| wrong(format!("{key} is missing or no whole number of at least 1")))
        };
        Ok(Self {
            hidden_size: size("hidden_size")?,
            vocab_size: size("vocab_size")?,
            num_hidden_layers: size("num_hidden_layers")?,
        })
    }
}

/// The sizes that decide every tensor's shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) hidden: usize,
    pub(super) inner: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) vocab: usize,
    /// Captured target layers.
    pub(super) features: usize,
    pub(super) has_bias: bool,
}

/// Parses `config.json`; notes why it cannot.
pub(super) fn read(dir: &Path, notes: &mut Notes) -> Option<Value> {
    let fetch = "fetch or write it again";
    let text = match std::fs::read(dir.join(CONFIG)) {
        Ok(text) => text,
        Err(error) => {
            notes.refuse(BOTH, CONFIG, format!("cannot be read: {error}"), fetch);
            return None;
        }
    };
    match serde_json::from_slice::<Value>(&text) {
        Ok(json) if json.is_object() => Some(json),
        Ok(_) => {
            notes.refuse(BOTH, CONFIG, "is no object of keys", fetch);
            None
        }
        Err(error) => {
            notes.refuse(BOTH, CONFIG, format!("is not valid JSON: {error}"), fetch);
            None
        }
    }
}

/// Checks all keys; the sizes, when all of them are there.
pub(super) fn check(
    json: &Value,
    target: Option<&TargetFacts>,
    notes: &mut Notes,
) -> Option<Layout> {
    let map = json.as_object()?;
    kind(map, notes);
    let sizes = sizes(map, notes);
    numbers(map, notes);
    let dflash = dflash_config(map, notes);
    block_size(map, dflash, notes);
    let layers = sizes.as_ref().map(|sizes| sizes.layers);
    let features = target_layers::check(map, dflash, layers, target, notes);
    if let Some(sizes) = &sizes {
        mask_token(dflash, sizes.vocab, notes);
        attention::check(map, dflash, sizes.layers, notes);
        fits(sizes, target, notes);
    }
    Some(Layout {
        features: features?,
        ..sizes?
    })
}

fn kind(map: &Map<String, Value>, notes: &mut Notes) {
    let classes = map.get("architectures");
    let named = |name: &str| {
        classes
            .and_then(Value::as_array)
            .is_some_and(|list| list.iter().any(|class| class == name))
    };
    let shown = shown(classes);
    if named("DFlashDraftModel") {
        notes.pass("architectures", shown);
    } else if named("DFlash2DraftModel") {
        let way_out = "serve it with a release that lists DFlash2DraftModel";
        notes.warn(
            BOTH,
            "architectures",
            format!("{shown}: only recent releases know DFlash 2"),
            way_out,
        );
    } else {
        let way_out = "set it to [\"DFlashDraftModel\"] if the tensors below are right";
        let finding = format!("{shown}, expected [\"DFlashDraftModel\"]");
        notes.refuse(BOTH, "architectures", finding, way_out);
    }
    match map.get("model_type") {
        Some(Value::String(kind)) if kind == "qwen3" => notes.pass("model_type", "qwen3"),
        Some(Value::String(kind)) => notes.warn(
            BOTH,
            "model_type",
            format!("{kind}: released drafters say qwen3, whose keys are checked here"),
            "set it to qwen3",
        ),
        other => {
            let finding = format!("{}: no config class can be chosen", self::shown(other));
            notes.refuse(BOTH, "model_type", finding, "set it to \"qwen3\"");
        }
    }
    match map.get("hidden_act").filter(|value| !value.is_null()) {
        None => notes.pass("hidden_act", "left out, so silu"),
        Some(act) if act == "silu" => notes.pass("hidden_act", "silu"),
        Some(act) => {
            let finding = format!("{act}: only silu is supported");
            notes.refuse(BOTH, "hidden_act", finding, "train with silu");
        }
    }
}

/// The sizes, without the captured layers. A key that is left out has the default of the config class, which is rarely meant.
fn sizes(map: &Map<String, Value>, notes: &mut Notes) -> Option<Layout> {
    let mut size = |key: &str, default: usize| match map.get(key) {
        None | Some(Value::Null) => {
            let finding = format!("left out: the engines take {default}");
            notes.warn(BOTH, key, finding, "write it down");
            Some(default)
        }
        Some(value) => {
            let found = whole(value);
            if found.is_none() {
                let finding = format!("{value}: expected a whole number of at least 1");
                notes.refuse(BOTH, key, finding, "write the number of the trained model");
            }
            found
        }
    };
    let sizes = [
        size("hidden_size", 4096),
        size("intermediate_size", 22_016),
        size("num_hidden_layers", 32),
        size("num_attention_heads", 32),
        size("num_key_value_heads", 32),
        size("head_dim", 128),
        size("vocab_size", 151_936),
        size("max_position_embeddings", 32_768),
    ];
    let [
        hidden,
        inner,
        layers,
        heads,
        kv_heads,
        head_dim,
        vocab,
        positions,
    ] = sizes;
    let (heads, kv_heads, head_dim) = (heads?, kv_heads?, head_dim?);
    let shape = Layout {
        hidden: hidden?,
        inner: inner?,
        layers: layers?,
        heads,
        kv_heads,
        head_dim,
        vocab: vocab?,
        features: 0,
        has_bias: map.get("attention_bias") == Some(&Value::Bool(true)),
    };
    positions?;
    let mut whole = true;
    if heads % kv_heads != 0 {
        whole = false;
        let finding = format!("{kv_heads} does not divide num_attention_heads = {heads}");
        let way_out = "write the head counts of the trained model";
        notes.refuse(BOTH, "num_key_value_heads", finding, way_out);
    }
    if head_dim % 2 != 0 {
        whole = false;
        let finding = format!("{head_dim} is odd, and rope turns pairs of features");
        let way_out = "write the width of the trained model's heads";
        notes.refuse(BOTH, "head_dim", finding, way_out);
    }
    if whole {
        notes.pass(
            "sizes",
            format!(
                "hidden {}, intermediate {}, {} layers, {heads} heads on {kv_heads} of {head_dim}, vocabulary {}",
                shape.hidden, shape.inner, shape.layers, shape.vocab
            ),
        );
    }
    Some(shape)
}

/// Norm, rope, biases and element type.
fn numbers(map: &Map<String, Value>, notes: &mut Notes) {
    let present = |key: &str| map.get(key).filter(|value| !value.is_null());
    let is_positive = |value: &Value| value.as_f64().is_some_and(|x| x > 0.0 && x.is_finite());
    match present("rms_norm_eps") {
        Some(value) if !is_positive(value) => {
            let finding = format!("{value}: expected a positive number");
            notes.refuse(BOTH, "rms_norm_eps", finding, "the usual one is 1e-6");
        }
        found => notes.pass("rms_norm_eps", shown_or(found, "left out, so 1e-6")),
    }
    let nested = present("rope_parameters").and_then(|rope| rope.get("rope_theta"));
    match present("rope_theta").or(nested) {
        Some(theta) if is_positive(theta) => notes.pass("rope_theta", theta.to_string()),
        Some(theta) => {
            let finding = format!("{theta}: expected a positive number");
            let way_out = "write the base that the drafter was trained with";
            notes.refuse(BOTH, "rope_theta", finding, way_out);
        }
        None => notes.warn(
            BOTH,
            "rope_theta",
            "left out: each engine takes a default of its own",
            "write the base that the drafter was trained with",
        ),
    }
    if let Some(scaling) = present("rope_scaling") {
        let finding = format!("{scaling}: right only if it was trained with scaled positions");
        notes.warn(BOTH, "rope_scaling", finding, "set it to null otherwise");
    }
    let partial = present("partial_rotary_factor").filter(|share| share.as_f64() != Some(1.0));
    if let Some(share) = partial {
        let finding = format!("{share}: SGLang turns the whole head whatever it says");
        let way_out = "leave it out; a drafter keeps full rope even where its target has less";
        notes.warn(BOTH, "partial_rotary_factor", finding, way_out);
    }
    if let Some(bias) = present("attention_bias").filter(|bias| !bias.is_boolean()) {
        let finding = format!("{bias}: expected true or false");
        notes.refuse(BOTH, "attention_bias", finding, "set it to false");
    }
    let dtype = present("dtype").or_else(|| present("torch_dtype"));
    match dtype.and_then(Value::as_str) {
        Some("bfloat16" | "float16" | "float32") => notes.pass("dtype", shown(dtype)),
        _ => notes.warn(
            BOTH,
            "dtype",
            format!("{}: the engines choose one themselves", shown(dtype)),
            "write bfloat16",
        ),
    }
}

fn dflash_config<'a>(
    map: &'a Map<String, Value>,
    notes: &mut Notes,
) -> Option<&'a Map<String, Value>> {
    match map.get("dflash_config") {
        Some(Value::Object(inner)) => Some(inner),
        other => {
            let finding = format!("{}: expected an object", shown(other));
            let way_out = "add dflash_config with mask_token_id and target_layer_ids";
            notes.refuse(BOTH, "dflash_config", finding, way_out);
            None
        }
    }
}

fn block_size(map: &Map<String, Value>, dflash: Option<&Map<String, Value>>, notes: &mut Notes) {
    let inner = dflash.and_then(|inner| inner.get("block_size"));
    let outer = map.get("block_size");
    match (inner.or(outer), outer) {
        (None, _) => notes.warn(
            SGLANG,
            "block_size",
            "left out: SGLang takes 16",
            "write the block size it was trained with",
        ),
        (Some(size), _) if whole(size).is_none_or(|size| size < 2) => {
            let finding = format!("{size}: a block has the anchor and at least one slot to draft");
            let way_out = "write the block size it was trained with";
            notes.refuse(BOTH, "block_size", finding, way_out);
        }
        (Some(size), Some(outer)) if size != outer => {
            let finding = format!("{outer}, but dflash_config.block_size is {size}, which counts");
            notes.warn(BOTH, "block_size", finding, "make them equal");
        }
        (Some(size), _) => notes.pass("block_size", size.to_string()),
    }
}

fn mask_token(dflash: Option<&Map<String, Value>>, vocab: usize, notes: &mut Notes) {
    const KEY: &str = "dflash_config.mask_token_id";
    let way_out = "write an id that has a row in the target's embedding and is never produced";
    let Some(dflash) = dflash else { return };
    match dflash.get("mask_token_id").filter(|id| !id.is_null()) {
        None => {
            notes.refuse(VLLM, KEY, "is missing", way_out);
            let finding = "is missing: SGLang looks for the token <|MASK|>";
            notes.warn(SGLANG, KEY, finding, way_out);
        }
        Some(id) => match id.as_u64() {
            None => {
                let finding = format!("{id}: expected a whole number of at least 0");
                notes.refuse(BOTH, KEY, finding, way_out);
            }
            Some(found) if found >= vocab as u64 => {
                let finding = format!("{found} has no row in a vocabulary of {vocab}");
                notes.refuse(BOTH, KEY, finding, way_out);
            }
            Some(found) => notes.pass(KEY, found.to_string()),
        },
    }
}

/// Drafter and target side by side.
fn fits(sizes: &Layout, target: Option<&TargetFacts>, notes: &mut Notes) {
    let Some(target) = target else { return };
    let pairs = [
        ("hidden_size", sizes.hidden, target.hidden_size),
        ("vocab_size", sizes.vocab, target.vocab_size),
    ];
    for (key, have, want) in pairs {
        if have == want {
            notes.pass(format!("{key} of the target"), want.to_string());
        } else {
            let finding = format!("the drafter has {have}, the target {want}");
            let way_out = "serve it with the target that it was trained for";
            notes.refuse(BOTH, format!("{key} of the target"), finding, way_out);
        }
    }
}

/// A whole number of at least 1.
pub(super) fn whole(value: &Value) -> Option<usize> {
    let number = value.as_u64().filter(|&n| n > 0)?;
    usize::try_from(number).ok()
}

pub(super) fn shown(value: Option<&Value>) -> String {
    shown_or(value, "(missing)")
}

fn shown_or(value: Option<&Value>, missing: &str) -> String {
    value.map_or_else(|| missing.to_owned(), Value::to_string)
}
