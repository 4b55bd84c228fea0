//! One target and one drafter of the 27B geometry on one GPU: tokens a second, and what each takes beside what was counted.
//!
//!     cargo run --release --example cuda_pair -- 8x2048x512 1x8192x512
//!
//! A shape is rows x tokens a row x anchors a row; a quarter of each row is prompt. The target is a hybrid (48 gated delta layers, 16 of
//! gated attention) with random weights made on the GPU; the drafter trains on what it hands over, in slots of whole microbatches.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::sync::Arc;

use candle_core::{Device, Tensor};
use exec::cuda::drafter::{
    AttentionKernels, CudaDrafter, DrafterLimits, DrafterOptions, Frozen, Given,
};
use exec::cuda::target::{
    AttentionChoice, Captures, CudaTarget, HiddenPlace, Kept, TargetOptions, TargetShape,
    TargetWeights, TokenRows, WeightSource,
};
use exec::cuda::{Gpu, HiddenCheck, Pool, Stream, Tuning};
use exec::model::{
    DrafterConfig, DrafterSize, PaddedBatch, Sample, TargetConfig, Tensors, drafter_shapes,
};
use exec::train::{AdamW, BlockPlan, BlockSpec, Objective, Schedule, anchors};
use half::bf16;
use serde_json::json;
use shared::id::Bytes;

/// What may go wrong, for the terminal.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Rows, tokens a row, anchors a row.
type Case = [usize; 3];

/// Microbatches timed for each shape, behind two that are not.
const RUNS: usize = 4;

/// Hidden states of so many microbatches have a place.
const SLOTS: usize = 2;

