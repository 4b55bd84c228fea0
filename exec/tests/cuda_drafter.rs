//! The drafter's training step on a GPU: against a reference case, against the CPU backend, and against itself.
//!
//! Each test passes at once on a machine without a GPU. Tolerances are relative L2 norms for bf16 products with f32 masters, as the
//! reference case was published with. `DFLASH_TEST_FULL=1` says how far each quantity is off.
#![allow(
    clippy::print_stderr,
    reason = "what a run on a GPU measured is worth reading"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::{DType, Device, Tensor, safetensors};
use exec::cuda::drafter::{
    AttentionKernels, CudaDrafter, DrafterLimits, DrafterOptions, Frozen, Given,
};
use exec::cuda::{Buffer, Gpu, Pool, Source, Stream, Tuning, compile, compiler_version};
use exec::model::{
    Drafter, DrafterConfig, DrafterSize, HiddenStates, PaddedBatch, Sample, SlidingAttention,
    Target, TargetConfig, Tensors,
};
use exec::train::{AdamW, BlockPlan, BlockSpec, Contribution, Objective, Optimizer, Schedule};
use half::bf16;
use serde_json::{Value, json};
use shared::id::Bytes;

const ACTIVATIONS: f64 = 3e-2;
const GRADIENTS: f64 = 6e-2;
const WEIGHTS: f64 = 4e-3;

/// A stream of the first GPU, unless there is none.
fn stream() -> Option<Stream> {
    let gpu = Gpu::open(0).ok()?;
    Some(Stream::new(&gpu).unwrap())
}

/// A drafter on the CPU, its twin on the GPU, and memory for features.
struct Twins {
    stream: Stream,
    pool: Arc<Pool>,
    cpu: Drafter,
    gpu: CudaDrafter,
    /// Features on the device stay until the end.
    features: Vec<Buffer<bf16>>,
}

fn options(limits: DrafterLimits, attention: AttentionKernels) -> DrafterOptions {
    DrafterOptions {
        limits,
        objective: Objective::CrossEntropy,
        settings: AdamW::default(),
        schedule: Schedule::constant(6e-4),
        tuning: Tuning::Heuristic,
        attention,
    }
}

fn narrow(tensor: &Tensor) -> Vec<bf16> {
    let flat = tensor.to_dtype(DType::BF16).unwrap().flatten_all().unwrap();
    flat.to_vec1().unwrap()
}

/// The nearest numbers that bf16 has: both sides start from the same.
fn rounded(tensor: &Tensor) -> Tensor {
    tensor
        .to_dtype(DType::BF16)
        .unwrap()
        .to_dtype(DType::F32)
        .unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap();
    flat.to_vec1().unwrap()
}

/// ‖a − b‖ / ‖b‖; infinite when a number is not finite.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |x: f64, y: f64| x + y * y;
    let apart = a.iter().zip(b).map(|(a, b)| a - b).fold(0.0, norm).sqrt();
    let error = apart / b.iter().copied().fold(0.0, norm).sqrt();
    if error.is_nan() { f64::INFINITY } else { error }
}

impl Twins {
    fn new(
        stream: &Stream,
        target: &Target,
        drafter: &Drafter,
        limits: DrafterLimits,
        attention: AttentionKernels,
    ) -> Self {
        Self::with(stream, target, drafter, options(limits, attention))
    }

    fn with(stream: &Stream, target: &Target, drafter: &Drafter, options: DrafterOptions) -> Self {
        let pool = Pool::new(stream.gpu(), Bytes(256 << 20), "a test").unwrap();
        let put = |tensor: &Tensor| {
            let values = narrow(tensor);
            let buffer = pool.buffer(values.len()).unwrap();
            stream.upload(&values, buffer.ptr()).unwrap();
            Arc::new(buffer)
        };
        let frozen = Frozen {
            embed: put(target.embed()),
            lm_head: put(target.lm_head()),
        };
        let weights: Tensors = drafter
            .weights()
            .iter()
            .map(|(n, w)| (n.clone(), rounded(w)))
            .collect();
        let cpu =
            Drafter::from_weights(drafter.config().clone(), weights.clone(), target, "a test")
                .unwrap();
        Self {
            gpu: CudaDrafter::new(stream, drafter.config(), &weights, frozen, &options).unwrap(),
            cpu,
            stream: stream.clone(),
            pool,
            features: Vec::new(),
        }
    }

