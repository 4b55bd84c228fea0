//! Hidden states that are wrong, one file each: every one is refused for its own reason, and nothing
//! is trained from it.
//!
//! The files in `data/bad_hs` hold what was handed over, its stamp and the microbatch. They are made
//! here: with DFLASH_WRITE_BAD_HS set, the test writes them anew before it compares.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

use candle_core::{DType, Device, Tensor, safetensors};
use common::Recorder;
use exec::backend::cpu::{AppliedStep, Cpu, CpuSetup};
use exec::backend::cuda::Cuda;
use exec::backend::{
    ApplyJob, Backend, Copier, DrafterWorker, Job, Ordered, TargetWorker, Trainer, WorkError,
};
use exec::checks::{BadStates, RowStamp, Stamp, Stamped, arrived, recomputed};
use exec::config::DevicesSection;
use exec::cuda::Gpu;
use exec::data::{ByteTokenizer, Rules, Tokenizer, load};
use exec::driver::{Driver, Options};
use exec::error::{DriverError, WorkerId};
use exec::model::{
    Drafter, DrafterConfig, DrafterSize, HiddenStates, PaddedBatch, Sample, Target, TargetConfig,
    Tensors,
};
use exec::train::{AdamW, BlockSpec, Objective, Optimizer, Schedule};
use serde_json::json;
use shared::core::Core;
use shared::draw::Seed;
use shared::id::{Bytes, DrafterId, MicrobatchId, StepId, TargetId};
use shared::plan::{Edges, FormSpec, Limits, MixRule, OrderSpec, Ordering, OverLong, Plan, Tail};
use shared::policy::{Policy, preset};
use shared::time::Span;

/// The files, what each is refused for, and a word of the message.
const FILES: [(&str, &str, &str); 7] = [
    ("right", "", ""),
    ("nan", "not finite", "NaN at token 3"),
    ("swapped_rows", "swapped rows", "are those of row"),
    ("wrong_token_ids", "other tokens", "other token ids"),
    ("truncated", "truncated", "end after 6 of its"),
    ("swapped_layers", "layer order", "in the order"),
    (
        "anchor_state_included",
        "shifted",
        "holds its anchor's own state",
    ),
];

fn reason(error: &BadStates) -> &'static str {
    match error {
        BadStates::Shape { .. } => "shape",
        BadStates::Truncated { .. } => "truncated",
        BadStates::NotFinite { .. } => "not finite",
        BadStates::SwappedRows { .. } => "swapped rows",
        BadStates::OtherTokens { .. } => "other tokens",
        BadStates::LayerOrder { .. } => "layer order",
        BadStates::OtherLayers { .. } => "other layers",
        BadStates::Shifted { .. } => "shifted",
        BadStates::LastHidden { .. } => "last hidden",
        BadStates::Drift { .. } => "drift",
        BadStates::Model(_) => "the check failed",
    }
}

fn path(name: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bad_hs");
    // Where the test is run on another machine than it was built on, from the source tree's root.
    let here = Path::new("exec/tests/data/bad_hs");
    let folder = if built.exists() { &built } else { here };
    folder.join(format!("{name}.safetensors"))
}

fn models() -> (Target, Drafter) {
    models_with(8)
}

/// The same with heads of another width in the drafter, which no hidden state depends on.
fn models_with(head_dim: usize) -> (Target, Drafter) {
    let json = json!({
        "architectures": ["Qwen3ForCausalLM"], "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 6, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
        "vocab_size": ByteTokenizer::VOCAB_SIZE, "rope_theta": 1e4, "tie_word_embeddings": true,
        "initializer_range": 0.3,
    });
    let target = TargetConfig::from_json(json, "test").unwrap();
    let size = DrafterSize {
        layers: 2,
        intermediate_size: 24,
        attention_heads: 2,
        key_value_heads: 1,
        head_dim,
    };
    let config = DrafterConfig::for_target(&target, size, 4, ByteTokenizer::MASK).unwrap();
    let target = Target::random(target, 5, &config.target_layer_ids, &Device::Cpu).unwrap();
    let drafter = Drafter::random(config, 6, &target).unwrap();
    (target, drafter)
}

const TEXTS: [&str; 3] = ["the quick ", "brown foxe", "s jump ove"];

/// Rows of ten tokens; all but the first two bear loss.
fn batch(texts: [&str; 3]) -> PaddedBatch {
    let ids: Vec<Vec<u32>> = texts
        .iter()
        .map(|text| text.bytes().map(u32::from).collect())
        .collect();
    let mask: Vec<bool> = (0..10).map(|at| at > 1).collect();
    let samples: Vec<Sample<'_>> = ids
        .iter()
        .map(|input_ids| Sample {
            input_ids,
            loss_mask: &mask,
        })
        .collect();
    PaddedBatch::new(&samples, 12).unwrap()
}

