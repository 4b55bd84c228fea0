//! Names, shapes and element types of the tensors: 3 + 11 a layer.

use std::collections::BTreeMap;

use safetensors::tensor::Dtype;
use serde_json::Value;

use super::config::Layout;
use super::weight_files::Entry;
use super::{BOTH, Notes, SGLANG, VLLM};

/// Compares what is there with what the config calls for.
pub(super) fn check(
    layout: Option<&Layout>,
    json: &Value,
    entries: &BTreeMap<String, Entry>,
    notes: &mut Notes,
) {
    dtypes(entries, notes);
    let is_second = is_dflash2(json);
    let Some(layout) = layout else {
        let finding = format!("{} tensors; the config does not say which", entries.len());
        notes.refuse(BOTH, "tensors", finding, "mend config.json first");
        return;
    };
    let mut expected = expected(layout);
    if is_second {
        expected.extend(second(layout, json));
    }
    let found = by_native_name(entries, &expected, notes);
    let mut wrong = missing(&expected, &found, notes);
    wrong += misshapen(&expected, &found, layout, notes);
    wrong += unexpected(&expected, &found, json, layout, notes);
    if wrong == 0 {
        let payload: u64 = found.values().map(|entry| entry.size()).sum();
        let count = expected.len();
        let rule = if is_second {
            "3 + 11 a layer, and those of DFlash 2"
        } else {
            "3 + 11 a layer"
        };
        notes.pass(
            "tensors",
            format!("{count} by name and shape ({rule}), {payload} bytes"),
        );
    }
}

fn is_dflash2(json: &Value) -> bool {
    json["architectures"]
        .as_array()
        .is_some_and(|list| list.iter().any(|class| class == "DFlash2DraftModel"))
}

/// Names and shapes of a native drafter.
pub(super) fn expected(l: &Layout) -> BTreeMap<String, Vec<usize>> {
    let (h, q, kv) = (l.hidden, l.heads * l.head_dim, l.kv_heads * l.head_dim);
    let mut shapes = BTreeMap::from([
        ("fc.weight".to_owned(), vec![h, l.features * h]),
        ("hidden_norm.weight".to_owned(), vec![h]),
        ("norm.weight".to_owned(), vec![h]),
    ]);
    for n in 0..l.layers {
        let layer = [
            ("input_layernorm.weight", vec![h]),
            ("post_attention_layernorm.weight", vec![h]),
            ("self_attn.q_proj.weight", vec![q, h]),
            ("self_attn.k_proj.weight", vec![kv, h]),
            ("self_attn.v_proj.weight", vec![kv, h]),
            ("self_attn.o_proj.weight", vec![h, q]),
            ("self_attn.q_norm.weight", vec![l.head_dim]),
            ("self_attn.k_norm.weight", vec![l.head_dim]),
            ("mlp.gate_proj.weight", vec![l.inner, h]),
            ("mlp.up_proj.weight", vec![l.inner, h]),
            ("mlp.down_proj.weight", vec![h, l.inner]),
        ];
        let biases = [
            ("self_attn.q_proj.bias", vec![q]),
            ("self_attn.k_proj.bias", vec![kv]),
            ("self_attn.v_proj.bias", vec![kv]),
            ("self_attn.o_proj.bias", vec![h]),
        ];
        let biases = biases.into_iter().filter(|_| l.has_bias);
        let all = layer.into_iter().chain(biases);
        shapes.extend(all.map(|(name, shape)| (format!("layers.{n}.{name}"), shape)));
    }
    shapes
}

/// What DFlash 2 adds: four a layer and the candidate selector's three.
fn second(l: &Layout, json: &Value) -> Vec<(String, Vec<usize>)> {
    let extra = |key: &str, usual: usize| {
        let said = json["dflash_config"][key].as_u64();
        said.map_or(usual, |said| said.max(1) as usize)
    };
    let (group, rank) = (extra("conv_group_size", 16), extra("selector_rank", 256));
    let mut shapes = vec![
        (
            "candidate_selector.predecessor_codebook".to_owned(),
            vec![l.vocab, rank],
        ),
        (
            "candidate_selector.successor_codebook".to_owned(),
            vec![l.vocab, rank],
        ),
        (
            "candidate_selector.hidden_projection.weight".to_owned(),
            vec![rank, l.hidden],
        ),
    ];
    for n in 0..l.layers {
        for conv in ["attention_conv", "mlp_conv"] {
            let name = |part: &str| format!("layers.{n}.{conv}.{part}");
            shapes.push((name("base_kernel"), vec![2, 2, l.hidden]));
            let rows = 4 * l.hidden / group;
            shapes.push((name("kernel_projection.weight"), vec![rows, l.hidden]));
        }
    }
    shapes
}