    /// Puts hidden states [B, S, K·H] on the device; gives the tokens a row.
    fn put(&mut self, states: &HiddenStates) -> usize {
        let features = self.upload(&states.features);
        self.features.push(features);
        states.features.dim(1).unwrap()
    }

    fn upload(&self, tensor: &Tensor) -> Buffer<bf16> {
        let values = narrow(tensor);
        let buffer = self.pool.buffer(values.len()).unwrap();
        self.stream.upload(&values, buffer.ptr()).unwrap();
        buffer
    }

    fn accumulate(&mut self, states: &HiddenStates, plan: &BlockPlan) {
        let tokens = self.put(states);
        let features = self.features.last().unwrap().ptr();
        let last = states.last_hidden.as_ref().map(|last| self.upload(last));
        let given = Given {
            features,
            last_hidden: last.as_ref().map(Buffer::ptr),
            tokens,
        };
        self.gpu.learn(given, plan).unwrap();
        self.features.extend(last);
    }

    /// Hidden states of supervised slots, from the device.
    fn hidden(&mut self, states: &HiddenStates, plan: &BlockPlan) -> Vec<f64> {
        let tokens = self.put(states);
        let features = self.features.last().unwrap().ptr();
        let hidden = self
            .gpu
            .hidden_of_supervised(features, tokens, plan)
            .unwrap();
        hidden.into_iter().map(|x| f64::from(x.to_f32())).collect()
    }
}

/// Collects how far quantities are off, and fails at the end with all that are too far.
struct Report {
    title: String,
    worst: BTreeMap<&'static str, (f64, String)>,
    failures: Vec<String>,
}

impl Report {
    fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            worst: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    fn check(&mut self, kind: &'static str, name: &str, error: f64, limit: f64) {
        let worst = self
            .worst
            .entry(kind)
            .or_insert_with(|| (-1.0, String::new()));
        if error > worst.0 {
            *worst = (error, name.to_owned());
        }
        if error > limit {
            self.failures
                .push(format!("{kind} {name}: {error:.2e} > {limit:.0e}"));
        }
        if std::env::var_os("DFLASH_TEST_FULL").is_some() {
            eprintln!("  {}: {kind} {name} {error:.2e}", self.title);
        }
    }

    fn gradients(&mut self, got: &Tensors, want: &Tensors) {
        assert_eq!(got.len(), want.len());
        for (name, gradient) in want {
            let error = distance(&numbers(&got[name]), &numbers(gradient));
            self.check("gradient", name, error, GRADIENTS);
        }
    }

    fn end(self) {
        let worst: Vec<String> = self
            .worst
            .iter()
            .map(|(kind, (error, name))| format!("{kind} {error:.2e} ({name})"))
            .collect();
        eprintln!("{}: {}", self.title, worst.join(", "));
        assert!(
            self.failures.is_empty(),
            "{}: {}",
            self.title,
            self.failures.join("; ")
        );
    }
}

// ---------------------------------------------------------------- the reference case

/// The case's folder: in the source tree, or under the folder that the test is run in.
fn data(name: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/parity");
    let here = Path::new("exec/tests/data/parity");
    let folder = if built.exists() {
        built.as_path()
    } else {
        here
    };
    folder.join(name)
}

struct Case {
    target: Target,
    drafter: Drafter,
    plans: Vec<BlockPlan>,
    states: Vec<HiddenStates>,
    expected: BTreeMap<String, Tensor>,
    json: Value,
}

