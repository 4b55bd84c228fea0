//! Real models on the CPU under the driver: the loss falls, and two runs give the same bytes whatever their threads do.

mod common;

use candle_core::Device;
use common::{GRAD_ACCUM, Recorder};
use exec::backend::Trainer;
use exec::backend::cpu::{AppliedStep, Cpu, CpuSetup};
use exec::checkpoint::Checkpoint;
use exec::data::{ByteTokenizer, Dataset, Rules, Tokenizer, load};
use exec::driver::{Driver, Options, RunReport};
use exec::error::DriverError;
use exec::model::{
    Drafter, DrafterConfig, DrafterSize, SlidingAttention, Target, TargetConfig, Tensors,
};
use exec::train::{AdamW, BlockSpec, Objective, Optimizer, Schedule, StepReport};
use serde_json::json;
use shared::core::Core;
use shared::draw::Seed;
use shared::id::{Bytes, DrafterId};
use shared::plan::{Edges, FormSpec, Limits, MixRule, OrderSpec, Ordering, OverLong, Plan, Tail};
use shared::policy::{Barrier, PRESETS, Policy, Queue, preset};
use shared::time::Span;
use std::sync::Arc;
use std::sync::mpsc::channel;

const EDGES: [u32; 3] = [12, 20, 28];

fn policy(name: &str) -> Policy {
    let policy = Policy {
        targets: 2,
        drafters: 2,
        mix_step_min: 2,
        ..preset(name).unwrap()
    };
    // The smallest gates that hold a whole step.
    let gate = |mark: Option<u32>| mark.map(|_| 64);
    Policy {
        gate_high: gate(policy.gate_high),
        gate_low: gate(policy.gate_low),
        poll: Span::from_ms(1),
        ..policy
    }
}

/// Short samples of a few periodic patterns, which a small drafter can learn.
fn data() -> Arc<Dataset> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("patterns.jsonl");
    let lines = (0..48_usize).map(|i| {
        let length = 6 + i * 7 % 22;
        let text: String = (0..length)
            .map(|at| char::from(b'a' + ((at * (1 + i % 3) + i % 2) % 5) as u8))
            .collect();
        json!({ "text": text }).to_string() + "\n"
    });
    std::fs::write(&path, lines.collect::<String>()).unwrap();
    let rules = Rules::new(*EDGES.last().unwrap());
    Arc::new(load(&[path], &Tokenizer::byte(), &rules).unwrap())
}

const LIMITS: Limits = Limits {
    token_budget: 84,
    batch_max: 4,
};

fn plan(data: &Dataset, policy: &Policy, epochs: u16) -> Arc<Plan> {
    plan_of(data, policy, epochs, LIMITS, GRAD_ACCUM)
}

fn plan_of(
    data: &Dataset,
    policy: &Policy,
    epochs: u16,
    limits: Limits,
    grad_accum: u32,
) -> Arc<Plan> {
    let form = FormSpec {
        edges: Edges::given(EDGES.to_vec()).unwrap(),
        limits,
        over_long: OverLong::Refuse,
        epochs,
        bytes_per_token: Bytes(256),
        seed: Seed(4),
    };
    let composed = policy.queue == Queue::Composed;
    let order = OrderSpec {
        ordering: if composed {
            Ordering::Composed(policy.fill)
        } else {
            Ordering::Shuffled
        },
        drafters: policy.drafters,
        grad_accum,
        tail: Tail::Short,
        mix: MixRule {
            step_min: policy.mix_step_min,
            window_min: 0,
        },
        assign: composed,
        train_cost: EDGES
            .iter()
            .map(|edge| Span::from_ms((*edge).into()))
            .collect(),
        seed: Seed(4),
    };
    Arc::new(Plan::form_and_order(&data.lengths(), &form, &order).unwrap())
}

fn models() -> (Target, Drafter) {
    let json = json!({
        "architectures": ["Qwen3ForCausalLM"], "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 6, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
        "vocab_size": ByteTokenizer::VOCAB_SIZE, "rope_theta": 1e4, "tie_word_embeddings": true,
        "initializer_range": 0.3,
    });
    let target = TargetConfig::from_json(json, "test").unwrap();
    let size = DrafterSize {
        layers: 1,
        intermediate_size: 24,
        attention_heads: 2,
        key_value_heads: 1,
        head_dim: 8,
    };
    let config = DrafterConfig::for_target(&target, size, 4, ByteTokenizer::MASK).unwrap();
    let target = Target::random(target, 1, &config.target_layer_ids, &Device::Cpu).unwrap();
    let drafter = Drafter::random(config, 2, &target).unwrap();
    (target, drafter)
}

struct Ran {
    result: Result<RunReport, DriverError>,
    steps: Vec<AppliedStep>,
    checkpoints: Vec<Checkpoint>,
    recorder: Recorder,
}

