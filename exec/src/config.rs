//! What a file says about running for real: data, target, drafter, optimizer.

mod checkpoint;
mod data;
mod devices;
mod loss;
mod observe;
mod sliding;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub use checkpoint::{BestBy, CheckpointSection};
pub use data::{DataSection, TemplateValue};
pub use devices::DevicesSection;
pub use loss::{ChecksSection, LossKind, LossSection};
pub use observe::{ObserveSection, Tensorboard};

/// The `[exec]` section of a scenario or policy file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecSection {
    /// What is trained on.
    pub data: DataSection,
    /// The frozen target.
    #[serde(default)]
    pub target: TargetSection,
    /// The model being trained.
    #[serde(default)]
    pub drafter: DrafterSection,
    /// How it is trained.
    #[serde(default)]
    pub optimizer: OptimizerSection,
    /// What it minimises.
    #[serde(default)]
    pub loss: LossSection,
    /// How hidden states are looked at before they are trained on.
    #[serde(default)]
    pub checks: ChecksSection,
    /// When checkpoints are written and which stay.
    #[serde(default)]
    pub checkpoint: CheckpointSection,
    /// Who may watch.
    #[serde(default)]
    pub observe: ObserveSection,
    /// Which GPU each worker is on.
    #[serde(default, skip_serializing_if = "DevicesSection::is_empty")]
    pub devices: DevicesSection,
}

/// A value that no run can have, in the parts of its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// Dotted path of the key.
    pub key: &'static str,
    /// The value found.
    pub value: String,
    /// What it must be.
    pub limit: String,
    /// What to do about it.
    pub way_out: &'static str,
}

impl ExecSection {
    /// What is wrong, one entry a key.
    pub fn problems(&self) -> Vec<OutOfRange> {
        let mut problems = self.optimizer.problems();
        problems.extend(self.loss.problems());
        problems.extend(self.checkpoint.problems());
        problems.extend(self.observe.problems());
        problems.extend(self.devices.problems());
        let (target, drafter) = (&self.target, &self.drafter);
        let mut least = vec![
            ("exec.data.max_len", self.data.max_len as usize, 1),
            ("exec.drafter.block_size", drafter.block_size, 2),
            ("exec.drafter.anchors", drafter.anchors, 1),
        ];
        // A model that is loaded brings its own sizes.
        if target.path.is_none() {
            least.extend([
                ("exec.target.hidden_size", target.hidden_size, 1),
                ("exec.target.layers", target.layers, 1),
                ("exec.target.attention_heads", target.attention_heads, 1),
                ("exec.target.key_value_heads", target.key_value_heads, 1),
                ("exec.target.head_dim", target.head_dim, 2),
                ("exec.target.intermediate_size", target.intermediate_size, 1),
            ]);
            problems.extend(spread(
                "exec.target.initializer_range",
                target.initializer_range,
            ));
        }
        if drafter.path.is_none() {
            least.extend([
                ("exec.drafter.layers", drafter.layers, 1),
                ("exec.drafter.attention_heads", drafter.attention_heads, 1),
                ("exec.drafter.key_value_heads", drafter.key_value_heads, 1),
                ("exec.drafter.head_dim", drafter.head_dim, 2),
                (
                    "exec.drafter.intermediate_size",
                    drafter.intermediate_size,
                    1,
                ),
            ]);
            problems.extend(spread(
                "exec.drafter.initializer_range",
                drafter.initializer_range,
            ));
            problems.extend(drafter.sliding_problems());
        }
        let too_small = least.into_iter().filter(|(_, value, low)| value < low);
        problems.extend(too_small.map(|(key, value, low)| OutOfRange {
            key,
            value: value.to_string(),
            limit: format!("must be at least {low}"),
            way_out: "raise it",
        }));
        if !(drafter.gamma >= 0.0 && drafter.gamma.is_finite()) {
            problems.push(OutOfRange {
                key: "exec.drafter.gamma",
                value: drafter.gamma.to_string(),
                limit: "must be finite and at least 0".into(),
                way_out: "leave it at 0 for the usual one",
            });
        }
        problems
    }
}

/// A standard deviation of random weights that is none.
fn spread(key: &'static str, value: f64) -> Option<OutOfRange> {
    (!(value > 0.0 && value.is_finite())).then(|| OutOfRange {
        key,
        value: value.to_string(),
        limit: "must be finite and above 0".into(),
        way_out: "use 0.02, or up to 0.3 for a small model",
    })
}