fn case() -> Case {
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(data("case.json")).unwrap()).unwrap();
    let ids: Vec<usize> = serde_json::from_value(json["target_layer_ids"].clone()).unwrap();
    let target = Target::load(&data("target"), &ids, &Device::Cpu).unwrap();
    let drafter = Drafter::load(&data("drafter"), &target).unwrap();
    let tensors = |name: &str| -> BTreeMap<String, Tensor> {
        let loaded = safetensors::load(data(name), &Device::Cpu).unwrap();
        loaded.into_iter().collect()
    };
    let (inputs, expected) = (
        tensors("batch.safetensors"),
        tensors("expected_f32.safetensors"),
    );
    let spec = BlockSpec::of(drafter.config());
    let states = |m: usize| HiddenStates {
        features: expected[&format!("mb{m}.features")].clone(),
        last_hidden: None,
    };
    Case {
        plans: (0..2).map(|m| plan(&inputs, m, &spec)).collect(),
        states: (0..2).map(states).collect(),
        target,
        drafter,
        expected,
        json,
    }
}

fn plan(inputs: &BTreeMap<String, Tensor>, m: usize, spec: &BlockSpec) -> BlockPlan {
    let rows = |name: &str| inputs[&format!("mb{m}.{name}")].to_vec2::<i64>().unwrap();
    let lengths = inputs[&format!("mb{m}.lengths")].to_vec1::<i64>().unwrap();
    let (ids, masks) = (rows("input_ids"), rows("loss_mask"));
    let rows_of: Vec<(Vec<u32>, Vec<bool>)> = ids
        .iter()
        .zip(&masks)
        .zip(&lengths)
        .map(|((ids, mask), &n)| {
            let n = n as usize;
            (
                ids[..n].iter().map(|&t| t as u32).collect(),
                mask[..n].iter().map(|&m| m == 1).collect(),
            )
        })
        .collect();
    let samples: Vec<Sample<'_>> = rows_of
        .iter()
        .map(|(input_ids, loss_mask)| Sample {
            input_ids,
            loss_mask,
        })
        .collect();
    let batch = PaddedBatch::new(&samples, ids[0].len()).unwrap();
    let anchors: Vec<Vec<u32>> = rows("anchors")
        .iter()
        .map(|row| row.iter().filter(|&&a| a >= 0).map(|&a| a as u32).collect())
        .collect();
    BlockPlan::new(&batch, &anchors, spec).unwrap()
}

/// Rows of a tensor [.., width] that belong to supervised slots.
fn supervised(tensor: &Tensor, plan: &BlockPlan) -> Vec<f64> {
    let flat = numbers(tensor);
    let width = flat.len() / plan.weights().len();
    let rows = flat.chunks(width).zip(plan.weights());
    rows.filter(|(_, w)| **w > 0.0)
        .flat_map(|(row, _)| row.to_vec())
        .collect()
}

