//! A tiny target, a drafter for it and token rows, for tests.

use candle_core::Device;
use serde_json::{Value, json};

use super::{Drafter, DrafterConfig, DrafterSize, PaddedBatch, Sample, Target, TargetConfig, hash};
use crate::train::{BlockPlan, BlockSpec};

pub(crate) const VOCAB: usize = 50;
const MASK_TOKEN: u32 = 49;

pub(crate) fn target_json() -> Value {
    json!({
        "architectures": ["Qwen3ForCausalLM"], "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "vocab_size": VOCAB, "rope_theta": 1e4, "tie_word_embeddings": true,
    })
}

pub(crate) fn target_config() -> TargetConfig {
    TargetConfig::from_json(target_json(), "fixture").unwrap()
}

pub(crate) fn drafter_config() -> DrafterConfig {
    let size = DrafterSize {
        layers: 2,
        intermediate_size: 40,
        attention_heads: 6,
        key_value_heads: 2,
        head_dim: 8,
    };
    DrafterConfig::for_target(&target_config(), size, 4, MASK_TOKEN).unwrap()
}

pub(crate) fn models() -> (Target, Drafter) {
    let config = drafter_config();
    let target =
        Target::random(target_config(), 11, &config.target_layer_ids, &Device::Cpu).unwrap();
    let drafter = Drafter::random(config, 12, &target).unwrap();
    (target, drafter)
}

/// A sample whose tokens and losses look random; the first three tokens bear no loss.
pub(crate) struct Row {
    pub(crate) input_ids: Vec<u32>,
    pub(crate) loss_mask: Vec<bool>,
    pub(crate) anchors: Vec<u32>,
}

pub(crate) fn row(id: u64, tokens: usize, anchors_max: usize) -> Row {
    let word = |at: usize| hash(&[id, at as u64]);
    let loss_mask: Vec<bool> = (0..tokens).map(|at| at > 2 && word(at) % 11 != 0).collect();
    Row {
        input_ids: (0..tokens)
            .map(|at| (word(at) % u64::from(MASK_TOKEN)) as u32)
            .collect(),
        anchors: crate::train::anchors::draw(1, 0, id, &loss_mask, anchors_max),
        loss_mask,
    }
}

/// Pads rows and lays out their blocks.
pub(crate) fn microbatch(rows: &[&Row], padded_tokens: usize) -> (PaddedBatch, BlockPlan) {
    let samples: Vec<Sample<'_>> = rows
        .iter()
        .map(|row| Sample {
            input_ids: &row.input_ids,
            loss_mask: &row.loss_mask,
        })
        .collect();
    let batch = PaddedBatch::new(&samples, padded_tokens).unwrap();
    let anchors: Vec<Vec<u32>> = rows.iter().map(|row| row.anchors.clone()).collect();
    let plan = BlockPlan::new(&batch, &anchors, &BlockSpec::of(&drafter_config())).unwrap();
    (batch, plan)
}
