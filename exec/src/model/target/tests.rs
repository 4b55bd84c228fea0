//! What a target gives for small batches, and how it loads.

use super::*;
use crate::model::fixture::{Row, microbatch, models, row, target_config, target_json};
use crate::model::write_tensors;

fn vectors(states: &HiddenStates) -> Vec<Vec<f32>> {
    states.features.get(0).unwrap().to_vec2().unwrap()
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn features_of_a_random_target_tell_tokens_and_contexts_apart() {
    let (target, _) = models();
    let mut first = row(1, 24, 0);
    first.input_ids[23] = first.input_ids[0];
    let features = vectors(&target.forward(&microbatch(&[&first], 24).0).unwrap());
    for (i, a) in features.iter().enumerate() {
        for (j, b) in features.iter().enumerate().skip(i + 1) {
            let same = first.input_ids[i] == first.input_ids[j];
            let close = cosine(a, b);
            assert!(
                if same { close < 0.9999 } else { close < 0.9 },
                "{i} {j}: {close}"
            );
        }
    }
}

#[test]
fn a_seed_gives_the_same_weights_and_another_seed_others() {
    let embed = |seed| {
        let target = Target::random(target_config(), seed, &[1], &Device::Cpu).unwrap();
        target.embed().to_vec2::<f32>().unwrap()
    };
    assert_eq!(embed(1), embed(1));
    assert_ne!(embed(1), embed(2));
}

#[test]
fn captured_layers_come_in_the_order_asked_for_and_without_the_layers_above() {
    let row = row(1, 12, 0);
    let (batch, _) = microbatch(&[&row], 12);
    let capture = |ids: &[usize], last| {
        let target = Target::random(target_config(), 3, ids, &Device::Cpu).unwrap();
        target.with_last_hidden(last).forward(&batch).unwrap()
    };
    let (forth, back) = (capture(&[0, 3], false), capture(&[3, 0], true));
    for (a, b) in vectors(&forth).iter().zip(vectors(&back)) {
        assert_eq!([&a[32..], &a[..32]].concat(), b);
    }
    assert!(forth.last_hidden.is_none());
    assert_eq!(back.last_hidden.unwrap().dims(), [1, 12, 32]);
}

#[test]
fn later_tokens_do_not_change_earlier_features() {
    let (target, _) = models();
    let whole = row(1, 12, 0);
    let start = Row {
        input_ids: whole.input_ids[..7].to_vec(),
        loss_mask: whole.loss_mask[..7].to_vec(),
        anchors: vec![],
    };
    let of = |row: &Row| vectors(&target.forward(&microbatch(&[row], 12).0).unwrap());
    assert_eq!(of(&whole)[..7], of(&start)[..7]);
}

#[test]
fn shards_and_one_file_load_the_same_tied_target() {
    let tensors = random(&target_shapes(&target_config()), 0.02, 5, &Device::Cpu).unwrap();
    let (one, shards) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for dir in [&one, &shards] {
        std::fs::write(dir.path().join("config.json"), target_json().to_string()).unwrap();
    }
    let write = |path: std::path::PathBuf, tensors: &Tensors| {
        let config = path.with_file_name("config.json");
        write_tensors(&path, tensors, DType::F32, &config).unwrap();
    };
    write(one.path().join("model.safetensors"), &tensors);
    let (mut low, mut map) = (tensors.clone(), serde_json::Map::new());
    let high = low.split_off("model.layers.3");
    for (file, part) in [("low.safetensors", &low), ("high.safetensors", &high)] {
        write(shards.path().join(file), part);
        map.extend(part.keys().map(|name| (name.clone(), file.into())));
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": map}).to_string();
    std::fs::write(shards.path().join("model.safetensors.index.json"), index).unwrap();

    let (batch, _) = microbatch(&[&row(1, 12, 0)], 12);
    let features = |dir: &Path| {
        vectors(
            &Target::load(dir, &[5], &Device::Cpu)
                .unwrap()
                .forward(&batch)
                .unwrap(),
        )
    };
    assert_eq!(features(one.path()), features(shards.path()));

    let mut short = tensors;
    short.remove("model.layers.2.mlp.up_proj.weight");
    write(one.path().join("model.safetensors"), &short);
    let error = Target::load(one.path(), &[5], &Device::Cpu)
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("model.layers.2.mlp.up_proj.weight: is missing; expected shape [48, 32]"),
        "{error}"
    );
}

#[test]
fn tokens_outside_the_vocabulary_are_refused() {
    let (target, _) = models();
    let wild = Row {
        input_ids: vec![1, 50],
        loss_mask: vec![true; 2],
        anchors: vec![],
    };
    let error = target
        .forward(&microbatch(&[&wild], 2).0)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "batch row 0: token 50 is outside the vocabulary of 50"
    );
}