fn run(policy: &Policy, epochs: u16, rate: f64, damage: impl Fn(&mut Tensors)) -> Ran {
    let data = data();
    let plan = plan(&data, policy, epochs);
    let settings = Settings {
        rate,
        ..Settings::default()
    };
    run_plan(data, plan, policy, &settings, damage)
}

/// What is trained how.
struct Settings {
    grad_accum: u32,
    rate: f64,
    objective: Objective,
    sliding: Option<SlidingAttention>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            grad_accum: GRAD_ACCUM,
            rate: 1e-3,
            objective: Objective::CrossEntropy,
            sliding: None,
        }
    }
}

fn run_plan(
    data: Arc<Dataset>,
    plan: Arc<Plan>,
    policy: &Policy,
    settings: &Settings,
    damage: impl Fn(&mut Tensors),
) -> Ran {
    let (target, mut drafter) = models();
    if let Some(sliding) = &settings.sliding {
        let config = drafter.config().clone().with_sliding(sliding.clone());
        let weights = drafter.weights().clone();
        drafter = Drafter::from_weights(config.unwrap(), weights, &target, "test").unwrap();
    }
    let mut weights = drafter.weights().clone();
    damage(&mut weights);
    let schedule = Schedule::constant(settings.rate);
    let (sender, steps) = channel();
    let setup = CpuSetup {
        plan: Arc::clone(&plan),
        data,
        blocks: BlockSpec::of(drafter.config()),
        optimizer: Optimizer::new(weights, AdamW::default(), schedule).unwrap(),
        target,
        drafter,
        objective: settings.objective,
        recompute_every: 3,
        anchors_max: 4,
        seed: 9,
        steps: Some(sender),
    };
    let backend = Arc::new(Cpu::new(setup, policy).unwrap());
    let core = Core::new(plan, policy.clone(), settings.grad_accum, Seed(4));
    let mut recorder = Recorder::new(&core);
    let result = Driver::new(core, Arc::clone(&backend), Options::default()).run(&mut recorder);
    let checkpoint = |id| backend.checkpoint(DrafterId(id), "{}".into()).unwrap();
    Ran {
        result,
        steps: steps.try_iter().collect(),
        checkpoints: (0..policy.drafters).map(checkpoint).collect(),
        recorder,
    }
}

