//! Times the drafter's training step on a GPU at the 8B geometry: random weights and data, medians of CUDA events.
//!
//!     cargo run --release -p dflash-exec --example cuda_drafter_bench -- 8x2048x512 16x512x256 6x8192x512
//!
//! A shape is rows x tokens a row x anchors a row; a quarter of each row is prompt. `--timed` lets matrix products be timed and chosen
//! when a shape is first met. `--once` runs one step after one of warm-up, for a profiler.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::sync::Arc;

use candle_core::{Device, Tensor};
use exec::cuda::drafter::{AttentionKernels, CudaDrafter, DrafterLimits, DrafterOptions, Frozen};
use exec::cuda::{Buffer, CudaError, Gpu, Pool, Stream, Tuning};
use exec::model::{
    DrafterConfig, DrafterSize, PaddedBatch, Sample, TargetConfig, Tensors, drafter_shapes,
};
use exec::train::{AdamW, BlockPlan, BlockSpec, Objective, Schedule, anchors};
use half::bf16;
use serde_json::json;
use shared::id::Bytes;

/// What may go wrong, for the terminal.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Clone, Copy)]
struct Case {
    rows: usize,
    tokens: usize,
    anchors: usize,
}

/// One microbatch.
struct Input {
    features: Buffer<bf16>,
    plan: BlockPlan,
}

/// Steps timed for each shape.
const RUNS: usize = 7;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|a| a == name);
    let cases: Vec<Case> = arguments
        .iter()
        .filter(|a| !a.starts_with("--"))
        .map(|a| case(a))
        .collect::<Outcome<_>>()?;
    let tuning = if flag("--timed") {
        Tuning::Timed
    } else {
        Tuning::Heuristic
    };
    let runs = if flag("--once") { 1 } else { RUNS };
    let config = config()?;
    let gpu = Gpu::open(0)?;
    let stream = Stream::new(&gpu)?;
    let limits = limits(&cases, &config);
    let width = config.target_layer_ids.len() * config.geometry.hidden_size;
    let frozen = config.geometry.vocab_size * config.geometry.hidden_size;
    let sets = if runs == 1 { 1 } else { 3 };
    let room = (2 * frozen + sets * limits.context_max * width) * 2 + (1 << 20);
    let pool = Pool::new(&gpu, Bytes(room as u64), "embedding, head and features")?;
    let block = normals(3 << 20);
    let put = |count: usize, scale: f32| random_buffer(&stream, &pool, &block, count, scale);
    let frozen = Frozen {
        embed: Arc::new(put(frozen, 0.02)?),
        lm_head: Arc::new(put(frozen, 0.02)?),
    };
    let weights = weights(&config, &block)?;
    let options = DrafterOptions {
        limits,
        objective: Objective::CrossEntropy,
        settings: AdamW::default(),
        schedule: Schedule::constant(6e-4),
        tuning,
        attention: AttentionKernels::Auto,
    };
    let mut drafter = CudaDrafter::new(&stream, &config, &weights, frozen, &options)?;
    drop(weights);
    for case in cases {
        let inputs = (0..sets)
            .map(|set| {
                Ok(Input {
                    features: put(case.rows * case.tokens * width, 1.0)?,
                    plan: plan(case, &config, set as u64)?,
                })
            })
            .collect::<Outcome<Vec<_>>>()?;
        time(&mut drafter, &stream, case, &inputs, runs, &config)?;
    }
    Ok(())
}

fn time(
    drafter: &mut CudaDrafter,
    stream: &Stream,
    case: Case,
    inputs: &[Input],
    runs: usize,
    config: &DrafterConfig,
) -> Outcome<()> {
    let (mut marks, mut losses, mut host) = (Vec::new(), Vec::new(), Vec::new());
    let mut under_way = None;
    for n in 0..runs + 2 {
        let input = &inputs[n % inputs.len()];
        let start = stream.record_timed()?;
        let begun = std::time::Instant::now();
        drafter.accumulate(input.features.ptr(), case.tokens, &input.plan)?;
        host.push(begun.elapsed().as_secs_f64() * 1e3);
        let middle = stream.record_timed()?;
        // The report of the step before is read while this one is under way.
        if let Some(step) = under_way.take() {
            losses.push(drafter.end_apply(step)?.loss);
        }
        under_way = Some(drafter.begin_apply()?);
        marks.push((start, middle, stream.record_timed()?));
    }
    if let Some(step) = under_way {
        losses.push(drafter.end_apply(step)?.loss);
    }
    host.sort_by(f64::total_cmp);
    let (mut passes, mut steps) = (Vec::new(), Vec::new());
    for (start, middle, end) in &marks[2..] {
        passes.push(start.elapsed_ms(middle)?);
        steps.push(middle.elapsed_ms(end)?);
    }
    passes.sort_by(f32::total_cmp);
    steps.sort_by(f32::total_cmp);
    let own = limits(&[case], config);
    let slots = case.rows * case.anchors * config.block_size;
    let line = json!({
        "section": "drafter", "who": "dflash", "rows": case.rows, "width": case.tokens, "anchors": case.anchors, "slots": slots,
        "ms": passes[passes.len() / 2], "ms_min": passes[0], "ms_max": passes[passes.len() - 1],
        "optimizer_ms": steps[steps.len() / 2], "host_ms": host[host.len() / 2],
        "drafter_gb": CudaDrafter::bytes_needed(config, &own)?.0 as f64 / 1e9,
        "features_embedding_head_gb": (case.rows * case.tokens * 40_960 + 4 * 622_329_856) as f64 / 1e9,
        "loss_first": losses[0], "loss_last": losses[losses.len() - 1],
    });
    println!("{line}");
    Ok(())
}