/// The frozen target: a model directory, or random weights of a size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetSection {
    /// A directory with config.json and safetensors, or a GGUF file; without it, weights are random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Features a token.
    pub hidden_size: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub attention_heads: usize,
    /// Key and value heads.
    pub key_value_heads: usize,
    /// Features a head.
    pub head_dim: usize,
    /// Features of the feed-forward.
    pub intermediate_size: usize,
    /// Layers whose outputs are captured; empty: the usual rule for `captured_layers` of them.
    pub target_layer_ids: Vec<usize>,
    /// How many layers are captured when `target_layer_ids` is empty.
    pub captured_layers: usize,
    /// Standard deviation of random weights. Small models need more than large ones for outputs that differ between tokens.
    pub initializer_range: f64,
    /// Seed of random weights; without it, the file's own seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl Default for TargetSection {
    fn default() -> Self {
        Self {
            path: None,
            hidden_size: 64,
            layers: 6,
            attention_heads: 4,
            key_value_heads: 2,
            head_dim: 16,
            intermediate_size: 160,
            target_layer_ids: Vec::new(),
            captured_layers: 3,
            initializer_range: 0.1,
            seed: None,
        }
    }
}

/// The drafter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DrafterSection {
    /// A directory to start from; without it, weights are random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub attention_heads: usize,
    /// Key and value heads.
    pub key_value_heads: usize,
    /// Features a head.
    pub head_dim: usize,
    /// Features of the feed-forward.
    pub intermediate_size: usize,
    /// Slots of a block, the anchor's own included.
    pub block_size: usize,
    /// Most anchors of a sample.
    pub anchors: usize,
    /// Decay of the position weights; 0: the usual one for the block size.
    pub gamma: f64,
    /// Window of sliding layers, which see no context further back; 0: all layers are full, the one
    /// choice on which vLLM and SGLang agree. (tokens)
    pub sliding_window: usize,
    /// With `sliding_window`: so many of the last layers stay full.
    pub full_layers: usize,
    /// With `sliding_window`: whether slots of sliding layers see only the slots before them in
    /// their block. SGLang serves no others.
    pub sliding_causal: bool,
    /// Standard deviation of random weights.
    pub initializer_range: f64,
    /// The mask token's id; left out: the tokenizer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask_token_id: Option<u32>,
}

impl Default for DrafterSection {
    fn default() -> Self {
        Self {
            path: None,
            layers: 2,
            attention_heads: 4,
            key_value_heads: 2,
            head_dim: 16,
            intermediate_size: 160,
            block_size: 8,
            anchors: 16,
            gamma: 0.0,
            sliding_window: 0,
            full_layers: 1,
            sliding_causal: true,
            initializer_range: 0.02,
            mask_token_id: None,
        }
    }
}

/// AdamW on fp32 masters under a cosine schedule with warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerSection {
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Learning rate at the end.
    pub learning_rate_min: f64,
    /// Share of all steps over which it rises.
    pub warm_up_share: f64,
    /// Largest norm of the gradient.
    pub clip_norm: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

impl Default for OptimizerSection {
    /// The published recipe.
    fn default() -> Self {
        Self {
            learning_rate: 6e-4,
            learning_rate_min: 0.0,
            warm_up_share: 0.04,
            clip_norm: 1.0,
            beta1: 0.9,
            beta2: 0.999,
            weight_decay: 0.0,
        }
    }
}