fn dtypes(entries: &BTreeMap<String, Entry>, notes: &mut Notes) {
    let is_plain = |dtype: Dtype| matches!(dtype, Dtype::BF16 | Dtype::F16 | Dtype::F32);
    let indices = |name: &str| name.contains("t2d") || name.contains("d2t");
    let odd = entries
        .iter()
        .find(|(name, entry)| !is_plain(entry.dtype) && !indices(name));
    if let Some((name, entry)) = odd {
        let finding = format!("is {:?}; expected BF16, F16 or F32", entry.dtype);
        notes.refuse(
            BOTH,
            name,
            finding,
            "write the weights in bf16; quantised drafters are not judged here",
        );
        return;
    }
    let mut kinds: Vec<Dtype> = entries.values().map(|entry| entry.dtype).collect();
    kinds.sort_unstable();
    kinds.dedup();
    match kinds.as_slice() {
        [] => {}
        [one] => notes.pass("element type", format!("{one:?}")),
        several => {
            let finding = format!("mixed: {several:?}; engines convert to one");
            notes.warn(BOTH, "element type", finding, "write all in bf16");
        }
    }
}

/// Entries without the prefix `model.`, which SGLang takes off and vLLM puts on once more.
fn by_native_name<'a>(
    entries: &'a BTreeMap<String, Entry>,
    expected: &BTreeMap<String, Vec<usize>>,
    notes: &mut Notes,
) -> BTreeMap<&'a str, &'a Entry> {
    let bare = |name: &'a str| {
        name.strip_prefix("model.")
            .filter(|bare| expected.contains_key(*bare))
    };
    let prefixed: Vec<&str> = entries.keys().filter_map(|name| bare(name)).collect();
    if let Some(first) = prefixed.first() {
        let finding = format!(
            "{} names begin with model., such as model.{first}; vLLM adds that itself and then finds nothing",
            prefixed.len()
        );
        notes.refuse(
            VLLM,
            "tensor names",
            finding,
            "write the names without model.",
        );
    }
    entries
        .iter()
        .map(|(name, entry)| (bare(name).unwrap_or(name), entry))
        .collect()
}

fn missing(
    expected: &BTreeMap<String, Vec<usize>>,
    found: &BTreeMap<&str, &Entry>,
    notes: &mut Notes,
) -> usize {
    let absent: Vec<(&String, &Vec<usize>)> = expected
        .iter()
        .filter(|(name, _)| !found.contains_key(name.as_str()))
        .collect();
    for (name, shape) in absent.iter().take(SHOWN_MAX) {
        let finding =
            format!("is missing, expected {shape:?}; SGLang would keep whatever its memory holds");
        notes.refuse(BOTH, *name, finding, "write the whole drafter again");
    }
    rest(absent.len(), "tensors are missing", notes);
    absent.len()
}

fn misshapen(
    expected: &BTreeMap<String, Vec<usize>>,
    found: &BTreeMap<&str, &Entry>,
    layout: &Layout,
    notes: &mut Notes,
) -> usize {
    let mut wrong = 0;
    for (name, shape) in expected {
        let Some(entry) = found
            .get(name.as_str())
            .filter(|entry| entry.shape != *shape)
        else {
            continue;
        };
        wrong += 1;
        if wrong > SHOWN_MAX {
            continue;
        }
        let mut finding = format!(
            "has shape {:?}, the config calls for {shape:?}",
            entry.shape
        );
        let mut way_out = "write the config of the trained model";
        if name == "fc.weight" {
            finding += &format!(
                " ({} captured layers of {} features)",
                layout.features, layout.hidden
            );
            way_out = "list exactly the layers it was trained on in target_layer_ids";
        }
        notes.refuse(BOTH, name, finding, way_out);
    }
    rest(wrong, "tensors have another shape", notes);
    wrong
}

