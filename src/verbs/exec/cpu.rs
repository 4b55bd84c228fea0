//! The CPU backend: real data, a real target, a drafter trained for real.

use super::checkpoints::Checkpoints;
use super::observer::{Fields, Watchers};
use super::resume::Resumed;
use super::{Ran, Ready, drive};
use crate::failure::{Failure, code};
use crate::output::OutputDir;
use crate::verbs::data;
use exec::backend::cpu::{AppliedStep, Cpu, CpuSetup};
use exec::backend::{Backend, Trainer};
use exec::config::{DevicesSection, DrafterSection, ExecSection, TargetSection};
use exec::data::{Dataset, Tokenizer};
use exec::model::gguf::is_gguf;
use exec::model::{
    Device, Drafter, DrafterConfig, DrafterSize, Target, TargetConfig, default_target_layer_ids,
};
use exec::train::{AdamW, BlockSpec, Optimizer, Schedule, StepReport};
use serde_json::json;
use shared::core::Core;
use shared::record::Digest;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// Bytes of one stored feature: hidden states stay in fp32 on the CPU.
pub(super) const ELEMENT_BYTES: usize = 4;

/// What a run on real models gave beside its record.
pub(crate) struct Trained {
    /// The record.
    pub(crate) ran: Ran,
    /// Every optimizer step's report.
    pub(crate) steps: Vec<StepReport>,
    /// Step, loss and learning rate of what an earlier run did.
    pub(crate) before: Vec<[f64; 3]>,
    /// Where the checkpoint is.
    pub(crate) checkpoint: PathBuf,
}

/// Loads data and models, trains on the CPU and writes `checkpoint/`.
pub(crate) fn train(ready: &Ready, dir: &OutputDir) -> Result<Trained, Failure> {
    let watchers = Watchers::of(ready)?;
    train_with(&Setup::of(ready, ELEMENT_BYTES)?, ready, dir, watchers)
}

/// Trains what was loaded for `ready` on the CPU and writes `checkpoint/`.
pub(super) fn train_with(
    setup: &Setup,
    ready: &Ready,
    dir: &OutputDir,
    watchers: Watchers,
) -> Result<Trained, Failure> {
    let (sender, receiver) = channel::<AppliedStep>();
    let backend = Cpu::new(setup.cpu(ready, sender)?, &ready.case.file.policy)
        .map_err(|e| Failure::usage(format!("--backend cpu: {e}")))?;
    train_on(Arc::new(backend), &receiver, setup, ready, dir, watchers)
}

/// Trains what was loaded for `ready` on a backend that tells of its steps through `receiver`, and writes `checkpoint/`.
pub(super) fn train_on<B: Backend + Trainer>(
    backend: Arc<B>,
    receiver: &Receiver<AppliedStep>,
    setup: &Setup,
    ready: &Ready,
    dir: &OutputDir,
    watchers: Watchers,
) -> Result<Trained, Failure> {
    let mut steps = Vec::new();
    let resumed = ready.resumed.as_ref();
    let before = resumed.map_or_else(Vec::new, |resumed| resumed.curve(dir));
    let mut checkpoints = Checkpoints::of(ready, setup.data_facts(), dir.path());
    let mut on_step = |core: &Core| -> Result<Fields, String> {
        let mut fields = Fields::new();
        for applied in receiver.try_iter() {
            fields = fields_of(&applied.report);
            let told = checkpoints.step(core, backend.as_ref(), &applied.report);
            fields.append(&mut told.map_err(|failure| failure.message)?);
            steps.push(applied.report);
        }
        Ok(fields)
    };
    let ran = drive(ready, Arc::clone(&backend), dir, watchers, &mut on_step)?;
    let checkpoint = checkpoints.finish(&ran.core, backend.as_ref())?;
    Ok(Trained {
        ran,
        steps,
        before,
        checkpoint,
    })
}

