//! Times the target's forward at Qwen3-8B geometry with random weights, on order.
//!
//! Reads lines `width rows runs` from standard input and answers each with one line of JSON: milliseconds of every run, by events around
//! it. A program that compares with another one asks both in turn. `products rows` times the layer's matrix products instead. Arguments:
//! `--own` leaves cuDNN out, `--heuristic` takes cuBLASLt's first answer, `--captured-only` skips the layers above the last captured.
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::Arc;

use exec::cuda::target::{
    AttentionChoice, Captures, CudaTarget, HiddenPlace, Kept, TargetOptions, TargetShape,
    TargetWeights, TokenRows, WeightSource,
};
use exec::cuda::{Buffer, Gemm, Gpu, Matrix, Pool, Stream, Tuning};
use half::bf16;
use serde_json::json;
use shared::id::Bytes;

const TOKENS_MAX: usize = 49_152;
const WIDTH_MAX: usize = 8192;

fn shape() -> TargetShape {
    TargetShape {
        hidden: 4096,
        inner: 12_288,
        layers: 36,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        vocab: 151_936,
        eps: 1e-6,
        rates: (0..64)
            .map(|i| 1e6f64.powf(-2.0 * f64::from(i) / 128.0))
            .collect(),
        head_norms: true,
        norm_offset: 0.0,
        delta: None,
    }
}

struct Bench {
    target: CudaTarget,
    features: Buffer<bf16>,
    last: Buffer<bf16>,
}

impl Bench {
    /// Milliseconds of `runs` forwards of new tokens each.
    fn times(
        &mut self,
        width: usize,
        rows: usize,
        runs: usize,
    ) -> Result<Vec<f32>, Box<dyn Error>> {
        let mut marks = Vec::new();
        let vocab = shape().vocab as u64;
        for run in 0..runs {
            let word =
                |at: u64| (at ^ (run as u64) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
            let batch = TokenRows {
                ids: (0..(width * rows) as u64)
                    .map(|at| (word(at) % vocab) as u32)
                    .collect(),
                lengths: vec![width as u32; rows],
                width,
            };
            let place = HiddenPlace {
                features: self.features.ptr(),
                last_hidden: self.target.captures().last_hidden.then(|| self.last.ptr()),
            };
            let start = self.target.stream().record_timed()?;
            self.target.forward(&batch, place)?;
            marks.push((start, self.target.stream().record_timed()?));
        }
        self.target.stream().synchronize()?;
        marks
            .iter()
            .map(|(start, end)| Ok(start.elapsed_ms(end)?))
            .collect()
    }
}

/// The library's candidates for each of a layer's products over `rows` rows, with their milliseconds under load.
fn products(gpu: &Arc<Gpu>, rows: usize) -> Result<serde_json::Value, Box<dyn Error>> {
    let pool = Pool::new(gpu, Bytes(12 << 30), "products")?;
    let stream = Stream::new(gpu)?;
    let gemm = Gemm::new(&pool, Tuning::Timed)?;
    let mut found = serde_json::Map::new();
    for (name, n, k) in PRODUCTS {
        let a = pool.buffer::<bf16>(rows * k)?;
        let b = pool.buffer::<bf16>(n * k)?;
        let c = pool.buffer::<bf16>(rows * n)?;
        // Numbers of about the size of activations, not zeros: those run faster.
        let word = |i: u32| i.wrapping_mul(2_654_435_769) >> 8;
        let draw = |i: u32| bf16::from_f32(word(i) as f32 / 8_388_608.0 - 1.0);
        let draws: Vec<bf16> = (0..1u32 << 20).map(draw).collect();
        for ptr in [a.ptr(), b.ptr()] {
            for start in (0..ptr.len()).step_by(draws.len()) {
                let end = ptr.len().min(start + draws.len());
                stream.upload(&draws[..end - start], ptr.at(start..end))?;
            }
        }
        let (a, b) = (
            Matrix::new(a.ptr(), rows, k),
            Matrix::new(b.ptr(), n, k).t(),
        );
        let c = Matrix::new(c.ptr(), rows, n);
        let mut times = gemm.candidates(&stream, a, b, c, 16)?;
        times.retain(|(_, ms)| ms.is_finite());
        found.insert(name.into(), json!(times));
    }
    Ok(found.into())
}

/// A layer's products: name, columns of the result, columns of the input.
const PRODUCTS: [(&str, usize, usize); 4] = [
    ("qkv", 6144, 4096),
    ("o", 4096, 4096),
    ("gate_up", 24_576, 4096),
    ("down", 4096, 12_288),
];

fn main() -> Result<(), Box<dyn Error>> {
    let is = |flag: &str| std::env::args().any(|argument| argument == flag);
    let gpu = Gpu::open(0)?;
    let captures = Captures {
        layers: vec![1, 9, 17, 25, 33],
        last_hidden: !is("--captured-only"),
    };
    let shape = shape();
    let source = WeightSource::Random { seed: 1, std: 0.02 };
    let weights = TargetWeights::new(
        &gpu,
        &shape,
        source,
        Kept {
            layers: shape.layers,
            head: false,
        },
    )?;
    let per_token = captures.elements_per_token(shape.hidden);
    let pool = Pool::new(
        &gpu,
        Bytes((TOKENS_MAX * per_token * 2 + (1 << 20)) as u64),
        "hidden states",
    )?;
    let mut bench = Bench {
        features: pool.buffer(TOKENS_MAX * captures.layers.len() * shape.hidden)?,
        last: pool.buffer(if captures.last_hidden {
            TOKENS_MAX * shape.hidden
        } else {
            1
        })?,
        target: CudaTarget::new(
            &weights,
            TargetOptions {
                captures,
                tokens_max: TOKENS_MAX,
                width_max: WIDTH_MAX,
                tuning: if is("--heuristic") {
                    Tuning::Heuristic
                } else {
                    Tuning::Timed
                },
                attention: if is("--own") {
                    AttentionChoice::Own
                } else {
                    AttentionChoice::Fastest
                },
            },
        )?,
    };
    println!("{}", json!({"gpu": gpu.name(), "free": gpu.memory()?.0.0}));
    std::io::stdout().flush()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[..] {
            ["products", rows] => products(&gpu, rows.parse()?)?,
            [width, rows, runs] => {
                let ms = bench.times(width.parse()?, rows.parse()?, runs.parse()?)?;
                json!({"ms": ms, "attention": bench.target.attention(), "fused": bench.target.fused(), "scratch_peak": bench.target.scratch_peak().0})
            }
            _ => json!({"error": "give: width rows runs"}),
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}
