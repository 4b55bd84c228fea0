//! A good drafter, broken in one way at a time; each way has its own reason.

use std::fs;
use std::path::Path;

use candle_core::{DType, Tensor};
use serde_json::{Value, json};

use super::*;
use crate::checkpoint::{CONFIG, MODEL, write_drafter};
use crate::model::fixture::{drafter_config, models, target_json};
use crate::model::{Tensors, write_tensors};

/// Looks without listening.
fn inspect(dir: &Path, target: Option<&TargetFacts>) -> Result<Inspection, InspectError> {
    super::inspect(dir, target, &mut |_, _| {})
}

#[test]
fn progress_ends_with_every_byte_read() {
    let root = good();
    let mut heard = Vec::new();
    let mut listen = |read, total| heard.push((read, total));
    super::inspect(&root.path().join("drafter"), None, &mut listen).unwrap();
    let (read, total) = *heard.last().unwrap();
    assert_eq!(read, total);
    assert_eq!(heard.len(), 25);
}

/// The folder of a good drafter.
fn good() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let (_, drafter) = models();
    let dir = root.path().join("drafter");
    write_drafter(&dir, drafter.config(), drafter.weights(), DType::BF16).unwrap();
    root
}

fn looked_at(root: &tempfile::TempDir) -> Inspection {
    inspect(&root.path().join("drafter"), None).unwrap()
}

/// The engines that refuse, and every refusal and warning as a line.
fn findings(inspection: &Inspection) -> (Vec<Engine>, String) {
    let refusing = Engine::ALL
        .into_iter()
        .filter(|engine| !inspection.loads(*engine));
    let lines = inspection
        .checks
        .iter()
        .filter(|check| check.severity != Severity::Passed)
        .map(|c| {
            format!(
                "{} {}: {}; {}\n",
                c.severity.name(),
                c.subject,
                c.finding,
                c.way_out
            )
        });
    (refusing.collect(), lines.collect())
}

/// Changes the config of a good drafter and looks at it.
fn with_config(change: impl Fn(&mut Value)) -> (Vec<Engine>, String) {
    let root = good();
    let path = root.path().join("drafter").join(CONFIG);
    let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut json);
    fs::write(&path, json.to_string()).unwrap();
    findings(&looked_at(&root))
}

/// Changes the tensors of a good drafter and looks at it.
fn with_tensors(change: impl Fn(&mut Tensors)) -> (Vec<Engine>, String) {
    let root = good();
    let mut weights = models().1.weights().clone();
    change(&mut weights);
    let dir = root.path().join("drafter");
    write_tensors(&dir.join(MODEL), &weights, DType::BF16, &dir.join(CONFIG)).unwrap();
    findings(&looked_at(&root))
}

fn renamed(tensors: &mut Tensors, from: &str, to: &str) {
    let tensor = tensors.remove(from).unwrap();
    tensors.insert(to.to_owned(), tensor);
}

#[track_caller]
fn refused((engines, text): (Vec<Engine>, String), by: &[Engine], reason: &str) {
    assert_eq!(engines, by, "{text}");
    let found = text
        .lines()
        .any(|line| line.starts_with("refused") && line.contains(reason));
    assert!(found, "{reason:?} is not in:\n{text}");
}

#[track_caller]
fn warned((engines, text): (Vec<Engine>, String), reason: &str) {
    assert_eq!(engines, [], "{text}");
    let found = text
        .lines()
        .any(|line| line.starts_with("warning") && line.contains(reason));
    assert!(found, "{reason:?} is not in:\n{text}");
}

#[test]
fn what_is_written_here_loads_everywhere() {
    let inspection = looked_at(&good());
    assert_eq!(findings(&inspection).0, []);
    let untrained = "warning weights: all 10 norms are exactly 1, as before training; check that this is a trained drafter\n";
    assert_eq!(findings(&inspection).1, untrained);
    let tensors = inspection.checks.iter().find(|c| c.subject == "tensors");
    assert!(tensors.unwrap().finding.starts_with("25 by name and shape"));
}