fn parity(attention: AttentionKernels) {
    let Some(stream) = stream() else { return };
    let case = case();
    let limits = DrafterLimits {
        slots_max: 64,
        context_max: 128,
        row_max: 32,
        logits_max: 20,
    };
    let mut twins = Twins::new(&stream, &case.target, &case.drafter, limits, attention);
    let mut report = Report::new(&format!("reference case, {attention:?}"));
    let expected = &case.json["expected_f64"];
    let denominator = expected["denominator"].as_f64().unwrap();
    for (m, (states, plan)) in case.states.iter().zip(&case.plans).enumerate() {
        let hidden = twins.hidden(states, plan);
        let want = supervised(&case.expected[&format!("mb{m}.hidden")], plan);
        report.check(
            "hidden",
            &format!("mb{m}"),
            distance(&hidden, &want),
            ACTIVATIONS,
        );
        let shape = (hidden.len() / 64, 64);
        let hidden: Vec<f32> = hidden.iter().map(|&x| x as f32).collect();
        let logits = case
            .drafter
            .logits(&Tensor::from_vec(hidden, shape, &Device::Cpu).unwrap())
            .unwrap();
        let want = supervised(&case.expected[&format!("mb{m}.logits")], plan);
        report.check(
            "logits",
            &format!("mb{m}"),
            distance(&numbers(&logits), &want),
            ACTIVATIONS,
        );
    }
    for (n, want) in expected["steps"].as_array().unwrap().iter().enumerate() {
        for (states, plan) in case.states.iter().zip(&case.plans) {
            twins.accumulate(states, plan);
        }
        if n == 0 {
            let scaled = |g: &Tensor| g.affine(1.0 / denominator, 0.0).unwrap();
            let got = twins.gpu.gradients().unwrap();
            let got = got
                .iter()
                .map(|(name, g)| (name.clone(), scaled(g)))
                .collect();
            let of = |name: &String| case.expected[&format!("grad.{name}")].clone();
            let want = case
                .drafter
                .weights()
                .keys()
                .map(|n| (n.clone(), of(n)))
                .collect();
            report.gradients(&got, &want);
        }
        let step = twins.gpu.apply().unwrap();
        let off = |got: f64, key: &str| (got / want[key].as_f64().unwrap() - 1.0).abs();
        report.check(
            "loss",
            &format!("step {}", n + 1),
            off(step.loss, "loss"),
            if n == 0 { 5e-3 } else { 3e-2 },
        );
        if n == 0 {
            report.check("norm", "step 1", off(step.grad_norm, "grad_norm"), 1e-2);
        }
        for (got, key) in [
            (step.accuracy, "accuracy"),
            (step.expected_accepted_length, "expected_accepted_length"),
            (step.mean_leading_run, "mean_leading_run"),
        ] {
            report.check(
                "metric",
                key,
                (got - want[key].as_f64().unwrap()).abs(),
                1e-12,
            );
        }
    }
    for (name, weight) in &twins.gpu.weights().unwrap() {
        let want = numbers(&case.expected[&format!("after.{name}")]);
        report.check("weights", name, distance(&numbers(weight), &want), WEIGHTS);
    }
    report.end();
}

#[test]
fn the_reference_case_matches() {
    parity(AttentionKernels::Auto);
}

#[test]
fn the_reference_case_matches_with_portable_attention() {
    parity(AttentionKernels::Portable);
}

// ---------------------------------------------------------------- the CPU backend on other geometries

/// A random geometry with rows of several lengths, some with fewer anchors than others.
struct Scene {
    target: Target,
    drafter: Drafter,
    plans: Vec<BlockPlan>,
    states: Vec<HiddenStates>,
    limits: DrafterLimits,
}

#[derive(Clone, Copy)]
struct Geometry {
    hidden: usize,
    inner: usize,
    layers: usize,
    heads: usize,
    key_heads: usize,
    head_dim: usize,
    slots: usize,
    vocab: usize,
    /// Tokens of the longest row.
    tokens: usize,
    anchors: usize,
}

const LIKE_SMOLLM: Geometry = Geometry {
    hidden: 576,
    inner: 264,
    layers: 2,
    heads: 9,
    key_heads: 3,
    head_dim: 64,
    slots: 16,
    vocab: 1000,
    tokens: 200,
    anchors: 9,
};

const LIKE_QWEN: Geometry = Geometry {
    hidden: 256,
    inner: 512,
    layers: 3,
    heads: 8,
    key_heads: 2,
    head_dim: 128,
    slots: 16,
    vocab: 1003,
    tokens: 330,
    anchors: 14,
};

const WIDE_GROUP: Geometry = Geometry {
    hidden: 128,
    inner: 96,
    layers: 1,
    heads: 16,
    key_heads: 2,
    head_dim: 32,
    slots: 10,
    vocab: 120,
    tokens: 150,
    anchors: 20,
};

