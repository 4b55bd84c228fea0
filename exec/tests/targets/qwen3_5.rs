//! Qwen3.5 targets against transformers: a tiny random checkpoint with recorded outputs.

use candle_core::{DType, Device, Tensor};
use exec::model::{Family, LayerKind, Target, TargetConfig};
use serde_json::Value;

use crate::reference::{close, data, distance, expected, forward, rows, states};

const TOLERANCE: f64 = 1e-5;
const DIR: &str = "qwen3_5";
const LAYERS: usize = 5;

fn load(captured: &[usize]) -> Target {
    Target::load(&data(DIR), captured, &Device::Cpu).unwrap()
}

#[test]
fn every_layer_and_the_logits_match() {
    let want = expected(DIR);
    let ids: Vec<usize> = (0..LAYERS).collect();
    let target = load(&ids).with_last_hidden(true);
    let got = forward(&target, &rows(&want));
    let width = want["layer.0"].dims()[2];
    for n in ids {
        let layer = got.features.narrow(2, n * width, width).unwrap();
        close(
            &format!("layer {n}"),
            &layer,
            &want[&format!("layer.{n}")],
            TOLERANCE,
        );
    }
    let last = got.last_hidden.unwrap();
    close("last hidden", &last, &want["last_hidden"], TOLERANCE);
    let logits = target.head(&states(&last)).unwrap();
    close("logits", &logits, &states(&want["logits"]), TOLERANCE);
}

#[test]
fn a_layer_off_by_one_and_a_state_before_the_norm_are_told_apart() {
    let want = expected(DIR);
    for n in 0..LAYERS {
        let own = forward(&load(&[n]), &rows(&want)).features;
        for other in (0..LAYERS).filter(|&other| other != n) {
            assert!(
                distance(&own, &want[&format!("layer.{other}")]) > 0.05,
                "{n} {other}"
            );
        }
        assert!(distance(&own, &want["last_hidden"]) > 0.05, "{n}");
    }
}

#[test]
fn padding_does_not_leak() {
    let whole = rows(&expected(DIR));
    let cut: Vec<Vec<u32>> = vec![
        whole[0].clone(),
        whole[1][..21].to_vec(),
        whole[0][..2].to_vec(),
    ];
    let target = load(&[0, 3, 4]).with_last_hidden(true);
    let together = forward(&target, &cut);
    for (n, row) in cut.iter().enumerate() {
        let alone = forward(&target, std::slice::from_ref(row));
        let real = |x: &Tensor| x.get(n).unwrap().narrow(0, 0, row.len()).unwrap();
        let only = |x: &Tensor| x.get(0).unwrap();
        close(
            "features",
            &real(&together.features),
            &only(&alone.features),
            TOLERANCE,
        );
        let last = [&together, &alone].map(|states| states.last_hidden.clone().unwrap());
        close("last hidden", &real(&last[0]), &only(&last[1]), TOLERANCE);
    }
}

#[test]
fn layers_above_the_highest_captured_are_not_computed() {
    // Weights that would poison every number stand in the last two layers.
    let want = expected(DIR);
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(
        data(DIR).join("config.json"),
        folder.path().join("config.json"),
    )
    .unwrap();
    let file = data(DIR).join("model.safetensors");
    let mut tensors = candle_core::safetensors::load(file, &Device::Cpu).unwrap();
    for (name, tensor) in &mut tensors {
        if name.contains("layers.3.") || name.contains("layers.4.") {
            *tensor = tensor.affine(f64::NAN, 0.0).unwrap();
        }
    }
    candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    let target = Target::load(folder.path(), &[2, 0], &Device::Cpu).unwrap();
    let got = forward(&target, &rows(&want)).features;
    let width = want["layer.0"].dims()[2];
    close(
        "layer 2",
        &got.narrow(2, 0, width).unwrap(),
        &want["layer.2"],
        TOLERANCE,
    );
    close(
        "layer 0",
        &got.narrow(2, width, width).unwrap(),
        &want["layer.0"],
        TOLERANCE,
    );
    let all = forward(&target.with_last_hidden(true), &rows(&want));
    assert!(distance(&all.last_hidden.unwrap(), &want["last_hidden"]).is_nan());
}