fn unexpected(
    expected: &BTreeMap<String, Vec<usize>>,
    found: &BTreeMap<&str, &Entry>,
    json: &Value,
    layout: &Layout,
    notes: &mut Notes,
) -> usize {
    let extra: Vec<&str> = found
        .keys()
        .copied()
        .filter(|name| !expected.contains_key(*name) && !is_rotary(name))
        .collect();
    let mut unknown = Vec::new();
    for name in &extra {
        match *name {
            "embed_tokens.weight" | "lm_head.weight" => {
                let finding = "is here: vLLM uses it in place of the target's, SGLang leaves it";
                let way_out = "leave it out: a drafter shares its target's";
                notes.warn(BOTH, *name, finding, way_out);
            }
            "t2d" => notes.warn(
                BOTH,
                "t2d",
                "is here and no engine reads it",
                "leave it out",
            ),
            "d2t" => small_vocabulary(json, layout, notes),
            name if name.contains("mask_hidden") => {
                let finding = "vLLM refuses a mask embedding among the tensors";
                let way_out = "put it into mask_embedding.pt, or use the target's row";
                notes.refuse(BOTH, name, finding, way_out);
            }
            name => unknown.push(name),
        }
    }
    for name in unknown.iter().take(SHOWN_MAX) {
        let way_out = "take it out of the file, or mend the config that leaves it out";
        notes.refuse(
            VLLM,
            *name,
            "is no tensor of this architecture: vLLM stops at it",
            way_out,
        );
        notes.refuse(
            SGLANG,
            *name,
            "is no tensor of this architecture: SGLang skips it without a word",
            way_out,
        );
    }
    rest(
        unknown.len(),
        "tensors do not belong to this architecture",
        notes,
    );
    extra.len()
}

/// A drafter with a vocabulary of its own.
fn small_vocabulary(json: &Value, layout: &Layout, notes: &mut Notes) {
    let own = json["draft_vocab_size"].as_u64();
    let finding = format!(
        "maps a vocabulary of the drafter's own ({}) to the target's {}",
        own.map_or_else(|| "size unknown".to_owned(), |size| size.to_string()),
        layout.vocab
    );
    notes.warn(
        VLLM,
        "d2t",
        finding.clone(),
        "needs lm_head.weight beside it",
    );
    let way_out = "train with the target's whole vocabulary";
    notes.refuse(
        SGLANG,
        "d2t",
        finding + "; SGLang drafts from the target's lm_head",
        way_out,
    );
}

/// Caches that old files hold and both engines leave.
fn is_rotary(name: &str) -> bool {
    name.contains("rotary_emb.inv_freq") || name.contains("rotary_emb.cos_cached")
}

/// Tensors named one by one; more are counted.
const SHOWN_MAX: usize = 4;

fn rest(count: usize, what: &str, notes: &mut Notes) {
    if count > SHOWN_MAX {
        let finding = format!("{count} {what} in all");
        notes.refuse(BOTH, "tensors", finding, "see the first ones above");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(hidden: usize, inner: usize) -> Layout {
        Layout {
            hidden,
            inner,
            layers: 5,
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
            vocab: 248_320,
            features: 5,
            has_bias: false,
        }
    }

    fn parameters(layout: &Layout) -> usize {
        let shapes = expected(layout);
        shapes.values().map(|s| s.iter().product::<usize>()).sum()
    }

    #[test]
    fn the_published_sizes_have_the_published_counts() {
        // Drafters of Qwen3-8B, Qwen3-4B and Qwen3.6-27B.
        for (hidden, inner, count) in [
            (4096, 12_288, 1_048_626_432),
            (2560, 9_728, 537_427_200),
            (5120, 17_408, 1_730_213_120),
        ] {
            let layout = layout(hidden, inner);
            assert_eq!(expected(&layout).len(), 58);
            assert_eq!(parameters(&layout), count);
        }
        assert_eq!(2 * parameters(&layout(5120, 17_408)), 3_460_426_240);
    }

    #[test]
    fn the_second_version_adds_its_published_parameters() {
        let layout = layout(5120, 17_408);
        let json = serde_json::json!({});
        let extra = second(&layout, &json);
        assert_eq!(extra.len(), 23);
        let count: usize = extra.iter().map(|(_, s)| s.iter().product::<usize>()).sum();
        assert_eq!(parameters(&layout) + count, 1_924_404_480);
    }
}