fn fields_of(report: &StepReport) -> Fields {
    let mut fields = Fields::new();
    fields.insert("loss".into(), json!(report.loss));
    fields.insert("grad_norm".into(), json!(report.grad_norm));
    fields.insert("learning_rate".into(), json!(report.lr));
    fields.insert("accuracy".into(), json!(report.accuracy));
    fields.insert("accuracy_per_slot".into(), json!(report.accuracy_per_slot));
    fields.insert(
        "expected_accepted_length".into(),
        json!(report.expected_accepted_length),
    );
    fields
}

/// Data and models, loaded and fitting each other.
pub(super) struct Setup {
    data: Arc<Dataset>,
    target: Target,
    drafter: Drafter,
    blocks: BlockSpec,
    section: ExecSection,
}

impl Setup {
    /// Loads what the policy's `[exec]` section names, for hidden states of `element_bytes` a feature. Nothing is written.
    pub(super) fn of(ready: &Ready, element_bytes: usize) -> Result<Self, Failure> {
        let file = &ready.case.file;
        let section = file
            .exec
            .clone()
            .expect("the backend was chosen for this section");
        check_tokenizer(&section)?;
        let data = data::load(&section.data)?;
        let tokenizer = data::tokenizer(&section.data)?;
        let target = match &section.target.path {
            // Only f32 is computed with here; two bytes a feature are another device's.
            Some(path) if element_bytes == 2 => target_for_device(&section.target, path)?,
            Some(_) | None => target(&section.target, &tokenizer, file.seed)?,
        }
        .with_last_hidden(section.loss.objective().needs_last_hidden());
        check_bytes(ready, &target, element_bytes)?;
        check_vocab(&tokenizer, &target)?;
        let drafter = drafter(&section.drafter, &target, &tokenizer, file.seed)?;
        if let Some(resumed) = &ready.resumed {
            must_be_the_same(resumed, &data, &drafter)?;
        }
        let blocks = BlockSpec::of(drafter.config());
        let gamma = section.drafter.gamma;
        let blocks = if gamma > 0.0 {
            blocks.with_gamma(gamma)
        } else {
            blocks
        };
        Ok(Self {
            data: Arc::new(data),
            target,
            drafter,
            blocks,
            section,
        })
    }

    /// Which GPU each worker is on, where the file says it.
    pub(super) fn devices(&self) -> &DevicesSection {
        &self.section.devices
    }

    /// What a checkpoint says of the data.
    fn data_facts(&self) -> serde_json::Value {
        json!({"digest": self.data.digest_hex(), "dropped": self.data.counts().dropped()})
    }

    /// What a backend works with, on the host.
    pub(super) fn cpu(
        &self,
        ready: &Ready,
        steps: std::sync::mpsc::Sender<AppliedStep>,
    ) -> Result<CpuSetup, Failure> {
        let o = &self.section.optimizer;
        let step_size =
            ready.case.file.training.grad_accum * u32::from(ready.case.file.policy.drafters);
        let total = if ready.whole.is_composed() {
            ready.whole.steps.len() as u64
        } else {
            (ready.whole.microbatches.len() as u64).div_ceil(u64::from(step_size))
        };
        let settings = AdamW {
            beta1: o.beta1,
            beta2: o.beta2,
            weight_decay: o.weight_decay,
            norm_max: o.clip_norm,
            ..AdamW::default()
        };
        let schedule = Schedule {
            peak: o.learning_rate,
            minimum: o.learning_rate_min,
            warmup_steps: (o.warm_up_share * total as f64).ceil() as u64,
            total_steps: total,
        };
        let mut optimizer = Optimizer::new(self.drafter.weights().clone(), settings, schedule)
            .map_err(|e| Failure::usage(format!("exec.optimizer: {e}")))?;
        if let Some(resumed) = &ready.resumed {
            let (state, step) = (&resumed.checkpoint.trainer, resumed.checkpoint.step);
            optimizer
                .import(state, step)
                .map_err(|e| Failure::usage(format!("--resume: {e}")))?;
        }
        Ok(CpuSetup {
            plan: Arc::clone(&ready.plan),
            data: Arc::clone(&self.data),
            target: self.target.clone(),
            drafter: self.drafter.clone(),
            optimizer,
            blocks: self.blocks,
            objective: self.section.loss.objective(),
            recompute_every: self.section.checks.recompute_every,
            anchors_max: self.section.drafter.anchors,
            seed: ready.case.file.seed,
            steps: Some(steps),
        })
    }
}