#[test]
fn a_session_gives_the_whole_whatever_the_pieces() {
    let want = expected(DIR);
    let ids = &rows(&want)[0];
    let recorded = want["last_hidden"].get(0).unwrap();
    let target = load(&[1, 3]);
    for piece in [1, 5, 64, 83] {
        let mut session = target.session().unwrap();
        let pieces: Vec<Tensor> = ids
            .chunks(piece)
            .map(|part| session.extend(part).unwrap().last_hidden)
            .collect();
        let whole = Tensor::cat(&pieces, 0).unwrap();
        close(&format!("pieces of {piece}"), &whole, &recorded, TOLERANCE);
    }
}

#[test]
fn weights_for_another_device_stay_as_they_are_stored() {
    let captured = [1, 3];
    let (wide, stored) = (
        load(&captured),
        Target::load_for_device(&data(DIR), &captured).unwrap(),
    );
    assert_eq!(stored.weights().len(), wide.weights().len());
    let file = candle_core::safetensors::load(data(DIR).join("model.safetensors"), &Device::Cpu);
    let narrow = file
        .unwrap()
        .values()
        .filter(|t| t.dtype() == DType::BF16)
        .count();
    let kept = stored
        .weights()
        .values()
        .filter(|t| t.dtype() == DType::BF16);
    assert!(kept.count() > 0 && narrow > 0);
    for (name, tensor) in wide.weights() {
        let same = stored.weights()[name].to_dtype(DType::F32).unwrap();
        assert!(distance(&same, tensor) == 0.0, "{name}");
    }
    let batch = crate::reference::batch(&rows(&expected(DIR)));
    let refused = stored.forward(&batch).unwrap_err().to_string();
    assert!(refused.contains("loaded for another device"), "{refused}");
}

fn config() -> Value {
    let text = std::fs::read_to_string(data(DIR).join("config.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_config_may_leave_layer_types_out_and_stand_alone() {
    let whole = TargetConfig::from_json(config(), "whole").unwrap();
    let mut text = config()["text_config"].take();
    text["architectures"] = serde_json::json!(["Qwen3_5ForCausalLM"]);
    assert_eq!(
        TargetConfig::from_json(text.clone(), "alone").unwrap(),
        whole
    );
    text.as_object_mut().unwrap().remove("layer_types");
    assert_eq!(
        TargetConfig::from_json(text.clone(), "interval").unwrap(),
        whole
    );
    text["full_attention_interval"] = 2.into();
    let other = TargetConfig::from_json(text, "other").unwrap();
    let full = (0..LAYERS).filter(|&n| other.layer_kind(n) == LayerKind::FullAttention);
    assert_eq!(full.collect::<Vec<_>>(), [1, 3]);
    assert!(matches!(other.family, Family::Qwen3_5(_)));
    // A quarter of 16 dimensions turns.
    assert_eq!(whole.rotary.rates.len(), 2);
}

#[test]
fn what_is_not_supported_is_named_with_file_key_and_value() {
    let refused = |key: &str, value: Value| {
        let mut json = config();
        json["text_config"][key] = value;
        TargetConfig::from_json(json, "t/config.json")
            .unwrap_err()
            .to_string()
    };
    for (key, value, says) in [
        (
            "layer_types",
            serde_json::json!(["full_attention"]),
            "expected 5 entries",
        ),
        (
            "layer_types",
            serde_json::json!(["sliding", "b", "c", "d", "e"]),
            "only full_attention and",
        ),
        ("attn_output_gate", false.into(), "only true is supported"),
        (
            "linear_num_key_heads",
            3.into(),
            "must divide linear_num_value_heads = 4",
        ),
        ("linear_value_head_dim", 0.into(), "at least 1"),
        ("hidden_act", "gelu".into(), "only \"silu\" is supported"),
    ] {
        let error = refused(key, value);
        let start = format!("t/config.json: text_config.{key} = ");
        assert!(error.starts_with(&start) && error.contains(says), "{error}");
    }
    let mut json = config();
    json["text_config"]["rope_parameters"]["partial_rotary_factor"] = 0.2.into();
    let error = TargetConfig::from_json(json, "f").unwrap_err().to_string();
    assert!(
        error.contains("rope_parameters.partial_rotary_factor = 0.2: turns 3 of 16"),
        "{error}"
    );
    let mut json = config();
    json["architectures"][0] = "Qwen3_5MoeForConditionalGeneration".into();
    let error = TargetConfig::from_json(json, "f").unwrap_err().to_string();
    assert!(error.contains("expected [\"Qwen3ForCausalLM\"]"), "{error}");
}