/// What a right target hands over, damaged in one way each.
fn made() -> BTreeMap<&'static str, Stamped> {
    let (target, _) = models();
    let right = |batch: &PaddedBatch| Stamped {
        states: target.forward(batch).unwrap(),
        stamp: Stamp::of(&target, batch),
    };
    let batch_of_all = batch(TEXTS);
    let damaged = |change: fn(&Tensor) -> candle_core::Result<Tensor>| {
        let mut stamped = right(&batch_of_all);
        stamped.states.features = change(&stamped.states.features).unwrap();
        stamped
    };
    let nan = damaged(|f| {
        let width = f.dim(2)?;
        let nan = Tensor::full(f32::NAN, (1, 1, 1), f.device())?;
        f.slice_assign(&[1..2, 3..4, width - 1..width], &nan)
    });
    let swapped_rows = damaged(|f| {
        Tensor::cat(
            &[f.narrow(0, 1, 1)?, f.narrow(0, 0, 1)?, f.narrow(0, 2, 1)?],
            0,
        )
    });
    let swapped_layers = damaged(|f| Tensor::cat(&[f.narrow(2, 16, 16)?, f.narrow(2, 0, 16)?], 2));
    let shifted = damaged(|f| Tensor::cat(&[f.narrow(1, 1, 11)?, f.narrow(1, 11, 1)?], 1));
    let truncated = damaged(|f| f.narrow(1, 0, 6)?.contiguous());
    BTreeMap::from([
        ("right", right(&batch_of_all)),
        ("nan", nan),
        ("swapped_rows", swapped_rows),
        (
            "wrong_token_ids",
            right(&batch(["the quick ", "brown fixe", "s jump ove"])),
        ),
        ("truncated", truncated),
        ("swapped_layers", swapped_layers),
        ("anchor_state_included", shifted),
    ])
}

fn to_tensors(stamped: &Stamped) -> Tensors {
    let list = |values: Vec<i64>| {
        let count = values.len();
        Tensor::from_vec(values, count, &Device::Cpu).unwrap()
    };
    let rows = &stamped.stamp.rows;
    let layers = stamped.stamp.layer_ids.iter().map(|&id| id as i64);
    let features = &stamped.states.features;
    let ids = batch(TEXTS).input_ids.into_iter();
    let ids: Vec<Vec<i64>> = ids
        .map(|row| row.into_iter().map(i64::from).collect())
        .collect();
    Tensors::from([
        ("features".into(), features.clone()),
        ("stamp.layer_ids".into(), list(layers.collect())),
        (
            "stamp.tokens".into(),
            list(rows.iter().map(|r| r.tokens as i64).collect()),
        ),
        (
            "stamp.digests".into(),
            list(rows.iter().map(|r| r.digest as i64).collect()),
        ),
        (
            "microbatch.input_ids".into(),
            Tensor::new(ids, &Device::Cpu).unwrap(),
        ),
    ])
}

fn read(name: &str) -> Stamped {
    let file = safetensors::load(path(name), &Device::Cpu).unwrap();
    let list = |name: &str| file[name].to_vec1::<i64>().unwrap();
    let rows = list("stamp.tokens").into_iter().zip(list("stamp.digests"));
    let row = |(tokens, digest)| RowStamp {
        tokens: tokens as usize,
        digest: digest as u64,
    };
    Stamped {
        states: HiddenStates {
            features: file["features"].clone(),
            last_hidden: None,
        },
        stamp: Stamp {
            layer_ids: list("stamp.layer_ids")
                .into_iter()
                .map(|id| id as usize)
                .collect(),
            rows: rows.map(row).collect(),
        },
    }
}

/// All checks, as at the first microbatch of a bucket.
fn checked(stamped: &Stamped, batch: &PaddedBatch) -> Result<(), BadStates> {
    let (target, drafter) = models();
    arrived(stamped, batch, drafter.config())?;
    (0..batch.rows()).try_for_each(|row| recomputed(&target, &stamped.states, batch, row))
}

#[test]
fn the_files_are_what_is_made_here() {
    for (name, stamped) in made() {
        let made = to_tensors(&stamped);
        if std::env::var_os("DFLASH_WRITE_BAD_HS").is_some() {
            let tensors = made.clone().into_iter().collect();
            safetensors::save(&tensors, path(name)).unwrap();
        }
        let file = safetensors::load(path(name), &Device::Cpu).unwrap();
        assert_eq!(file.len(), made.len(), "{name}");
        for (tensor, value) in &made {
            let numbers = |t: &Tensor| -> Vec<f64> {
                let flat = t.to_dtype(DType::F64).unwrap().flatten_all().unwrap();
                flat.to_vec1().unwrap()
            };
            let mut pairs = numbers(value).into_iter().zip(numbers(&file[tensor]));
            let same = |(a, b): (f64, f64)| (a.is_nan() && b.is_nan()) || (a - b).abs() < 1e-4;
            assert_eq!(value.dims(), file[tensor].dims(), "{name} {tensor}");
            assert!(pairs.all(same), "{name} {tensor}");
        }
    }
}