fn target() -> Outcome<TargetConfig> {
    let json = json!({
        "architectures": ["Qwen3_5ForCausalLM"], "hidden_size": 5120, "intermediate_size": 17_408, "num_hidden_layers": 64,
        "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 248_320,
        "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "tie_word_embeddings": false,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    });
    Ok(TargetConfig::from_json(json, "27B")?)
}

fn drafter(target: &TargetConfig) -> Outcome<DrafterConfig> {
    let size = DrafterSize {
        layers: 5,
        intermediate_size: 17_408,
        attention_heads: 32,
        key_value_heads: 8,
        head_dim: 128,
    };
    Ok(DrafterConfig::for_target(target, size, 16, 248_070)?)
}

fn main() -> Outcome<()> {
    let cases: Vec<Case> = std::env::args()
        .skip(1)
        .map(|text| -> Outcome<Case> {
            let numbers: Vec<usize> = text.split('x').map(str::parse).collect::<Result<_, _>>()?;
            Ok(<Case>::try_from(numbers)
                .map_err(|_| format!("{text}: give rows x tokens x anchors"))?)
        })
        .collect::<Outcome<_>>()?;
    let most = |of: &dyn Fn(&Case) -> usize| cases.iter().map(of).max().unwrap_or(1);
    let (tokens_max, width_max) = (most(&|c| c[0] * c[1]), most(&|c| c[1]));
    let target = target()?;
    let config = drafter(&target)?;
    let captures = Captures {
        layers: config.target_layer_ids.clone(),
        last_hidden: false,
    };
    let shape = TargetShape::of(&target)?;
    let gpu = Gpu::open(0)?;
    let begin = gpu.memory()?.0.0;
    let mut free = begin;
    let mut place = |what: &str, counted: u64| -> Outcome<()> {
        let now = gpu.memory()?.0.0;
        let taken = free - now;
        free = now;
        let off = taken as f64 / counted as f64 - 1.0;
        println!(
            "{}",
            json!({"place": what, "counted": counted, "taken": taken, "off": off})
        );
        Ok(())
    };
    let depth = captures.depth(shape.layers);
    let started = std::time::Instant::now();
    let source = WeightSource::Random { seed: 1, std: 0.02 };
    let kept = Kept {
        layers: depth,
        head: true,
    };
    let weights = TargetWeights::new(&gpu, &shape, source, kept)?;
    let loaded = started.elapsed().as_secs_f64();
    let counted = shape.weight_bytes(depth, false, true).0;
    place("the target's weights", counted)?;
    let mut model = CudaTarget::new(
        &weights,
        TargetOptions {
            captures: captures.clone(),
            tokens_max,
            width_max,
            tuning: Tuning::Timed,
            attention: AttentionChoice::Fastest,
        },
    )?;
    let scratch = shape.scratch_bytes(tokens_max, width_max).0;
    place("the target's activations", scratch)?;
    let per_token = captures.elements_per_token(shape.hidden);
    let slot = tokens_max * per_token;
    let pool = Pool::new(&gpu, Bytes((SLOTS * 2 * slot) as u64), "hidden states")?;
    let slots: Vec<_> = (0..SLOTS)
        .map(|_| pool.buffer::<bf16>(slot))
        .collect::<Result<_, _>>()?;
    place("slots of hidden states", (SLOTS * 2 * slot) as u64)?;
    let stream = Stream::new(&gpu)?;
    let limits = DrafterLimits {
        slots_max: most(&|c| c[0] * c[2] * config.block_size),
        context_max: tokens_max,
        row_max: width_max,
        logits_max: 8192,
    };
    let options = DrafterOptions {
        limits,
        objective: Objective::CrossEntropy,
        settings: AdamW::default(),
        schedule: Schedule::constant(6e-4),
        tuning: Tuning::Heuristic,
        attention: AttentionKernels::Auto,
    };
    let frozen = Frozen {
        embed: Arc::clone(weights.embed()),
        lm_head: Arc::clone(weights.head()),
    };
    let first = drafter_weights(&config)?;
    let mut drafter = CudaDrafter::new(&stream, &config, &first, frozen, &options)?;
    drop(first);
    place(
        "the drafter with its optimizer",
        CudaDrafter::bytes_needed(&config, &limits)?.0,
    )?;
    let check = HiddenCheck::new(&stream, most(&|c| c[0]), 1)?;
    let sum = counted
        + scratch
        + (SLOTS * 2 * slot) as u64
        + CudaDrafter::bytes_needed(&config, &limits)?.0;
    for case in &cases {
        let [rows, width, anchors] = *case;
        let (mut forwards, mut passes, mut steps, mut loss) =
            (Vec::new(), Vec::new(), Vec::new(), 0.0);
        let mut look = f64::INFINITY;
        for n in 0..RUNS + 2 {
            let (batch, plan) = microbatch(*case, &config, n as u64)?;
            let features = slots[n % SLOTS].ptr().at(0..rows * width * per_token);
            let place = HiddenPlace {
                features,
                last_hidden: None,
            };
            let start = model.stream().record_timed()?;
            model.forward(&TokenRows::from(&batch), place)?;
            let ready = model.stream().record_timed()?;
            // One after the other: each has the GPU for itself while it is timed.
            ready.synchronize()?;
            stream.wait(&ready)?;
            let looked = std::time::Instant::now();
            let lengths = vec![width as u32; rows];
            if let Some(bad) = check.not_finite(features, &lengths, width, per_token)? {
                return Err(format!("the target gave {bad:?}").into());
            }
            look = look.min(looked.elapsed().as_secs_f64() * 1e3);
            let begin = stream.record_timed()?;
            let given = Given {
                features,
                last_hidden: None,
                tokens: width,
            };
            drafter.learn(given, &plan)?;
            let middle = stream.record_timed()?;
            loss = drafter.apply()?.loss;
            let end = stream.record_timed()?;
            if n >= 2 {
                forwards.push(start.elapsed_ms(&ready)?);
                passes.push(begin.elapsed_ms(&middle)?);
                steps.push(middle.elapsed_ms(&end)?);
            }
        }
        let median = |mut list: Vec<f32>| {
            list.sort_by(f32::total_cmp);
            f64::from(list[list.len() / 2])
        };
        let (forward, pass, step) = (median(forwards), median(passes), median(steps));
        let tokens = (rows * width) as f64;
        println!(
            "{}",
            json!({
                "rows": rows, "width": width, "anchors": anchors, "target_ms": forward, "drafter_ms": pass, "optimizer_ms": step, "look_ms": look,
                "target_tokens_per_s": tokens / forward * 1e3, "drafter_tokens_per_s": tokens / (pass + step) * 1e3,
                "pair_tokens_per_s": tokens / (forward + pass + step) * 1e3, "loss": loss, "attention": model.attention(),
                "scratch_peak": model.scratch_peak().0,
            })
        );
    }
    let taken = begin - gpu.memory()?.0.0;
    println!(
        "{}",
        json!({
            "gpu": gpu.name(), "weights_made_s": loaded, "counted": sum, "driver_counted": 1u64 << 30, "taken": taken,
            "off": taken as f64 / (sum + (1 << 30)) as f64 - 1.0,
        })
    );
    Ok(())
}

fn microbatch(
    [rows, width, anchors]: Case,
    config: &DrafterConfig,
    seed: u64,
) -> Outcome<(PaddedBatch, BlockPlan)> {
    let word = |row: usize, at: usize| {
        (seed * 7919 + row as u64 * 104_729 + at as u64 * 15_485_863)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            >> 20
    };
    let ids: Vec<Vec<u32>> = (0..rows)
        .map(|row| {
            (0..width)
                .map(|at| (word(row, at) % 248_000) as u32)
                .collect()
        })
        .collect();
    let mask: Vec<bool> = (0..width).map(|at| at >= width / 4).collect();
    let samples: Vec<Sample<'_>> = ids
        .iter()
        .map(|input_ids| Sample {
            input_ids,
            loss_mask: &mask,
        })
        .collect();
    let batch = PaddedBatch::new(&samples, width)?;
    let anchors: Vec<Vec<u32>> = (0..rows)
        .map(|row| anchors::draw(seed, 0, row as u64, &mask, anchors))
        .collect();
    let plan = BlockPlan::new(&batch, &anchors, &BlockSpec::of(config))?;
    Ok((batch, plan))
}

/// Weights of about the right size, one short list over and over: only their size matters here.
fn drafter_weights(config: &DrafterConfig) -> Outcome<Tensors> {
    let word = |i: u32| (i.wrapping_mul(2_654_435_769) >> 8) as f32 / 8_388_608.0 - 1.0;
    let block: Vec<f32> = (0..1u32 << 22).map(|i| word(i) * 0.035).collect();
    let mut weights = Tensors::new();
    for (name, shape) in drafter_shapes(config) {
        let count: usize = shape.iter().product();
        let values: Vec<f32> = match shape.len() {
            1 => vec![1.0; count],
            _ => block.iter().copied().cycle().take(count).collect(),
        };
        let tensor = Tensor::from_vec(values, shape.as_slice(), &Device::Cpu)?;
        weights.insert(name, tensor);
    }
    Ok(weights)
}