impl OptimizerSection {
    /// What is wrong, one entry a key.
    pub fn problems(&self) -> Vec<OutOfRange> {
        let peak = self.learning_rate.max(0.0);
        let range = |key, value: f64, low: f64, high: f64, way_out| {
            (!(low..=high).contains(&value)).then(|| OutOfRange {
                key,
                value: value.to_string(),
                limit: format!("must be from {low} to {high}"),
                way_out,
            })
        };
        let rate = "use the published 6e-4, or up to 1e-2 for a small model";
        let moment = "use the usual 0.9 and 0.999";
        let found = [
            range(
                "exec.optimizer.learning_rate",
                self.learning_rate,
                0.0,
                10.0,
                rate,
            ),
            range(
                "exec.optimizer.learning_rate_min",
                self.learning_rate_min,
                0.0,
                peak,
                "leave it at 0, or at most at learning_rate",
            ),
            range(
                "exec.optimizer.warm_up_share",
                self.warm_up_share,
                0.0,
                1.0,
                "use the published 0.04",
            ),
            range("exec.optimizer.beta1", self.beta1, 0.0, BETA_MAX, moment),
            range("exec.optimizer.beta2", self.beta2, 0.0, BETA_MAX, moment),
            range(
                "exec.optimizer.weight_decay",
                self.weight_decay,
                0.0,
                10.0,
                "leave it at 0",
            ),
            (!(self.clip_norm > 0.0 && self.clip_norm.is_finite())).then(|| OutOfRange {
                key: "exec.optimizer.clip_norm",
                value: self.clip_norm.to_string(),
                limit: "must be finite and above 0".into(),
                way_out: "use the published 1.0",
            }),
        ];
        found.into_iter().flatten().collect()
    }
}

/// Largest decay of a moment: at 1 it never takes in a gradient.
const BETA_MAX: f64 = 0.999_999_9;

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> ExecSection {
        ExecSection {
            data: DataSection {
                paths: vec!["text".into()],
                tokenizer: "byte".into(),
                max_len: 64,
                over_long: "skip".into(),
                min_loss_tokens: 2,
                on_bad_line: "stop".into(),
                samples_max: 0,
                samples_seed: 0,
                store: None,
                chat_template: None,
                template_values: Default::default(),
                loss_on: "assistant".into(),
                registry_bytes_max: 0,
            },
            target: TargetSection::default(),
            drafter: DrafterSection::default(),
            optimizer: OptimizerSection::default(),
            checkpoint: CheckpointSection::default(),
            observe: ObserveSection::default(),
            devices: DevicesSection::default(),
            loss: LossSection::default(),
            checks: ChecksSection::default(),
        }
    }

    fn keys(section: &ExecSection) -> Vec<&'static str> {
        let problems = section.problems();
        problems.into_iter().map(|problem| problem.key).collect()
    }

    #[test]
    fn the_defaults_can_run() {
        assert!(keys(&section()).is_empty());
    }

    #[test]
    fn numbers_that_are_none_are_named() {
        let mut wrong = section();
        wrong.optimizer.learning_rate = f64::NAN;
        wrong.optimizer.clip_norm = f64::INFINITY;
        wrong.target.initializer_range = f64::NAN;
        wrong.drafter.initializer_range = -0.02;
        wrong.drafter.gamma = f64::NEG_INFINITY;
        let expected = [
            "exec.optimizer.learning_rate",
            "exec.optimizer.clip_norm",
            "exec.target.initializer_range",
            "exec.drafter.initializer_range",
            "exec.drafter.gamma",
        ];
        assert_eq!(keys(&wrong), expected);
    }

    #[test]
    fn sizes_of_a_model_that_is_loaded_do_not_matter() {
        let mut loaded = section();
        loaded.target.layers = 0;
        assert_eq!(keys(&loaded), ["exec.target.layers"]);
        loaded.target.path = Some("model".into());
        assert!(keys(&loaded).is_empty());
    }

    #[test]
    fn windows_and_losses_that_cannot_be_are_named() {
        let mut wrong = section();
        wrong.drafter.sliding_window = 4;
        wrong.drafter.full_layers = 2;
        wrong.loss.alpha = 1.5;
        wrong.loss.temperature = 0.0;
        wrong.loss.hard_share = f64::NAN;
        let expected = [
            "exec.loss.alpha",
            "exec.loss.temperature",
            "exec.loss.hard_share",
            "exec.drafter.sliding_window",
            "exec.drafter.full_layers",
        ];
        assert_eq!(keys(&wrong), expected);
        wrong = section();
        wrong.drafter.sliding_window = 64;
        assert!(keys(&wrong).is_empty());
        assert_eq!(wrong.drafter.sliding().unwrap().layers, [true, false]);
        assert_eq!(section().drafter.sliding(), None);
    }

    #[test]
    fn a_negative_rate_is_told_once_and_with_its_limits() {
        let mut wrong = section();
        wrong.optimizer.learning_rate = -1.0;
        let problems = wrong.problems();
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].value, "-1");
        assert_eq!(problems[0].limit, "must be from 0 to 10");
    }
}