#[test]
fn keys_of_the_config_are_refused_each_with_its_reason() {
    let both: &[Engine] = &Engine::ALL;
    let set = |key: &'static str, value: Value| with_config(move |json| json[key] = value.clone());
    let nested = |key: &'static str, value: Value| {
        with_config(move |json| json["dflash_config"][key] = value.clone())
    };
    refused(
        set("architectures", json!(["Qwen3ForCausalLM"])),
        both,
        "expected [\"DFlashDraftModel\"]",
    );
    refused(set("model_type", Value::Null), both, "no config class");
    refused(set("hidden_act", json!("gelu")), both, "only silu");
    refused(
        set("hidden_size", json!("32")),
        both,
        "expected a whole number",
    );
    refused(
        set("num_key_value_heads", json!(4)),
        both,
        "4 does not divide num_attention_heads = 6",
    );
    refused(set("rope_theta", json!(-1)), both, "rope_theta: -1");
    refused(
        set("layer_types", json!(["full_attention"])),
        both,
        "1 entries for num_hidden_layers = 2",
    );
    refused(
        set("layer_types", json!(["full_attention", "linear_attention"])),
        both,
        "linear_attention\" is neither",
    );
    refused(
        set("dflash_config", Value::Null),
        both,
        "expected an object",
    );
    refused(
        nested("mask_token_id", json!(50)),
        both,
        "50 has no row in a vocabulary of 50",
    );
    refused(
        nested("block_size", json!(1)),
        both,
        "the anchor and at least one slot",
    );
    refused(
        nested("target_layer_ids", json!([1, 6])),
        both,
        "6 is not below num_target_layers = 6",
    );
    refused(
        nested("target_layer_ids", json!([3, 3])),
        both,
        "names layer 3 twice",
    );
    refused(
        nested("target_layer_ids", json!([1, 2, 3])),
        both,
        "[32, 96] (3 captured layers",
    );
    refused(
        nested("mask_token_id", Value::Null),
        &[Engine::Vllm],
        "mask_token_id: is missing",
    );
    refused(
        set("eagle_aux_hidden_state_layer_ids", json!([1, 3])),
        &[Engine::Vllm],
        "vLLM would read other layers",
    );
}

#[test]
fn keys_that_load_and_may_mean_something_else_are_warned_of() {
    let set = |key: &'static str, value: Value| with_config(move |json| json[key] = value.clone());
    warned(
        set("rope_scaling", json!({"factor": 2})),
        "trained with scaled positions",
    );
    warned(
        set("model_type", json!("llama")),
        "released drafters say qwen3",
    );
    warned(
        with_config(|json| json["dflash_config"]["target_layer_ids"] = json!([2, 4])),
        "look like indices of hidden_states",
    );
    warned(
        with_config(|json| json["dflash_config"]["target_layer_ids"] = json!([3, 1])),
        "is not increasing",
    );
    warned(
        set("is_causal", json!(true)),
        "vLLM lets 2 full layers see backwards only",
    );
    warned(
        with_config(|json| json["dflash_config"]["block_size"] = json!(8)),
        "4, but dflash_config.block_size is 8",
    );
}

#[test]
fn sliding_layers_are_understood_engine_by_engine() {
    let sliding = |types: [&str; 2], change: &dyn Fn(&mut Value)| {
        with_config(|json| {
            json["layer_types"] = json!(types);
            json["sliding_window"] = json!(16);
            json["use_sliding_window"] = json!(true);
            change(json);
        })
    };
    let (all, mixed) = (
        ["sliding_attention"; 2],
        ["sliding_attention", "full_attention"],
    );
    let (engines, text) = sliding(all, &|_| {});
    assert_eq!((engines.len(), text.lines().count()), (0, 1), "{text}");
    warned(sliding(mixed, &|_| {}), "VLLM_USE_V2_MODEL_RUNNER=1");
    warned(
        sliding(all, &|json| json["is_causal"] = json!(false)),
        "false: vLLM lets 2 sliding layers see the whole block, SGLang backwards only",
    );
    let both: &[Engine] = &Engine::ALL;
    refused(
        sliding(all, &|json| json["sliding_window"] = Value::Null),
        both,
        "sliding layers need a window",
    );
    refused(
        sliding(all, &|json| json["use_sliding_window"] = json!(false)),
        both,
        "drops sliding_window",
    );
}