fn case(text: &str) -> Outcome<Case> {
    let numbers: Vec<usize> = text.split('x').map(str::parse).collect::<Result<_, _>>()?;
    let &[rows, tokens, anchors] = &numbers[..] else {
        return Err(
            format!("{text}: a shape is rows x tokens x anchors, such as 8x2048x512").into(),
        );
    };
    Ok(Case {
        rows,
        tokens,
        anchors,
    })
}

/// The drafter of an 8B target: 1.05 G parameters.
fn config() -> Outcome<DrafterConfig> {
    let target = TargetConfig::from_json(
        json!({
            "architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "rope_theta": 1e6,
            "tie_word_embeddings": false,
        }),
        "8B",
    )?;
    let size = DrafterSize {
        layers: 5,
        intermediate_size: 12_288,
        attention_heads: 32,
        key_value_heads: 8,
        head_dim: 128,
    };
    Ok(DrafterConfig::for_target(&target, size, 16, 151_669)?)
}

fn limits(cases: &[Case], config: &DrafterConfig) -> DrafterLimits {
    let most = |of: &dyn Fn(&Case) -> usize| cases.iter().map(of).max().unwrap_or(0);
    DrafterLimits {
        slots_max: most(&|c| c.rows * c.anchors * config.block_size),
        context_max: most(&|c| c.rows * c.tokens),
        row_max: most(&|c| c.tokens),
        logits_max: 7680,
    }
}

fn plan(case: Case, config: &DrafterConfig, seed: u64) -> Outcome<BlockPlan> {
    let ids: Vec<Vec<u32>> = (0..case.rows)
        .map(|row| {
            (0..case.tokens)
                .map(|at| {
                    ((seed * 7919 + row as u64 * 104_729 + at as u64 * 15_485_863) % 151_000) as u32
                })
                .collect()
        })
        .collect();
    let mask: Vec<bool> = (0..case.tokens).map(|at| at >= case.tokens / 4).collect();
    let samples: Vec<Sample<'_>> = ids
        .iter()
        .map(|input_ids| Sample {
            input_ids,
            loss_mask: &mask,
        })
        .collect();
    let batch = PaddedBatch::new(&samples, case.tokens)?;
    let anchors: Vec<Vec<u32>> = (0..case.rows)
        .map(|row| anchors::draw(seed, 0, row as u64, &mask, case.anchors))
        .collect();
    Ok(BlockPlan::new(&batch, &anchors, &BlockSpec::of(config))?)
}

/// Numbers of a bell curve: sums of twelve uniform ones.
fn normals(count: usize) -> Vec<f32> {
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    let mut uniform = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..count)
        .map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0)
        .collect()
}

/// `block` over and over, times `scale`.
fn random_buffer(
    stream: &Stream,
    pool: &Arc<Pool>,
    block: &[f32],
    count: usize,
    scale: f32,
) -> Result<Buffer<bf16>, CudaError> {
    let buffer = pool.buffer(count)?;
    let narrow: Vec<bf16> = block.iter().map(|x| bf16::from_f32(x * scale)).collect();
    for start in (0..count).step_by(narrow.len()) {
        let end = count.min(start + narrow.len());
        stream.upload(&narrow[..end - start], buffer.ptr().at(start..end))?;
    }
    Ok(buffer)
}

fn weights(config: &DrafterConfig, block: &[f32]) -> Outcome<Tensors> {
    let block: Vec<f32> = block.iter().map(|x| x * 0.02).collect();
    let mut weights = Tensors::new();
    for (name, shape) in drafter_shapes(config) {
        let count: usize = shape.iter().product();
        let values = match shape.len() {
            1 => vec![1.0; count],
            _ => {
                let mut values = Vec::with_capacity(count);
                while values.len() < count {
                    values.extend_from_slice(&block[..block.len().min(count - values.len())]);
                }
                values
            }
        };
        weights.insert(
            name,
            Tensor::from_vec(values, shape.as_slice(), &Device::Cpu)?,
        );
    }
    Ok(weights)
}