#[test]
fn each_file_is_refused_for_its_own_reason() {
    let batch = batch(TEXTS);
    let mut reasons = Vec::new();
    for (name, expected, part) in FILES {
        match checked(&read(name), &batch) {
            Ok(()) => assert_eq!(expected, "", "{name}"),
            Err(error) => {
                assert_eq!(reason(&error), expected, "{name}: {error}");
                assert!(error.to_string().contains(part), "{name}: {error}");
                reasons.push(reason(&error));
            }
        }
    }
    reasons.sort_unstable();
    reasons.dedup();
    assert_eq!(reasons.len(), FILES.len() - 1, "each has its own");
}

/// The CPU backend whose target hands over something else.
struct Damaged {
    right: Cpu,
    plan: Arc<Plan>,
    handed_over: Stamped,
}

impl Backend for Damaged {
    type Hidden = Stamped;

    fn name(&self) -> &'static str {
        "damaged"
    }

    fn target(&self, _: TargetId) -> Result<Box<dyn TargetWorker<Stamped>>, WorkError> {
        Ok(Box::new(Wrong {
            plan: Arc::clone(&self.plan),
            handed_over: self.handed_over.clone(),
        }))
    }

    fn drafter(&self, id: DrafterId) -> Result<Box<dyn DrafterWorker<Stamped>>, WorkError> {
        self.right.drafter(id)
    }

    fn copier(&self, end: WorkerId) -> Result<Box<dyn Copier<Stamped>>, WorkError> {
        self.right.copier(end)
    }
}

struct Wrong {
    plan: Arc<Plan>,
    handed_over: Stamped,
}

impl TargetWorker<Stamped> for Wrong {
    /// What the file holds, in the plan's order of rows.
    fn forward(&mut self, job: Job) -> Result<Stamped, WorkError> {
        let order = self.plan.samples_of(job.microbatch);
        let index: Vec<u32> = order.iter().map(|id| id.0).collect();
        let index = Tensor::new(index, &Device::Cpu).unwrap();
        let Stamped { states, stamp } = &self.handed_over;
        let rows = order.iter().map(|id| stamp.rows[id.index()]);
        Ok(Stamped {
            states: HiddenStates {
                features: states.features.index_select(&index, 0).unwrap(),
                last_hidden: None,
            },
            stamp: Stamp {
                layer_ids: stamp.layer_ids.clone(),
                rows: rows.collect(),
            },
        })
    }
}

/// One optimizer step over the three samples.
fn plan(lengths: &[u32], policy: &Policy) -> Plan {
    let form = FormSpec {
        edges: Edges::given(vec![12]).unwrap(),
        limits: Limits {
            token_budget: 36,
            batch_max: 3,
        },
        over_long: OverLong::Refuse,
        epochs: 1,
        bytes_per_token: Bytes(128),
        seed: Seed(4),
    };
    let order = OrderSpec {
        ordering: Ordering::Composed(shared::plan::Fill::Even),
        drafters: policy.drafters,
        grad_accum: 1,
        tail: Tail::Short,
        mix: MixRule {
            step_min: 1,
            window_min: 0,
        },
        assign: true,
        train_cost: vec![Span::from_ms(1)],
        seed: Seed(4),
    };
    Plan::form_and_order(lengths, &form, &order).unwrap()
}

/// The three rows as a run's data, and a plan of one optimizer step over them.
fn three_rows() -> (Arc<exec::data::Dataset>, Arc<Plan>, Policy) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rows.jsonl");
    let mask: Vec<u8> = (0..10).map(|at| u8::from(at > 1)).collect();
    let lines = batch(TEXTS)
        .input_ids
        .into_iter()
        .map(|ids| json!({ "input_ids": ids[..10], "loss_mask": mask }).to_string() + "\n");
    std::fs::write(&file, lines.collect::<String>()).unwrap();
    let data = Arc::new(load(&[file], &Tokenizer::byte(), &Rules::new(12)).unwrap());
    let policy = Policy {
        targets: 1,
        drafters: 1,
        mix_step_min: 1,
        ..preset("composed").unwrap()
    };
    let plan = Arc::new(plan(&data.lengths(), &policy));
    assert_eq!(plan.samples_of(MicrobatchId(0)).len(), 3);
    (data, plan, policy)
}