#[test]
fn tensors_are_refused_each_with_its_reason() {
    let both: &[Engine] = &Engine::ALL;
    let zeros =
        |shape: &[usize]| Tensor::zeros(shape, DType::F32, &candle_core::Device::Cpu).unwrap();
    refused(
        with_tensors(|t| drop(t.remove("layers.1.mlp.up_proj.weight"))),
        both,
        "layers.1.mlp.up_proj.weight: is missing, expected [40, 32]",
    );
    refused(
        with_tensors(|t| drop(t.insert("fc.weight".into(), zeros(&[32, 32])))),
        both,
        "fc.weight: has shape [32, 32], the config calls for [32, 64] (2 captured layers of 32 features)",
    );
    refused(
        with_tensors(|t| drop(t.insert("layers.2.input_layernorm.weight".into(), zeros(&[32])))),
        both,
        "SGLang skips it without a word",
    );
    refused(
        with_tensors(|t| drop(t.insert("mask_hidden".into(), zeros(&[32])))),
        both,
        "refuses a mask embedding",
    );
    refused(
        with_tensors(|t| {
            let nan = zeros(&[32]).affine(0.0, f64::NAN).unwrap();
            t.insert("norm.weight".into(), nan);
        }),
        both,
        "norm.weight: 32 of 32 weights are NaN or infinite",
    );
    refused(
        with_tensors(|t| {
            for name in t.keys().cloned().collect::<Vec<_>>() {
                renamed(t, &name, &format!("model.{name}"));
            }
        }),
        &[Engine::Vllm],
        "25 names begin with model.",
    );
    warned(
        with_tensors(|t| drop(t.insert("norm.weight".into(), zeros(&[32])))),
        "norm.weight: every weight is 0",
    );
    warned(
        with_tensors(|t| {
            drop(t.insert(
                "norm.weight".into(),
                zeros(&[32]).affine(0.0, 0.01).unwrap(),
            ))
        }),
        "not by 1 + weight",
    );
    warned(
        with_tensors(|t| drop(t.insert("lm_head.weight".into(), zeros(&[50, 32])))),
        "vLLM uses it in place of the target's",
    );
}

#[test]
fn files_of_other_trainers_are_known_by_name_with_the_way_out() {
    let both: &[Engine] = &Engine::ALL;
    refused(
        with_tensors(|t| {
            renamed(t, "fc.weight", "context_proj.weight");
            renamed(t, "hidden_norm.weight", "context_norm.weight");
            renamed(t, "norm.weight", "final_norm.weight");
        }),
        both,
        "rename context_proj to fc, context_norm to hidden_norm and final_norm to norm",
    );
    refused(
        with_config(|json| json["architectures"] = json!(["Qwen3DSparkModel"])),
        both,
        "is DeepSpec's",
    );
    let selector = "candidate_selector.successor_codebook";
    refused(
        with_tensors(|t| drop(t.insert(selector.into(), t["norm.weight"].clone()))),
        both,
        "set architectures to [\"DFlash2DraftModel\"]",
    );
    let speculators = with_config(|json| {
        let mut inner = json.clone();
        let ids = [1, 3].map(|id| id + 1);
        for key in ["dflash_config", "architectures", "block_size"] {
            inner.as_object_mut().unwrap().remove(key);
        }
        *json = json!({
            "speculators_model_type": "dflash", "architectures": ["DFlashSpeculator"],
            "transformer_layer_config": inner, "block_size": 4, "mask_token_id": 49,
            "aux_hidden_state_layer_ids": ids,
        });
    });
    refused(
        speculators,
        &[Engine::Sglang],
        "that of speculators, which vLLM alone reads",
    );
}