/// A checkpoint as the files it is published as.
fn files(checkpoint: &Checkpoint) -> Vec<(String, Vec<u8>)> {
    let dir = tempfile::tempdir().unwrap();
    let path = checkpoint.write(dir.path()).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (
                path.file_name().unwrap().to_str().unwrap().to_owned(),
                std::fs::read(path).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

#[test]
fn every_preset_trains_every_sample_once() {
    for name in PRESETS {
        let policy = policy(name);
        let Ran {
            result,
            steps,
            recorder,
            ..
        } = run(&policy, 1, 1e-3, |_| ());
        let report = result.unwrap_or_else(|error| panic!("{name}: {error}"));
        recorder.assert_complete();
        recorder.assert_replays();
        assert!(report.peaks.all > Bytes(0));
        assert!(steps.iter().all(|step| step.report.loss.is_finite()));
        assert!(
            steps
                .iter()
                .map(|step| step.step.0)
                .eq(0..steps.len() as u32),
            "{name}"
        );
    }
}

#[test]
fn the_loss_falls() {
    let Ran { result, steps, .. } = run(&policy("composed"), 6, 2e-2, |_| ());
    result.unwrap();
    let mean = |steps: &[AppliedStep]| {
        steps.iter().map(|s| s.report.loss).sum::<f64>() / steps.len() as f64
    };
    let (first, last) = (mean(&steps[..4]), mean(&steps[steps.len() - 4..]));
    assert!(last < 0.8 * first, "{first} to {last}");
}

#[test]
fn every_objective_and_sliding_layers_teach_the_drafter() {
    let policy = policy("composed");
    let trained = |objective: Objective, sliding: Option<SlidingAttention>| {
        let data = data();
        let plan = plan(&data, &policy, 6);
        let settings = Settings {
            rate: 2e-2,
            objective,
            sliding,
            ..Settings::default()
        };
        let ran = run_plan(data, plan, &policy, &settings, |_| ());
        ran.result.unwrap();
        ran.recorder.assert_complete();
        let mean = |steps: &[AppliedStep], of: fn(&StepReport) -> f64| {
            steps.iter().map(|s| of(&s.report)).sum::<f64>() / steps.len() as f64
        };
        let (first, last) = (&ran.steps[..4], &ran.steps[ran.steps.len() - 4..]);
        let loss = [first, last].map(|steps| mean(steps, |report| report.loss));
        let accuracy = [first, last].map(|steps| mean(steps, |report| report.accuracy));
        (loss, accuracy)
    };
    let mixed = Objective::Distillation {
        temperature: 2.0,
        hard_share: 0.5,
    };
    for objective in [Objective::D_PACE, Objective::DISTILLATION, mixed] {
        let (loss, accuracy) = trained(objective, None);
        assert!(loss[1] < 0.9 * loss[0], "{objective:?}: {loss:?}");
        // A random target says little about the data: only tokens of the data teach them.
        if objective == Objective::D_PACE {
            assert!(
                accuracy[1] > accuracy[0] + 0.1,
                "{objective:?}: {accuracy:?}"
            );
        }
    }
    let sliding = SlidingAttention::all_but_last(1, 0, 6, true);
    let (loss, _) = trained(Objective::CrossEntropy, Some(sliding));
    assert!(loss[1] < 0.8 * loss[0], "sliding: {loss:?}");
}

#[test]
fn two_runs_of_a_fixed_assignment_give_the_same_bytes() {
    let slow = Policy {
        overlap: false,
        depth_total: Some(5),
        ..policy("composed")
    };
    let first = run(&policy("composed"), 2, 1e-3, |_| ());
    // Other targets, depths and copies change when things happen, not what is trained.
    let other = run(&Policy { targets: 3, ..slow }, 2, 1e-3, |_| ());
    let again = run(&policy("composed"), 2, 1e-3, |_| ());
    for ran in [&first, &other, &again] {
        assert!(ran.result.is_ok());
    }
    let expected = files(&first.checkpoints[0]);
    assert!(expected.iter().any(|(name, _)| name == "model.safetensors"));
    assert!(
        expected == files(&again.checkpoints[0]),
        "the same run gives the same bytes"
    );
    assert!(
        expected == files(&other.checkpoints[0]),
        "timing changes no byte"
    );
    assert_eq!(first.steps, other.steps);
    // Whatever compared equal would differ after other training.
    let less = run(&policy("composed"), 1, 1e-3, |_| ());
    assert!(expected != files(&less.checkpoints[0]));
}

#[test]
fn independent_drafters_have_masters_of_their_own() {
    let policy = Policy {
        barrier: Barrier::None,
        ..policy("drafter-queues")
    };
    let ran = run(&policy, 1, 1e-3, |_| ());
    ran.result.unwrap();
    ran.recorder.assert_complete();
    let weights: Vec<_> = ran.checkpoints.iter().map(files).collect();
    assert!(weights[0] != weights[1]);
}

#[test]
fn a_run_that_diverges_names_the_step_and_its_microbatches() {
    let poison = |weights: &mut Tensors| {
        let name = weights.keys().next().unwrap().clone();
        let nan = (weights[&name].zeros_like().unwrap() / 0.0).unwrap();
        weights.insert(name, nan);
    };
    let Ran { result, steps, .. } = run(&policy("composed"), 1, 1e-3, poison);
    match result {
        Err(DriverError::Diverged {
            step, microbatches, ..
        }) => {
            assert_eq!(step.0, 0);
            assert!(!microbatches.is_empty());
        }
        other => panic!("{other:?}"),
    }
    assert!(steps.is_empty(), "the step was not applied");
}

/// Everything in one optimizer step, by so many drafters in microbatches of such limits.
fn one_step(drafters: u16, limits: Limits, objective: Objective) -> AppliedStep {
    let policy = Policy {
        drafters,
        depth_total: Some(64),
        ..policy("composed")
    };
    let data = data();
    let settings = Settings {
        grad_accum: 100,
        objective,
        ..Settings::default()
    };
    let plan = plan_of(&data, &policy, 1, limits, settings.grad_accum);
    let ran = run_plan(data, plan, &policy, &settings, |_| {});
    ran.result.unwrap();
    assert_eq!(ran.steps.len(), 1);
    ran.steps.into_iter().next().unwrap()
}

#[test]
fn a_step_s_gradient_depends_neither_on_drafters_nor_on_microbatches() {
    for objective in [
        Objective::CrossEntropy,
        Objective::D_PACE,
        Objective::DISTILLATION,
    ] {
        same_steps(objective);
    }
}

fn same_steps(objective: Objective) {
    let whole = one_step(1, LIMITS, objective).report;
    let close = |a: f64, b: f64| (a - b).abs() <= 2e-6 * b.abs();
    let small = Limits {
        token_budget: 28,
        batch_max: 1,
    };
    let large = Limits {
        token_budget: 400,
        batch_max: 16,
    };
    for drafters in 1..=4 {
        for limits in [LIMITS, small, large] {
            let report = one_step(drafters, limits, objective).report;
            let what = format!("{drafters} drafters, {limits:?}: {report:?} against {whole:?}");
            assert!(close(report.loss, whole.loss), "{what}");
            assert!(close(report.grad_norm, whole.grad_norm), "{what}");
            assert_eq!(report.accuracy, whole.accuracy, "{what}");
        }
    }
}
