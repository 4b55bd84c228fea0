//! GGUF files written here, read back as targets.

use std::collections::BTreeMap;

use candle_core::quantized::gguf_file::{Value, write};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use serde_json::{Value as Json, json};

use super::*;
use crate::model::fixture::{microbatch, row};
use crate::model::{Target, target_shapes, write_tensors};

fn json(architecture: &str) -> Json {
    json!({
        "architectures": [architecture], "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "vocab_size": 50, "rope_theta": 1e4, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
    })
}

fn metadata(architecture: &str) -> BTreeMap<String, Value> {
    let keys = [
        ("embedding_length", 32),
        ("feed_forward_length", 48),
        ("block_count", 2),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("rope.dimension_count", 8),
        ("context_length", 64),
    ];
    let mut map: BTreeMap<String, Value> = keys
        .map(|(key, size)| (format!("{architecture}.{key}"), Value::U32(size)))
        .into();
    let eps = format!("{architecture}.attention.layer_norm_rms_epsilon");
    map.insert(eps, Value::F32(1e-5));
    map.insert(
        "general.architecture".into(),
        Value::String(architecture.into()),
    );
    map
}

/// Rows in the order of llama.cpp: dimension i of the first half beside i of the second.
fn in_pairs(x: &Tensor, head_dim: usize) -> Tensor {
    let (rows, width) = x.dims2().unwrap();
    let split = x
        .reshape((rows / head_dim, 2, head_dim / 2, width))
        .unwrap();
    let paired = split.transpose(1, 2).unwrap().contiguous().unwrap();
    paired.reshape((rows, width)).unwrap()
}

fn save(path: &Path, metadata: &BTreeMap<String, Value>, tensors: &[(String, Tensor)]) {
    let stored: Vec<QTensor> = tensors
        .iter()
        .map(|(_, tensor)| QTensor::quantize(tensor, GgmlDType::F32).unwrap())
        .collect();
    let names = tensors.iter().map(|(name, _)| name.as_str());
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let mut file = File::create(path).unwrap();
    write(
        &mut file,
        &metadata,
        &names.zip(&stored).collect::<Vec<_>>(),
    )
    .unwrap();
}

/// A random target's tensors by both kinds of names.
fn both(architecture: &str, class: &str) -> (Tensors, Vec<(String, Tensor)>) {
    let config = TargetConfig::from_json(json(class), "test").unwrap();
    let ours = crate::model::target::random(&target_shapes(&config), 0.2, 5, &Device::Cpu).unwrap();
    let theirs = ours
        .iter()
        .map(|(name, tensor)| {
            let stored = tensors::stored_name(name);
            let turned = stored.ends_with("attn_q.weight") || stored.ends_with("attn_k.weight");
            match architecture == "llama" && turned {
                true => (stored, in_pairs(tensor, 8)),
                false => (stored, tensor.clone()),
            }
        })
        .collect();
    (ours, theirs)
}

fn features(path: &Path) -> Vec<Vec<f32>> {
    let target = Target::load(path, &[0, 1], &Device::Cpu).unwrap();
    let states = target
        .forward(&microbatch(&[&row(1, 12, 0)], 12).0)
        .unwrap();
    states.features.get(0).unwrap().to_vec2().unwrap()
}

#[test]
fn a_gguf_is_the_target_of_its_safetensors() {
    for (architecture, class) in [("llama", "LlamaForCausalLM"), ("qwen3", "Qwen3ForCausalLM")] {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = both(architecture, class);
        let config = dir.path().join("config.json");
        std::fs::write(&config, json(class).to_string()).unwrap();
        let model = dir.path().join("model.safetensors");
        write_tensors(&model, &ours, DType::F32, &config).unwrap();
        let file = dir.path().join("x.gguf");
        save(&file, &metadata(architecture), &theirs);
        assert_eq!(features(dir.path()), features(&file), "{architecture}");
    }
}

#[test]
fn stored_divisors_slow_the_rope() {
    let dir = tempfile::tempdir().unwrap();
    let (_, mut tensors) = both("llama", "LlamaForCausalLM");
    let divisors = Tensor::new(&[1f32, 1.0, 2.0, 8.0], &Device::Cpu).unwrap();
    tensors.push(("rope_freqs.weight".into(), divisors));
    let path = dir.path().join("x.gguf");
    save(&path, &metadata("llama"), &tensors);
    let config = TargetConfig::load(&path).unwrap();
    let plain = Rotary::new(8, 1e4).rates;
    let want = [plain[0], plain[1], plain[2] / 2.0, plain[3] / 8.0];
    assert_eq!(config.rotary.rates, want);
    features(&path);
}