#[test]
fn damaged_files_are_refused_where_they_are_damaged() {
    let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
        let root = good();
        let path = root.path().join("drafter").join(MODEL);
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(&path, bytes).unwrap();
        findings(&looked_at(&root))
    };
    let both: &[Engine] = &Engine::ALL;
    refused(
        damaged(&|bytes| bytes.truncate(bytes.len() - 2)),
        both,
        "is cut short or has bytes too many",
    );
    refused(
        damaged(&|bytes| bytes.truncate(100)),
        both,
        "does not fit in 100",
    );
    refused(damaged(&|bytes| bytes.truncate(5)), both, "hold no header");
    refused(
        damaged(&|bytes| bytes[9] = b'x'),
        both,
        "has a damaged header",
    );
    let root = good();
    fs::write(root.path().join("drafter").join(CONFIG), "{").unwrap();
    refused(findings(&looked_at(&root)), both, "is not valid JSON");
    fs::remove_file(root.path().join("drafter").join(CONFIG)).unwrap();
    refused(
        findings(&looked_at(&root)),
        both,
        "config.json: cannot be read",
    );
}

#[test]
fn a_target_must_fit() {
    let root = good();
    let file = root.path().join("target.json");
    let looked_at = |change: &dyn Fn(&mut Value)| {
        let mut json = json!({"text_config": target_json()});
        change(&mut json["text_config"]);
        fs::write(&file, json.to_string()).unwrap();
        let target = TargetFacts::read(&file).unwrap();
        findings(&inspect(&root.path().join("drafter"), Some(&target)).unwrap())
    };
    assert_eq!(looked_at(&|_| {}).0, []);
    let both: &[Engine] = &Engine::ALL;
    refused(
        looked_at(&|t| t["vocab_size"] = json!(64)),
        both,
        "the drafter has 50, the target 64",
    );
    refused(
        looked_at(&|t| t["hidden_size"] = json!(64)),
        both,
        "the drafter has 32, the target 64",
    );
    refused(
        looked_at(&|t| t["num_hidden_layers"] = json!(7)),
        both,
        "num_target_layers: 6, the target has 7",
    );
    let error = TargetFacts::read(Path::new("gone.json"))
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("gone.json: cannot be read"), "{error}");
}

#[test]
fn shards_are_read_by_their_index() {
    let root = good();
    let dir = root.path().join("drafter");
    fs::remove_file(dir.join(MODEL)).unwrap();
    let weights = models().1.weights().clone();
    let mut map = serde_json::Map::new();
    for (shard, part) in ["a.safetensors", "b.safetensors"].into_iter().enumerate() {
        let mine = weights.iter().enumerate().filter(|(i, _)| i % 2 == shard);
        let mine: Tensors = mine.map(|(_, (n, t))| (n.clone(), t.clone())).collect();
        map.extend(mine.keys().map(|name| (name.clone(), part.into())));
        write_tensors(&dir.join(part), &mine, DType::BF16, &dir.join(CONFIG)).unwrap();
    }
    let index = dir.join("model.safetensors.index.json");
    fs::write(&index, json!({"weight_map": map}).to_string()).unwrap();
    assert_eq!(findings(&looked_at(&root)).0, []);
    map.insert("layers.9.x".into(), "b.safetensors".into());
    fs::write(&index, json!({"weight_map": map}).to_string()).unwrap();
    refused(
        findings(&looked_at(&root)),
        &Engine::ALL,
        "lists 1 tensors that no shard holds, layers.9.x first",
    );
    fs::remove_file(dir.join("b.safetensors")).unwrap();
    refused(
        findings(&looked_at(&root)),
        &Engine::ALL,
        "b.safetensors: cannot be read",
    );
}

#[test]
fn runs_and_steps_are_found_and_nothing_is_no_drafter() {
    let root = good();
    let drafter = root.path().join("drafter");
    let run = root.path().join("run");
    let step = run.join("checkpoint/step-4");
    fs::create_dir_all(step.parent().unwrap()).unwrap();
    fs::rename(&drafter, &step).unwrap();
    assert_eq!(inspect(&run, None).unwrap().dir, step);
    fs::create_dir(run.join("checkpoint/step-3")).unwrap();
    fs::write(run.join("checkpoint/latest"), "step-4\n").unwrap();
    assert_eq!(inspect(&run.join("checkpoint"), None).unwrap().dir, step);
    fs::write(run.join("checkpoint/latest"), "step-9\n").unwrap();
    let found = inspect(&run, None).unwrap();
    assert_eq!((&found.dir, found.loads(Engine::Vllm)), (&step, true));
    assert!(findings(&found).1.contains("step-9, which is not there"));
    assert!(matches!(
        inspect(&drafter, None),
        Err(InspectError::NoFolder { .. })
    ));
    fs::create_dir(&drafter).unwrap();
    assert!(matches!(
        inspect(&drafter, None),
        Err(InspectError::NoDrafter { .. })
    ));
}