/// A run goes on with the data and the drafter that it had.
fn must_be_the_same(resumed: &Resumed, data: &Dataset, drafter: &Drafter) -> Result<(), Failure> {
    let run: serde_json::Value = serde_json::from_str(&resumed.checkpoint.run).unwrap_or_default();
    let (was, is) = (run["data"].as_str().unwrap_or_default(), data.digest_hex());
    if was != is {
        return Err(Failure::usage(format!(
            "--resume: the samples are others than the checkpoint was trained on ({was}, now {is}); bring them back, or start anew without --resume"
        )));
    }
    if resumed.checkpoint.config != *drafter.config() {
        return Err(Failure::usage(
            "--resume: [exec.drafter] describes another drafter than the checkpoint holds; set it back, or start anew without --resume",
        ));
    }
    Ok(())
}

/// Seeds of the random weights, apart from each other and from the data's.
const TARGET_SEED: u64 = 0x7461_7267;
const DRAFTER_SEED: u64 = 0x6472_6166;

/// The target that a section names; random weights are drawn by the run's `seed`.
pub(crate) fn target(
    section: &TargetSection,
    tokenizer: &Tokenizer,
    seed: u64,
) -> Result<Target, Failure> {
    let usage = |e: &dyn std::fmt::Display| Failure::usage(format!("exec.target: {e}"));
    if let Some(path) = &section.path {
        let ids = captured_of(section, path)?;
        return Target::load(path, &ids, &Device::Cpu).map_err(|e| unusable(&e));
    }
    let config = TargetConfig::from_json(
        json!({
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "hidden_size": section.hidden_size,
            "intermediate_size": section.intermediate_size,
            "num_hidden_layers": section.layers,
            "num_attention_heads": section.attention_heads,
            "num_key_value_heads": section.key_value_heads,
            "head_dim": section.head_dim,
            "vocab_size": tokenizer.vocab_size(),
            "rms_norm_eps": 1e-6,
            "rope_theta": 1e6,
            "max_position_embeddings": 40960,
            "hidden_act": "silu",
            "attention_bias": false,
            "tie_word_embeddings": false,
            "initializer_range": section.initializer_range,
        }),
        "exec.target",
    )
    .map_err(Failure::usage)?;
    let ids = layer_ids(section, section.layers);
    let seed = section.seed.unwrap_or(seed);
    Target::random(config, seed ^ TARGET_SEED, &ids, &Device::Cpu).map_err(|e| usage(&e))
}

/// The target of a folder or file as weights for a GPU, bf16 where they are stored so.
fn target_for_device(section: &TargetSection, path: &Path) -> Result<Target, Failure> {
    let ids = captured_of(section, path)?;
    Target::load_for_device(path, &ids).map_err(|e| unusable(&e))
}

/// The layers to capture of the target at `path`.
fn captured_of(section: &TargetSection, path: &Path) -> Result<Vec<usize>, Failure> {
    if !(is_gguf(path) && path.is_file()) {
        must_exist("exec.target.path", path)?;
    }
    let config = TargetConfig::load(path).map_err(|e| unusable(&e))?;
    Ok(layer_ids(section, config.geometry.num_hidden_layers))
}

fn unusable(error: &dyn std::fmt::Display) -> Failure {
    Failure::data(format!("exec.target.path: {error}"))
}

/// Refuses a path that is no folder; `key` names where it was given.
pub(crate) fn must_exist(key: &str, path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{key}: {}: no such folder; check the path, it must hold config.json and safetensors",
        path.display()
    )))
}

