//! Targets of the Llama family against transformers: tiny random checkpoints with recorded outputs.

use crate::reference::{close, data, distance, expected, forward, rows, states};
use candle_core::Device;
use exec::model::{Target, TargetConfig};

/// Relative L2 norm of what may be apart.
const TOLERANCE: f64 = 1e-5;

#[test]
fn every_layer_and_the_logits_match() {
    for (name, layers) in [("llama/plain", 4), ("llama/llama3", 2)] {
        let (dir, want) = (data(name), expected(name));
        let ids: Vec<usize> = (0..layers).collect();
        let target = Target::load(&dir, &ids, &Device::Cpu).unwrap();
        let got = forward(&target.with_last_hidden(true), &rows(&want));
        let width = want["layer.0"].dims()[2];
        for n in ids {
            let layer = got.features.narrow(2, n * width, width).unwrap();
            close(name, &layer, &want[&format!("layer.{n}")], TOLERANCE);
        }
        let last = got.last_hidden.unwrap();
        close(name, &last, &want["last_hidden"], TOLERANCE);
    }
}

#[test]
fn the_head_gives_the_logits() {
    for name in ["llama/plain", "llama/llama3"] {
        let want = expected(name);
        let target = Target::load(&data(name), &[], &Device::Cpu).unwrap();
        let last = states(&want["last_hidden"]);
        close(
            name,
            &target.head(&last).unwrap(),
            &states(&want["logits"]),
            TOLERANCE,
        );
    }
}

#[test]
fn a_layer_off_by_one_and_a_state_before_the_norm_are_told_apart() {
    let want = expected("llama/plain");
    let capture = |n: usize| {
        let target = Target::load(&data("llama/plain"), &[n], &Device::Cpu).unwrap();
        forward(&target.with_last_hidden(true), &rows(&want))
    };
    // An id names the layer whose output is taken, counted from 0.
    let (own, next) = (capture(1).features, capture(2));
    close("layer 1", &own, &want["layer.1"], TOLERANCE);
    for (name, wrong) in [
        ("layer.0", &own),
        ("layer.2", &own),
        ("layer.1", &next.features),
    ] {
        assert!(distance(wrong, &want[name]) > 0.05, "{name}");
    }
    // The last layer's output is the state before the norm.
    let before = capture(3);
    close("layer 3", &before.features, &want["layer.3"], TOLERANCE);
    assert!(distance(&before.features, &want["last_hidden"]) > 0.05);
    close(
        "after",
        &before.last_hidden.unwrap(),
        &want["last_hidden"],
        TOLERANCE,
    );
}

#[test]
fn scaled_rope_is_not_plain_rope() {
    let dir = data("llama/llama3");
    let text = std::fs::read_to_string(dir.join("config.json")).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let scaled = TargetConfig::from_json(json.clone(), "scaled").unwrap();
    // The older layout of the same keys.
    let theta = json["rope_parameters"]["rope_theta"].take();
    json["rope_scaling"] = json["rope_parameters"].take();
    json["rope_theta"] = theta;
    assert_eq!(
        TargetConfig::from_json(json.clone(), "older").unwrap(),
        scaled
    );
    json["rope_scaling"]["rope_type"] = "default".into();
    let plain = TargetConfig::from_json(json.clone(), "plain").unwrap();
    let ratio: Vec<f64> = (plain.rotary.rates.iter().zip(&scaled.rotary.rates))
        .map(|(plain, scaled)| plain / scaled)
        .collect();
    // Rates 1, 0.1, 0.01 and 0.001 make 10.2, 1.02, 0.1 and 0.01 turns in 64 tokens.
    assert_eq!((ratio[0], ratio[2], ratio[3]), (1.0, 4.0, 4.0));
    assert!(ratio[1] > 3.5 && ratio[1] < 4.0, "{ratio:?}");
    json["rope_scaling"]["rope_type"] = "yarn".into();
    let error = TargetConfig::from_json(json, "x/config.json").unwrap_err();
    let error = error.to_string();
    assert!(
        error.starts_with("x/config.json: rope_scaling.rope_type = \"yarn\": only "),
        "{error}"
    );
}