#[test]
fn the_shapes_here_are_those_that_the_model_writes() {
    let config = drafter_config();
    let json: Value =
        serde_json::from_slice(&fs::read(good().path().join("drafter").join(CONFIG)).unwrap())
            .unwrap();
    let layout = config::check(&json, None, &mut Notes::default()).unwrap();
    assert_eq!(
        tensors::expected(&layout),
        crate::model::drafter_shapes(&config)
    );
}

#[test]
fn a_written_config_has_the_keys_of_released_drafters() {
    let root = good();
    let text = fs::read(root.path().join("drafter").join(CONFIG)).unwrap();
    let json: serde_json::Map<String, Value> = serde_json::from_slice(&text).unwrap();
    let mut released = [
        "architectures",
        "model_type",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "hidden_act",
        "rms_norm_eps",
        "attention_bias",
        "attention_dropout",
        "rope_theta",
        "rope_scaling",
        "max_position_embeddings",
        "vocab_size",
        "tie_word_embeddings",
        "layer_types",
        "sliding_window",
        "use_sliding_window",
        "max_window_layers",
        "num_target_layers",
        "block_size",
        "dflash_config",
        "dtype",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "initializer_range",
        "use_cache",
        "transformers_version",
    ];
    released.sort_unstable();
    let mut written: Vec<&str> = json.keys().map(String::as_str).collect();
    written.sort_unstable();
    assert_eq!(written, released);
    let mut inner: Vec<&String> = json["dflash_config"].as_object().unwrap().keys().collect();
    inner.sort_unstable();
    assert_eq!(inner, ["block_size", "mask_token_id", "target_layer_ids"]);
}

/// The config of the released drafter of Qwen3.6-27B, with four sliding layers of five.
fn released() -> Value {
    json!({
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": 5120,
        "intermediate_size": 17408, "num_hidden_layers": 5, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "attention_bias": false, "attention_dropout": 0.0, "rope_theta": 10_000_000,
        "rope_scaling": null, "max_position_embeddings": 262_144, "vocab_size": 248_320,
        "tie_word_embeddings": false,
        "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention",
            "sliding_attention", "full_attention"],
        "sliding_window": 2048, "use_sliding_window": true, "max_window_layers": 5,
        "num_target_layers": 64, "block_size": 16,
        "dflash_config": {"mask_token_id": 248_070, "target_layer_ids": [1, 16, 31, 46, 61]},
        "dtype": "bfloat16", "eos_token_id": 248_044, "pad_token_id": 248_044,
    })
}

#[test]
fn the_released_config_passes_and_calls_for_the_released_tensors() {
    let target = TargetFacts {
        hidden_size: 5120,
        vocab_size: 248_320,
        num_hidden_layers: 64,
    };
    let mut notes = Notes::default();
    let layout = config::check(&released(), Some(&target), &mut notes).unwrap();
    let told: Vec<&Check> = notes
        .0
        .iter()
        .filter(|check| check.severity != Severity::Passed)
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (told[0].subject.as_str(), told[0].engines),
        ("layer_types", VLLM)
    );
    assert!(told[0].way_out.contains("VLLM_USE_V2_MODEL_RUNNER=1"));
    let expected = tensors::expected(&layout);
    let weights: usize = expected.values().map(|s| s.iter().product::<usize>()).sum();
    assert_eq!((expected.len(), 2 * weights), (58, 3_460_426_240));
    assert_eq!(expected["fc.weight"], [5120, 25_600]);
    assert_eq!(expected["layers.4.self_attn.o_proj.weight"], [5120, 4096]);
    assert_eq!(expected["layers.0.self_attn.k_norm.weight"], [128]);
}