/// Numbers that look random, in [0, 1).
fn draws(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn scene(g: Geometry) -> Scene {
    scene_with(g, None)
}

/// The same with sliding layers.
fn scene_with(g: Geometry, sliding: Option<SlidingAttention>) -> Scene {
    let config = TargetConfig::from_json(
        json!({
            "architectures": ["Qwen3ForCausalLM"], "hidden_size": g.hidden, "intermediate_size": 64,
            "num_hidden_layers": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
            "vocab_size": g.vocab, "rope_theta": 1e4, "tie_word_embeddings": false, "initializer_range": 0.05,
        }),
        "a test",
    )
    .unwrap();
    let size = DrafterSize {
        layers: g.layers,
        intermediate_size: g.inner,
        attention_heads: g.heads,
        key_value_heads: g.key_heads,
        head_dim: g.head_dim,
    };
    let mut drafter =
        DrafterConfig::for_target(&config, size, g.slots, g.vocab as u32 - 1).unwrap();
    if let Some(sliding) = sliding {
        drafter = drafter.with_sliding(sliding).unwrap();
    }
    let target = Target::random(config, 5, &drafter.target_layer_ids, &Device::Cpu).unwrap();
    let features = drafter.target_layer_ids.len() * g.hidden;
    let spec = BlockSpec::of(&drafter);
    let (mut random, mut random_last) = (draws(17), draws(23));
    let (mut plans, mut states) = (Vec::new(), Vec::new());
    for lengths in [
        vec![g.tokens, g.tokens / 2, g.tokens - 7],
        vec![g.tokens / 3, 9],
    ] {
        let padded = *lengths.iter().max().unwrap() + 3;
        let rows: Vec<(Vec<u32>, Vec<bool>)> = lengths
            .iter()
            .map(|&n| {
                let ids = (0..n)
                    .map(|_| (random() * (g.vocab - 1) as f64) as u32)
                    .collect();
                (ids, (0..n).map(|at| at > 4 && random() > 0.1).collect())
            })
            .collect();
        let samples: Vec<Sample<'_>> = rows
            .iter()
            .map(|(input_ids, loss_mask)| Sample {
                input_ids,
                loss_mask,
            })
            .collect();
        let batch = PaddedBatch::new(&samples, padded).unwrap();
        let anchors: Vec<Vec<u32>> = rows
            .iter()
            .enumerate()
            .map(|(row, (_, mask))| exec::train::anchors::draw(3, 0, row as u64, mask, g.anchors))
            .collect();
        plans.push(BlockPlan::new(&batch, &anchors, &spec).unwrap());
        let count = rows.len() * padded * features;
        let values: Vec<f32> = (0..count)
            .map(|_| (random() + random() + random() - 1.5) as f32 * 2.0)
            .collect();
        let tensor =
            Tensor::from_vec(values, (rows.len(), padded, features), &Device::Cpu).unwrap();
        let count = rows.len() * padded * g.hidden;
        let values: Vec<f32> = (0..count)
            .map(|_| (random_last() * 4.0 - 2.0) as f32)
            .collect();
        let last = Tensor::from_vec(values, (rows.len(), padded, g.hidden), &Device::Cpu).unwrap();
        states.push(HiddenStates {
            features: rounded(&tensor),
            last_hidden: Some(rounded(&last)),
        });
    }
    Scene {
        drafter: Drafter::random(drafter, 6, &target).unwrap(),
        limits: DrafterLimits {
            slots_max: 3 * g.anchors * g.slots,
            context_max: 3 * (g.tokens + 3),
            row_max: g.tokens + 3,
            logits_max: 256,
        },
        target,
        plans,
        states,
    }
}

impl Scene {
    /// What the CPU accumulates over all microbatches.
    fn on_cpu(&self, drafter: &Drafter) -> Contribution {
        let mut parts = self
            .states
            .iter()
            .zip(&self.plans)
            .map(|(s, p)| drafter.accumulate(s, p).unwrap());
        let mut total = parts.next().unwrap();
        parts.for_each(|part| total.add(part).unwrap());
        total
    }

    fn twins(&self, stream: &Stream, attention: AttentionKernels) -> Twins {
        Twins::new(stream, &self.target, &self.drafter, self.limits, attention)
    }

    fn accumulate(&self, twins: &mut Twins) {
        for (states, plan) in self.states.iter().zip(&self.plans) {
            twins.accumulate(states, plan);
        }
    }
}

fn against_cpu(name: &str, g: Geometry, attention: AttentionKernels) {
    scene_against_cpu(name, g, None, attention);
}

fn scene_against_cpu(
    name: &str,
    g: Geometry,
    sliding: Option<SlidingAttention>,
    attention: AttentionKernels,
) {
    let Some(stream) = stream() else { return };
    let scene = scene_with(g, sliding);
    let mut twins = scene.twins(&stream, attention);
    let want = scene.on_cpu(&twins.cpu);
    let mut report = Report::new(&format!("{name}, {attention:?}"));
    for (m, (states, plan)) in scene.states.iter().zip(&scene.plans).enumerate() {
        let hidden = supervised(&twins.cpu.hidden(states, plan).unwrap(), plan);
        let got = twins.hidden(states, plan);
        report.check(
            "hidden",
            &format!("mb{m}"),
            distance(&got, &hidden),
            ACTIVATIONS,
        );
    }
    scene.accumulate(&mut twins);
    report.gradients(&twins.gpu.gradients().unwrap(), &want.gradients);
    let loss = twins.gpu.loss_sum().unwrap();
    report.check("loss", "sum", (loss / want.loss_sum - 1.0).abs(), 5e-3);
    assert!((twins.gpu.sums().weight_sum - want.weight_sum).abs() < 1e-9);
    assert_eq!(twins.gpu.sums().supervised, want.tally.supervised);
    report.end();
}

#[test]
fn a_geometry_like_smollm_matches_the_cpu() {
    against_cpu("like SmolLM2", LIKE_SMOLLM, AttentionKernels::Auto);
    against_cpu("like SmolLM2", LIKE_SMOLLM, AttentionKernels::Portable);
}

#[test]
fn a_geometry_like_qwen_matches_the_cpu() {
    against_cpu("like Qwen3", LIKE_QWEN, AttentionKernels::Auto);
    against_cpu("like Qwen3", LIKE_QWEN, AttentionKernels::Portable);
}

#[test]
fn wide_groups_and_odd_blocks_match_the_cpu() {
    against_cpu("wide group", WIDE_GROUP, AttentionKernels::Auto);
    against_cpu("wide group", WIDE_GROUP, AttentionKernels::Portable);
}

#[test]
fn sliding_layers_match_the_cpu() {
    for (name, g, full, window, causal) in [
        ("causal window", LIKE_QWEN, 1, 40, true),
        ("wide window", LIKE_SMOLLM, 0, 150, false),
        ("narrow window", WIDE_GROUP, 0, 10, true),
    ] {
        let sliding = SlidingAttention::all_but_last(g.layers, full, window, causal);
        for attention in [AttentionKernels::Auto, AttentionKernels::Portable] {
            scene_against_cpu(name, g, Some(sliding.clone()), attention);
        }
    }
}

// ---------------------------------------------------------------- other objectives

#[test]
fn other_objectives_match_the_cpu() {
    let Some(stream) = stream() else { return };
    let distillation = |temperature, hard_share| Objective::Distillation {
        temperature,
        hard_share,
    };
    for (name, g) in [
        ("like Qwen3", LIKE_QWEN),
        ("like SmolLM2", LIKE_SMOLLM),
        ("wide group", WIDE_GROUP),
    ] {
        let scene = scene(g);
        for objective in [
            Objective::CrossEntropy,
            Objective::D_PACE,
            Objective::DPace { alpha: 0.0 },
            Objective::DISTILLATION,
            distillation(2.0, 0.3),
            distillation(0.5, 1.0),
        ] {
            let options = DrafterOptions {
                objective,
                ..options(scene.limits, AttentionKernels::Auto)
            };
            let mut twins = Twins::with(&stream, &scene.target, &scene.drafter, options);
            let parts = scene.states.iter().zip(&scene.plans);
            let mut parts = parts.map(|(states, plan)| {
                let cpu = &twins.cpu;
                cpu.accumulate_for(&objective, states, plan).unwrap()
            });
            let mut want = parts.next().unwrap();
            parts.for_each(|part| want.add(part).unwrap());
            scene.accumulate(&mut twins);
            let mut report = Report::new(&format!("{name}, {objective:?}"));
            report.gradients(&twins.gpu.gradients().unwrap(), &want.gradients);
            let loss = twins.gpu.loss_sum().unwrap();
            report.check("loss", "sum", (loss / want.loss_sum - 1.0).abs(), 5e-3);
            assert!((twins.gpu.sums().weight_sum / want.weight_sum - 1.0).abs() < 1e-9);
            report.end();
        }
    }
}

#[test]
fn a_distillation_without_a_teacher_is_refused() {
    let Some(stream) = stream() else { return };
    let scene = scene(WIDE_GROUP);
    let options = DrafterOptions {
        objective: Objective::DISTILLATION,
        ..options(scene.limits, AttentionKernels::Auto)
    };
    let mut twins = Twins::with(&stream, &scene.target, &scene.drafter, options);
    let tokens = twins.put(&scene.states[0]);
    let features = twins.features[0].ptr();
    let refused = twins.gpu.accumulate(features, tokens, &scene.plans[0]);
    let message = refused.unwrap_err().to_string();
    assert!(message.starts_with("distillation reads"), "{message}");
}

// ---------------------------------------------------------------- against itself

fn bits(tensors: &Tensors) -> Vec<u32> {
    let of = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    tensors.values().flat_map(of).map(f32::to_bits).collect()
}

#[test]
fn two_runs_give_the_same_bits() {
    let Some(stream) = stream() else { return };
    for g in [LIKE_QWEN, LIKE_SMOLLM] {
        let scene = scene(g);
        let run = || {
            let mut twins = scene.twins(&stream, AttentionKernels::Auto);
            let reports: Vec<_> = (0..2)
                .map(|_| {
                    scene.accumulate(&mut twins);
                    twins.gpu.apply().unwrap()
                })
                .collect();
            (bits(&twins.gpu.export().unwrap()), reports)
        };
        let (first, second) = (run(), run());
        assert!(first.0 == second.0, "weights or moments differ");
        assert_eq!(first.1, second.1);
    }
}

#[test]
fn the_step_is_the_cpu_optimizers_step_and_its_state_is_interchangeable() {
    let Some(stream) = stream() else { return };
    let scene = scene(WIDE_GROUP);
    let mut twins = scene.twins(&stream, AttentionKernels::Auto);
    let weights = twins.gpu.weights().unwrap();
    let mut optimizer =
        Optimizer::new(weights, AdamW::default(), Schedule::constant(6e-4)).unwrap();
    for step in 1..=3u64 {
        scene.accumulate(&mut twins);
        // The CPU's optimizer takes the GPU's gradients, so that only the step itself is compared.
        let mut total = scene.on_cpu(&twins.cpu);
        total.gradients = twins.gpu.gradients().unwrap();
        total.loss_sum = twins.gpu.loss_sum().unwrap();
        let (got, want) = (twins.gpu.apply().unwrap(), optimizer.apply(total).unwrap());
        assert!(
            (got.grad_norm / want.grad_norm - 1.0).abs() < 1e-5,
            "{got:?} {want:?}"
        );
        assert_eq!((got.step, got.lr, got.loss), (step, want.lr, want.loss));
        let (got, want) = (twins.gpu.export().unwrap(), optimizer.export());
        assert_eq!(got.len(), want.len());
        for (name, tensor) in &want {
            let error = distance(&numbers(&got[name]), &numbers(tensor));
            // The CPU sums the norm's rows in f32, which moves the clip by some 1e-6 and second moments by twice that.
            assert!(error < 4e-5, "{name}: {error:.2e}");
        }
        // Half way, the state moves from one to the other and back.
        twins.gpu.import(&want, step).unwrap();
        assert_eq!(bits(&twins.gpu.export().unwrap()), bits(&want));
        optimizer
            .import(&twins.gpu.export().unwrap(), step)
            .unwrap();
    }
    let mut damaged = optimizer.export();
    damaged.remove("weight.norm.weight");
    let error = twins.gpu.import(&damaged, 3).unwrap_err().to_string();
    assert_eq!(error, "optimizer state: tensor norm.weight is missing");
}

#[test]
fn two_drafters_sum_to_what_one_does() {
    let Some(stream) = stream() else { return };
    let scene = scene(LIKE_SMOLLM);
    let mut whole = scene.twins(&stream, AttentionKernels::Auto);
    scene.accumulate(&mut whole);
    let other_stream = Stream::new(stream.gpu()).unwrap();
    let mut a = scene.twins(&stream, AttentionKernels::Auto);
    let mut b = scene.twins(&other_stream, AttentionKernels::Auto);
    a.accumulate(&scene.states[0], &scene.plans[0]);
    b.accumulate(&scene.states[1], &scene.plans[1]);
    a.gpu.add_from(&mut b.gpu).unwrap();
    let (sum, want) = (a.gpu.gradients().unwrap(), whole.gpu.gradients().unwrap());
    for (name, gradient) in &want {
        let error = distance(&numbers(&sum[name]), &numbers(gradient));
        assert!(error < 1e-5, "{name}: {error:.2e}");
    }
    let (of_two, of_one) = (a.gpu.apply().unwrap(), whole.gpu.apply().unwrap());
    assert_eq!(of_two.accuracy_per_slot, of_one.accuracy_per_slot);
    assert!((of_two.loss / of_one.loss - 1.0).abs() < 1e-12);
    b.gpu.take_weights(&a.gpu).unwrap();
    assert_eq!(
        bits(&b.gpu.weights().unwrap()),
        bits(&a.gpu.weights().unwrap())
    );
    assert!(b.gpu.apply().is_err(), "its step was taken over");
}

#[test]
fn kernels_of_all_geometries_compile() {
    if let Err(error) = compiler_version() {
        let must = std::env::var("DFLASH_NVRTC").is_ok_and(|value| value == "1");
        assert!(!must, "DFLASH_NVRTC=1 and {error}");
        return;
    }
    for g in [LIKE_SMOLLM, LIKE_QWEN, WIDE_GROUP] {
        let sliding = SlidingAttention::all_but_last(g.layers, 0, 64, true);
        let config = scene_with(g, Some(sliding)).drafter.config().clone();
        for (file, text) in CudaDrafter::kernel_texts(&config).unwrap() {
            let image = compile(&Source { file, text: &text }, "sm_90a").unwrap();
            assert!(!image.is_empty(), "{file}");
        }
    }
}

#[test]
fn geometries_that_the_kernels_do_not_cover_are_refused() {
    let g = Geometry {
        head_dim: 48,
        ..WIDE_GROUP
    };
    let error = CudaDrafter::kernel_texts(scene(g).drafter.config()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "drafter config: head_dim = 48: CUDA kernels need 16, 32, 64 or 128; use --backend cpu"
    );
}