/// Bytes are not what a trained target reads: a GGUF, which carries its tokenizer, must be given it.
pub(crate) fn check_tokenizer(section: &ExecSection) -> Result<(), Failure> {
    match (&section.target.path, section.data.tokenizer_path()) {
        (Some(path), None) if is_gguf(path) => Err(Failure::usage(format!(
            "exec.data.tokenizer = \"byte\": the target {} has a tokenizer of its own; set exec.data.tokenizer = {:?}",
            path.display(),
            path.display().to_string()
        ))),
        _ => Ok(()),
    }
}

fn layer_ids(section: &TargetSection, layers: usize) -> Vec<usize> {
    if section.target_layer_ids.is_empty() {
        default_target_layer_ids(layers, section.captured_layers)
    } else {
        section.target_layer_ids.clone()
    }
}

fn drafter(
    section: &DrafterSection,
    target: &Target,
    tokenizer: &Tokenizer,
    seed: u64,
) -> Result<Drafter, Failure> {
    let usage = |e: &dyn std::fmt::Display| Failure::usage(format!("exec.drafter: {e}"));
    if let Some(path) = &section.path {
        must_exist("exec.drafter.path", path)?;
        return Drafter::load(path, target)
            .map_err(|e| Failure::data(format!("exec.drafter.path: {e}")));
    }
    let mask = section.mask_token_id.or_else(|| tokenizer.mask_id()).ok_or_else(|| {
        usage(&"mask_token_id: this tokenizer has no mask token; name an id that has a row in the target's embedding and never occurs, such as 151669 for Qwen3")
    })?;
    let size = DrafterSize {
        layers: section.layers,
        intermediate_size: section.intermediate_size,
        attention_heads: section.attention_heads,
        key_value_heads: section.key_value_heads,
        head_dim: section.head_dim,
    };
    let mut config = DrafterConfig::for_target(target.config(), size, section.block_size, mask)
        .and_then(|config| config.with_target_layer_ids(target.captured().to_vec()))
        .map_err(|e| usage(&e))?;
    if let Some(sliding) = section.sliding() {
        config = config.with_sliding(sliding).map_err(|e| usage(&e))?;
    }
    config.initializer_range = section.initializer_range;
    Drafter::random(config, seed ^ DRAFTER_SEED, target).map_err(|e| usage(&e))
}

/// The core counts bytes by the policy; they must be those of the real hidden states.
fn check_bytes(ready: &Ready, target: &Target, element_bytes: usize) -> Result<(), Failure> {
    let (layers, last) = (target.captured().len(), target.gives_last_hidden());
    let real = (layers + usize::from(last)) * target.config().geometry.hidden_size * element_bytes;
    let said = ready.case.file.model.bytes_per_token();
    if said.0 == real as u64 {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "model.bytes_per_token: {} bytes, but exec.target hands over {layers} layers{} x {} features x {element_bytes} bytes = {real}; set model.bytes_per_token = {real} and search again",
        said.0,
        if last {
            " and the last hidden state"
        } else {
            ""
        },
        target.config().geometry.hidden_size
    )))
}

/// Refuses a tokenizer with more tokens than the target embeds.
pub(crate) fn check_vocab(tokenizer: &Tokenizer, target: &Target) -> Result<(), Failure> {
    let (tokens, rows) = (
        tokenizer.vocab_size() as usize,
        target.config().geometry.vocab_size,
    );
    if tokens <= rows {
        return Ok(());
    }
    Err(Failure::new(
        code::USAGE,
        format!(
            "exec.data.tokenizer: has {tokens} tokens, the target embeds {rows}; give the target's own tokenizer"
        ),
    ))
}

/// Fingerprint of a trained drafter, by which two runs compare.
pub(crate) fn digest_of(checkpoint: &Path) -> Option<String> {
    let bytes = std::fs::read(checkpoint.join("model.safetensors")).ok()?;
    let mut digest = Digest::default();
    digest.add(&bytes);
    Some(format!("{:016x}", digest.finish()))
}