#[test]
fn what_cannot_be_used_is_named_with_file_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gguf");
    let (_, tensors) = both("llama", "LlamaForCausalLM");
    let refused = |key: &str, value: Value| {
        let mut changed = metadata("llama");
        changed.insert(key.into(), value);
        save(&path, &changed, &tensors);
        let error = Target::load(&path, &[0], &Device::Cpu)
            .unwrap_err()
            .to_string();
        let error = error
            .strip_prefix(&path.display().to_string())
            .map(str::to_owned);
        error.expect("the file comes first")
    };
    let arch = Value::String("mamba".into());
    assert_eq!(
        refused("general.architecture", arch),
        ": general.architecture = \"mamba\": only \"llama\" and \"qwen3\" are supported; give the target as a folder of safetensors"
    );
    let scaling = refused("llama.rope.scaling.type", Value::String("yarn".into()));
    assert!(
        scaling.contains("llama.rope.scaling.type = \"yarn\": scaled rope"),
        "{scaling}"
    );
    let heads = refused("llama.attention.head_count_kv", Value::U32(3));
    assert!(
        heads.contains("num_key_value_heads = 3: must divide"),
        "{heads}"
    );
    let width = refused("llama.feed_forward_length", Value::U32(40));
    assert_eq!(
        width,
        ": tensor blk.0.ffn_down.weight: has shape [32, 48], the metadata say [32, 40]"
    );
    let partial = refused("llama.rope.dimension_count", Value::U32(4));
    assert!(
        partial.contains("dimension_count = 4: only 8 is supported"),
        "{partial}"
    );
}

#[test]
fn missing_foreign_and_damaged_tensors_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gguf");
    let load = || {
        Target::load(&path, &[0], &Device::Cpu)
            .unwrap_err()
            .to_string()
    };
    let (_, tensors) = both("llama", "LlamaForCausalLM");
    let without = |name: &str| {
        let mut left = tensors.clone();
        left.retain(|(stored, _)| stored != name);
        left
    };
    save(&path, &metadata("llama"), &without("blk.1.ffn_up.weight"));
    assert!(load().ends_with("blk.1.ffn_up.weight: is missing; expected shape [48, 32]"));
    save(&path, &metadata("llama"), &without("token_embd.weight"));
    assert!(load().contains("tensor token_embd.weight is missing"));
    let mut more = tensors.clone();
    more.push((
        "blk.0.attn_q.bias".into(),
        Tensor::new(&[1f32], &Device::Cpu).unwrap(),
    ));
    save(&path, &metadata("llama"), &more);
    assert!(load().ends_with("blk.0.attn_q.bias: is not part of this architecture"));
    save(&path, &metadata("llama"), &tensors);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 4096]).unwrap();
    assert!(load().contains("cannot be read: "), "{}", load());
    std::fs::write(&path, b"GGUX").unwrap();
    assert!(
        load().contains("x.gguf: not a valid GGUF file: "),
        "{}",
        load()
    );
    std::fs::remove_file(&path).unwrap();
    assert!(load().starts_with("cannot read "), "{}", load());
}

#[test]
fn the_tokenizer_within_is_read_and_its_lists_must_fit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gguf");
    let (_, tensors) = both("llama", "LlamaForCausalLM");
    let texts =
        |list: &[&str]| Value::Array(list.iter().map(|t| Value::String((*t).into())).collect());
    let mut m = metadata("llama");
    m.insert("tokenizer.ggml.model".into(), Value::String("gpt2".into()));
    m.insert(
        "tokenizer.ggml.tokens".into(),
        texts(&["<e>", "a", "b", "ab"]),
    );
    m.insert("tokenizer.ggml.merges".into(), texts(&["a b"]));
    m.insert("tokenizer.ggml.eos_token_id".into(), Value::U32(0));
    m.insert(
        "tokenizer.chat_template".into(),
        Value::String("{{ x }}".into()),
    );
    let kinds = |list: &[i32]| Value::Array(list.iter().map(|&k| Value::I32(k)).collect());
    m.insert("tokenizer.ggml.token_type".into(), kinds(&[3, 1, 4, 6]));
    save(&path, &m, &tensors);
    let tokenizer = GgufFile::open(&path).unwrap().tokenizer().unwrap();
    use TokenKind::{Control, Normal, Other, UserDefined};
    assert_eq!(tokenizer.kinds, [Control, Normal, UserDefined, Other]);
    assert_eq!(tokenizer.tokens[3], "ab");
    assert_eq!(tokenizer.eos_token_id, Some(0));
    assert_eq!(tokenizer.chat_template.as_deref(), Some("{{ x }}"));

    m.insert("tokenizer.ggml.token_type".into(), kinds(&[3]));
    save(&path, &m, &tensors);
    let error = GgufFile::open(&path)
        .unwrap()
        .tokenizer()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("token_type = (list of 1): expected one a token, 4"),
        "{error}"
    );
    save(&path, &metadata("llama"), &tensors);
    let error = GgufFile::open(&path)
        .unwrap()
        .tokenizer()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("tokenizer.ggml.tokens = (missing)"),
        "{error}"
    );
}