fn setup(
    (target, drafter): (Target, Drafter),
    data: &Arc<exec::data::Dataset>,
    plan: &Arc<Plan>,
    steps: std::sync::mpsc::Sender<AppliedStep>,
) -> CpuSetup {
    let weights = drafter.weights().clone();
    let schedule = Schedule::constant(1e-2);
    CpuSetup {
        plan: Arc::clone(plan),
        data: Arc::clone(data),
        blocks: BlockSpec::of(drafter.config()),
        optimizer: Optimizer::new(weights, AdamW::default(), schedule).unwrap(),
        target,
        drafter,
        objective: Objective::CrossEntropy,
        recompute_every: 0,
        anchors_max: 4,
        seed: 9,
        steps: Some(steps),
    }
}

#[test]
fn a_run_that_is_handed_any_of_them_stops_and_trains_nothing() {
    let (data, plan, policy) = three_rows();
    for (name, expected, part) in FILES {
        let (target, drafter) = models();
        let weights = drafter.weights().clone();
        let (sender, steps) = channel::<AppliedStep>();
        let setup = setup((target, drafter), &data, &plan, sender);
        let backend = Arc::new(Damaged {
            right: Cpu::new(setup, &policy).unwrap(),
            plan: Arc::clone(&plan),
            handed_over: read(name),
        });
        let core = Core::new(Arc::clone(&plan), policy.clone(), 1, Seed(4));
        let mut recorder = Recorder::new(&core);
        let result = Driver::new(core, Arc::clone(&backend), Options::default()).run(&mut recorder);
        let checkpoint = backend.right.checkpoint(DrafterId(0), "{}".into()).unwrap();
        let is_as_it_was = |(weight, before): (&String, &Tensor)| {
            let now = &checkpoint.trainer[&format!("weight.{weight}")];
            let bits = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            bits(now) == bits(before)
        };
        let untouched = weights.iter().all(is_as_it_was);
        if expected.is_empty() {
            result.unwrap();
            assert_eq!((steps.try_iter().count(), untouched), (1, false), "{name}");
            continue;
        }
        match result {
            Err(DriverError::WorkerFailed { site, message }) => {
                assert_eq!(site.microbatch, Some(MicrobatchId(0)), "{name}");
                assert!(message.contains(part), "{name}: {message}");
            }
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!((steps.try_iter().count(), untouched), (0, true), "{name}");
        assert_eq!(checkpoint.step, 0, "{name}");
    }
}

/// Passes at once on a machine without a GPU.
#[test]
fn a_gpu_refuses_them_for_the_same_reasons_and_trains_nothing() {
    if Gpu::open(0).is_err() {
        return;
    }
    let (data, plan, policy) = three_rows();
    let clock = exec::clock::Clock::start();
    let ordered = Ordered {
        at: clock.now(),
        clock,
    };
    for (name, expected, part) in FILES {
        let (sender, steps) = channel::<AppliedStep>();
        let setup = setup(models_with(16), &data, &plan, sender);
        let weights = setup.optimizer.weights().clone();
        let backend = Cuda::new(setup, &policy, &DevicesSection::default()).unwrap();
        let mut drafter = backend.drafter(DrafterId(0)).unwrap();
        // In the plan's order of rows.
        let Stamped { states, stamp } = read(name);
        let order = plan.samples_of(MicrobatchId(0));
        let index: Vec<u32> = order.iter().map(|id| id.0).collect();
        let index = Tensor::new(index, &Device::Cpu).unwrap();
        // A slot is as wide as the plan's rows, which have no padding here.
        let tokens = states.features.dim(1).unwrap().min(10);
        let features = states.features.narrow(1, 0, tokens).unwrap();
        let features = features.contiguous().unwrap();
        let handed_over = Stamped {
            states: HiddenStates {
                features: features.index_select(&index, 0).unwrap(),
                last_hidden: None,
            },
            stamp: Stamp {
                rows: order.iter().map(|id| stamp.rows[id.index()]).collect(),
                ..stamp
            },
        };
        let hidden = backend.receive(DrafterId(0), &handed_over).unwrap();
        let job = Job {
            microbatch: MicrobatchId(0),
            ordered,
        };
        let trained = drafter.train(job, StepId(0), &hidden);
        if expected.is_empty() {
            trained.unwrap();
            let job = ApplyJob {
                step: StepId(0),
                ordered,
            };
            drafter.apply(job, &[DrafterId(0)]).unwrap();
            assert_eq!(steps.try_iter().count(), 1, "{name}");
            continue;
        }
        let message = trained.unwrap_err().to_string();
        assert!(message.contains(part), "{name}: {message}");
        let checkpoint = backend.checkpoint(DrafterId(0), "{}".into()).unwrap();
        assert_eq!(checkpoint.step, 0, "{name}");
        for (weight, before) in &weights {
            let now = &checkpoint.trainer[&format!("weight.{weight}")];
            let bits = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert!(bits(now) == bits(before), "{name}: {weight}");
        }
        assert_eq!(steps.try_iter().count(), 0, "{name}");
    }
}
