//! The target's forward on a GPU: against a reference case, against the CPU backend, and its kernels against each other.
//!
//! Each test passes at once on a machine without a GPU, unless `DFLASH_CUDA=1` says that there must be one. Tolerances are relative L2
//! norms of bf16 results.
#![allow(
    clippy::print_stderr,
    reason = "what a run on a GPU measured is worth reading"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::{DType, Device, Tensor, safetensors};
use exec::cuda::target::{
    AttentionChoice, Captures, CudaTarget, HiddenPlace, Kept, TargetOptions, TargetShape,
    TargetWeights, TokenRows, WeightSource, hopper_kernel_sources, hybrid_kernel_text,
    kernel_sources,
};
use exec::cuda::{
    Buffer, FusedProducts, Gemm, Gpu, HeadTurn, Matrix, Pool, Source, Stream, Tuning, compile,
    compiler_version,
};
use exec::model::{Family, Hybrid, PaddedBatch, Sample, Target, TargetConfig, Tensors};
use half::bf16;
use serde_json::{Value, json};
use shared::id::Bytes;

/// A few layers of bf16 products and a bf16 residual stream.
const FEATURES: f64 = 2e-2;

fn gpu() -> Option<Arc<Gpu>> {
    match Gpu::open(0) {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            let must = std::env::var("DFLASH_CUDA").is_ok_and(|value| value == "1");
            assert!(!must, "DFLASH_CUDA=1 and {error}");
            None
        }
    }
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

fn draws(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((state >> 40) as f32 / (1u64 << 24) as f32) - 0.5
    }
}

// ---------------------------------------------------------------- matrix products

/// One product on the device beside one in f64 on the host.
struct Product {
    m: usize,
    n: usize,
    k: usize,
    transposes: [bool; 2],
    batch: usize,
    f32_out: bool,
    beta: f32,
}

impl Product {
    fn error(&self, stream: &Stream, pool: &Arc<Pool>, gemm: &mut Gemm) -> f64 {
        let Self { m, n, k, batch, .. } = *self;
        let mut draw = draws(m as u64 * 31 + n as u64);
        let mut list =
            |len: usize| -> Vec<bf16> { (0..len).map(|_| bf16::from_f32(draw())).collect() };
        let (a, b, c) = (
            list(batch * m * k),
            list(batch * k * n),
            list(batch * m * n),
        );
        let put = |values: &[bf16]| -> Buffer<bf16> {
            let buffer = pool.buffer(values.len()).unwrap();
            stream.upload(values, buffer.ptr()).unwrap();
            buffer
        };
        let (a_there, b_there) = (put(&a), put(&b));
        let view = |ptr, rows, columns, transposed: bool| match transposed {
            true => Matrix::new(ptr, columns, rows).t(),
            false => Matrix::new(ptr, rows, columns),
        };
        let [ta, tb] = self.transposes;
        let left = view(a_there.ptr(), m, k, ta).batched(batch, m * k);
        let right = view(b_there.ptr(), k, n, tb).batched(batch, k * n);
        let factors = [1.0, self.beta];
        let got: Vec<f64> = if self.f32_out {
            let out = pool.buffer::<f32>(c.len()).unwrap();
            let before: Vec<f32> = c.iter().map(|x| x.to_f32()).collect();
            stream.upload(&before, out.ptr()).unwrap();
            let to = Matrix::new(out.ptr(), m, n).batched(batch, m * n);
            gemm.multiply(stream, left, right, to, factors).unwrap();
            let values = stream.download(out.ptr()).unwrap();
            values.into_iter().map(f64::from).collect()
        } else {
            let out = put(&c);
            let to = Matrix::new(out.ptr(), m, n).batched(batch, m * n);
            gemm.multiply(stream, left, right, to, factors).unwrap();
            let values = stream.download(out.ptr()).unwrap();
            values.into_iter().map(f64::from).collect()
        };
        let mut want = Vec::with_capacity(c.len());
        for at in 0..batch {
            for i in 0..m {
                for j in 0..n {
                    let left = |l: usize| a[at * m * k + if ta { l * m + i } else { i * k + l }];
                    let right = |l: usize| b[at * k * n + if tb { j * k + l } else { l * n + j }];
                    let sum: f64 = (0..k)
                        .map(|l| f64::from(left(l)) * f64::from(right(l)))
                        .sum();
                    let before = f64::from(c[(at * m + i) * n + j]);
                    want.push(sum + f64::from(self.beta) * before);
                }
            }
        }
        distance(&got, &want)
    }
}

#[test]
fn products_match_the_host() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let pool = Pool::new(&gpu, Bytes(256 << 20), "a test").unwrap();
    for tuning in [Tuning::Heuristic, Tuning::Timed] {
        let mut gemm = Gemm::new(&pool, tuning).unwrap();
        for (m, n, k) in [(64, 48, 32), (200, 136, 72), (1, 64, 576)] {
            for transposes in [[false, false], [false, true], [true, false], [true, true]] {
                for (batch, f32_out, beta) in [
                    (1, false, 0.0),
                    (1, true, 1.0),
                    (3, true, 0.0),
                    (3, false, 1.0),
                ] {
                    if m == 1 && transposes[0] {
                        continue;
                    }
                    let product = Product {
                        m,
                        n,
                        k,
                        transposes,
                        batch,
                        f32_out,
                        beta,
                    };
                    let error = product.error(&stream, &pool, &mut gemm);
                    let limit = if f32_out { 1e-5 } else { 4e-3 };
                    assert!(
                        error < limit,
                        "{m}x{k}x{n} {transposes:?} batch {batch} f32 {f32_out} beta {beta}: {error:e}"
                    );
                }
            }
        }
    }
}

/// a · bᵀ in f64, a [m, k] and b [n, k].
fn transposed_product(a: &[bf16], b: &[bf16], k: usize) -> Vec<f64> {
    let dot = |a: &[bf16], b: &[bf16]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum()
    };
    let rows = a.chunks(k);
    rows.flat_map(|a| b.chunks(k).map(move |b| dot(a, b)))
        .collect()
}

#[test]
fn products_with_what_follows_them_match_the_host() {
    let Some(gpu) = gpu() else { return };
    let Some(fused) = FusedProducts::load(&gpu).unwrap() else {
        return;
    };
    let stream = Stream::new(&gpu).unwrap();
    let pool = Pool::new(&gpu, Bytes(256 << 20), "a test").unwrap();
    let put = |values: &[bf16]| -> Buffer<bf16> {
        let buffer = pool.buffer(values.len()).unwrap();
        stream.upload(values, buffer.ptr()).unwrap();
        buffer
    };
    let put_floats = |values: &[f32]| -> Buffer<f32> {
        let buffer = pool.buffer(values.len()).unwrap();
        stream.upload(values, buffer.ptr()).unwrap();
        buffer
    };
    let scale = |row: usize| 0.5 + (row % 7) as f32 / 4.0;
    // Whole tiles; sizes that no tile divides; an odd number of tiles; fewer rows than a tile.
    for (m, n, k) in [(256, 256, 128), (300, 264, 136), (700, 520, 64), (5, 8, 8)] {
        let mut draw = draws((m * n + k) as u64);
        let mut list = |len: usize, scale: f32| -> Vec<bf16> {
            (0..len).map(|_| bf16::from_f32(scale * draw())).collect()
        };
        let (a, gate_up) = (list(m * k, 4.0), list(2 * n * k, 1.0));
        let sums = transposed_product(&a, &gate_up, k);
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let mut want = Vec::with_capacity(m * n);
        for (at, row) in sums.chunks(2 * n).enumerate() {
            let scale = f64::from(scale(at));
            want.extend((0..n).map(|j| silu(scale * row[j]) * scale * row[n + j]));
        }
        let scales = put_floats(&(0..m).map(scale).collect::<Vec<_>>());
        // What is not written shows, and so does what is written behind the end.
        let out = put(&vec![bf16::NAN; m * n + 64]);
        let (a_there, b_there) = (put(&a), put(&gate_up));
        let left = Matrix::new(a_there.ptr(), m, k);
        let right = Matrix::new(b_there.ptr(), 2 * n, k);
        let to = Matrix::new(out.ptr(), m, n);
        fused.gated(&stream, left, scales.ptr(), right, to).unwrap();
        let got = stream.download(out.ptr()).unwrap();
        assert!(got[m * n..].iter().all(|x| x.is_nan()), "{m}x{k}x{n}");
        let got: Vec<f64> = got[..m * n].iter().map(|&x| x.into()).collect();
        let error = distance(&got, &want);
        assert!(error < 4e-3, "gated {m}x{k}x{n}: {error:e}");
    }
    // Heads of queries, of keys and of values; the second case ends inside a tile.
    for (m, k, width, heads) in [(256, 128, 100, [4, 2, 2]), (300, 136, 7, [2, 2, 1])] {
        let n: usize = heads.iter().sum::<usize>() * 128;
        let mut draw = draws((m * n + k) as u64);
        let mut list =
            |len: usize| -> Vec<bf16> { (0..len).map(|_| bf16::from_f32(draw())).collect() };
        let (a, b, norms) = (list(m * k), list(n * k), [list(128), list(128)]);
        let angle = |t: usize, i: usize| (t % width) as f64 * 1e4f64.powf(-(i as f64) / 64.0);
        let table: Vec<f32> = (0..width * 64)
            .flat_map(|at| {
                let (sin, cos) = angle(at / 64, at % 64).sin_cos();
                [cos as f32, sin as f32]
            })
            .collect();
        let mut want = transposed_product(&a, &b, k);
        for (at, head) in want.chunks_mut(128).enumerate() {
            let (token, number) = (at / (n / 128), at % (n / 128));
            for x in head.iter_mut() {
                *x *= f64::from(scale(token));
            }
            let norm = match number {
                q if q < heads[0] => &norms[0],
                k if k < heads[0] + heads[1] => &norms[1],
                _ => continue,
            };
            let squares: f64 = head.iter().map(|x| x * x).sum();
            let normal = (squares / 128.0 + 1e-6).sqrt().recip();
            for (x, w) in head.iter_mut().zip(norm) {
                *x *= normal * f64::from(*w);
            }
            for i in 0..64 {
                let (sin, cos) = angle(token, i).sin_cos();
                let (u, v) = (head[i], head[64 + i]);
                (head[i], head[64 + i]) = (u * cos - v * sin, v * cos + u * sin);
            }
        }
        let out = put(&vec![bf16::NAN; m * n]);
        let (a_there, b_there) = (put(&a), put(&b));
        let (queries, keys) = (put(&norms[0]), put(&norms[1]));
        let table_there = put_floats(&table);
        let scales = put_floats(&(0..m).map(scale).collect::<Vec<_>>());
        let turn = HeadTurn {
            norms: [queries.ptr(), keys.ptr()],
            table: table_there.ptr(),
            width,
            heads: [heads[0], heads[1]],
            eps: 1e-6,
        };
        let left = Matrix::new(a_there.ptr(), m, k);
        let right = Matrix::new(b_there.ptr(), n, k);
        let to = Matrix::new(out.ptr(), m, n);
        fused
            .turned(&stream, left, scales.ptr(), right, to, &turn)
            .unwrap();
        let got = stream.download(out.ptr()).unwrap();
        let got: Vec<f64> = got.into_iter().map(f64::from).collect();
        let error = distance(&got, &want);
        assert!(error < 4e-3, "turned {m}x{k}x{n}: {error:e}");
        let odd = HeadTurn {
            heads: [heads[0] + 1, heads[1]],
            ..turn
        };
        let refused = fused
            .turned(&stream, left, scales.ptr(), right, to, &odd)
            .unwrap_err();
        assert!(refused.to_string().contains("even numbers"), "{refused}");
    }
}

// ---------------------------------------------------------------- forwards

/// A target on the CPU with weights that bf16 has, and its twin on the GPU.
struct Twins {
    cpu: Target,
    gpu: CudaTarget,
    pool: Arc<Pool>,
}

fn rounded(tensors: &Tensors) -> Tensors {
    let round = |t: &Tensor| {
        t.to_dtype(DType::BF16)
            .unwrap()
            .to_dtype(DType::F32)
            .unwrap()
    };
    tensors
        .iter()
        .map(|(name, t)| (name.clone(), round(t)))
        .collect()
}

impl Twins {
    fn new(gpu: &Arc<Gpu>, cpu: Target, attention: AttentionChoice, width: usize) -> Self {
        let shape = TargetShape::of(cpu.config()).unwrap();
        let kept = Kept {
            layers: shape.layers,
            head: false,
        };
        let source = WeightSource::Tensors(cpu.weights());
        let weights = TargetWeights::new(gpu, &shape, source, kept).unwrap();
        let options = TargetOptions {
            captures: Captures {
                layers: cpu.captured().to_vec(),
                last_hidden: true,
            },
            tokens_max: 8 * width,
            width_max: width,
            tuning: Tuning::Timed,
            attention,
        };
        Self {
            gpu: CudaTarget::new(&weights, options).unwrap(),
            pool: Pool::new(gpu, Bytes(1 << 30), "a test").unwrap(),
            cpu,
        }
    }

    /// Hidden states of the real tokens on the GPU: features and last.
    fn on_gpu(&mut self, batch: &PaddedBatch) -> [Vec<f64>; 2] {
        let rows = TokenRows::from(batch);
        let h = self.cpu.config().geometry.hidden_size;
        let wide = self.cpu.captured().len() * h;
        let features = self.pool.buffer::<bf16>(rows.ids.len() * wide).unwrap();
        let last = self.pool.buffer::<bf16>(rows.ids.len() * h).unwrap();
        // What is not written shows.
        let poison = vec![bf16::NAN; features.len().max(last.len())];
        let stream = self.gpu.stream().clone();
        stream
            .upload(&poison[..features.len()], features.ptr())
            .unwrap();
        stream.upload(&poison[..last.len()], last.ptr()).unwrap();
        let place = HiddenPlace {
            features: features.ptr(),
            last_hidden: Some(last.ptr()),
        };
        self.gpu.forward(&rows, place).unwrap();
        let features = stream.download(features.ptr()).unwrap();
        let last = stream.download(last.ptr()).unwrap();
        assert!(
            features.iter().chain(&last).all(|x| x.is_finite()),
            "pads are finite"
        );
        [(features, wide), (last, h)].map(|(values, width)| {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            real(&values, batch, width)
        })
    }

    fn on_cpu(&self, batch: &PaddedBatch) -> [Vec<f64>; 2] {
        let h = self.cpu.config().geometry.hidden_size;
        let states = self.cpu.forward(batch).unwrap();
        let features = numbers(&states.features);
        let last = numbers(&states.last_hidden.unwrap());
        [
            real(&features, batch, self.cpu.captured().len() * h),
            real(&last, batch, h),
        ]
    }
}

/// The numbers of the tokens that are no padding.
fn real(values: &[f64], batch: &PaddedBatch, width: usize) -> Vec<f64> {
    let row = batch.padded_tokens() * width;
    let rows = values.chunks(row).zip(&batch.lengths);
    rows.flat_map(|(row, &n)| row[..n * width].to_vec())
        .collect()
}

fn batch(vocab: u64, lengths: &[usize], padded: usize) -> PaddedBatch {
    let mut draw = draws(padded as u64);
    let ids: Vec<Vec<u32>> = lengths
        .iter()
        .map(|&n| {
            (0..n)
                .map(|_| ((draw() + 0.5) * vocab as f32) as u32 % vocab as u32)
                .collect()
        })
        .collect();
    let masks: Vec<Vec<bool>> = lengths.iter().map(|&n| vec![true; n]).collect();
    let samples: Vec<Sample<'_>> = ids
        .iter()
        .zip(&masks)
        .map(|(input_ids, loss_mask)| Sample {
            input_ids,
            loss_mask,
        })
        .collect();
    PaddedBatch::new(&samples, padded).unwrap()
}

fn config(architecture: &str, [hidden, inner, layers, heads, kv, dim]: [usize; 6]) -> TargetConfig {
    let json = json!({
        "architectures": [architecture], "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
        "head_dim": dim, "vocab_size": 500, "rope_theta": 1e4, "tie_word_embeddings": true,
        "initializer_range": 0.08,
    });
    TargetConfig::from_json(json, "test").unwrap()
}

fn against_cpu(name: &str, architecture: &str, sizes: [usize; 6], attention: AttentionChoice) {
    let Some(gpu) = gpu() else { return };
    let captured = [0, 2, sizes[2] - 1];
    let random = Target::random(config(architecture, sizes), 5, &captured, &Device::Cpu).unwrap();
    let cpu = Target::from_tensors(
        random.config().clone(),
        &rounded(random.weights()),
        &captured,
        "test",
    )
    .unwrap()
    .with_last_hidden(true);
    let mut twins = Twins::new(&gpu, cpu, attention, 200);
    for (lengths, padded) in [
        (vec![200, 131, 7], 200),
        (vec![64, 64], 64),
        (vec![1], 1),
        (vec![129], 130),
    ] {
        let batch = batch(500, &lengths, padded);
        let (got, want) = (twins.on_gpu(&batch), twins.on_cpu(&batch));
        let errors = [0, 1].map(|n| distance(&got[n], &want[n]));
        let how = twins.gpu.attention();
        eprintln!(
            "{name} {lengths:?}: features {:.2e} last {:.2e} ({how})",
            errors[0], errors[1]
        );
        assert!(
            errors.iter().all(|&e| e < FEATURES),
            "{name} {lengths:?}: {errors:?}"
        );
    }
}

#[test]
fn a_geometry_like_qwen_matches_the_cpu() {
    let sizes = [256, 384, 4, 4, 2, 128];
    against_cpu("qwen, own", "Qwen3ForCausalLM", sizes, AttentionChoice::Own);
    against_cpu("qwen", "Qwen3ForCausalLM", sizes, AttentionChoice::Fastest);
}

#[test]
fn a_geometry_like_smollm_matches_the_cpu() {
    let sizes = [192, 256, 4, 3, 1, 64];
    against_cpu(
        "smollm, own",
        "LlamaForCausalLM",
        sizes,
        AttentionChoice::Own,
    );
    against_cpu(
        "smollm",
        "LlamaForCausalLM",
        sizes,
        AttentionChoice::Fastest,
    );
}

#[test]
fn other_head_widths_match_the_cpu() {
    for dim in [16, 32, 96] {
        against_cpu(
            "plain",
            "Qwen3ForCausalLM",
            [128, 96, 4, 4, 2, dim],
            AttentionChoice::Fastest,
        );
    }
}

/// The case's folder: in the source tree, or under the folder that the test is run in.
fn data(name: &str) -> PathBuf {
    recorded("parity").join(name)
}

fn recorded(name: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let here = Path::new("exec/tests/data");
    let folder = if built.exists() {
        built.as_path()
    } else {
        here
    };
    folder.join(name)
}

/// Gated delta layers between gated attention, heads of the widths that released models have.
fn hybrid() -> TargetConfig {
    let json = json!({
        "architectures": ["Qwen3_5ForCausalLM"], "hidden_size": 256, "intermediate_size": 384, "num_hidden_layers": 5,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 500, "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
        "full_attention_interval": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
        "tie_word_embeddings": true, "initializer_range": 0.06,
    });
    TargetConfig::from_json(json, "test").unwrap()
}

#[test]
fn a_hybrid_matches_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let captured = [0, 2, 3, 4];
    let random = Target::random(hybrid(), 5, &captured, &Device::Cpu).unwrap();
    // Decays from hardly any to half a token's, and norms that are not 1.
    let mut draw = draws(77);
    let mut tensors = rounded(random.weights());
    for (name, tensor) in &mut tensors {
        let vector = |of: &mut dyn FnMut() -> f32| {
            let values: Vec<f32> = (0..tensor.elem_count()).map(|_| of()).collect();
            Tensor::from_vec(values, tensor.dims(), &Device::Cpu).unwrap()
        };
        if name.ends_with("A_log") {
            *tensor = vector(&mut || -5.0 + 10.0 * (draw() + 0.5) * 0.5);
        } else if name.ends_with("dt_bias") || name.contains("norm") {
            *tensor = vector(&mut || 0.5 * draw());
        }
    }
    let tensors = rounded(&tensors);
    let cpu = Target::from_tensors(random.config().clone(), &tensors, &captured, "test")
        .unwrap()
        .with_last_hidden(true);
    let mut twins = Twins::new(&gpu, cpu, AttentionChoice::Fastest, 330);
    for (lengths, padded) in [
        (vec![330, 131, 7], 330),
        (vec![64, 64], 64),
        (vec![1], 1),
        (vec![3, 2, 1, 5], 5),
        (vec![129], 130),
    ] {
        let batch = batch(500, &lengths, padded);
        let (got, want) = (twins.on_gpu(&batch), twins.on_cpu(&batch));
        let errors = [0, 1].map(|n| distance(&got[n], &want[n]));
        let how = twins.gpu.attention();
        eprintln!(
            "hybrid {lengths:?}: features {:.2e} last {:.2e} ({how})",
            errors[0], errors[1]
        );
        assert!(
            errors.iter().all(|&e| e < 1.5 * FEATURES),
            "{lengths:?}: {errors:?}"
        );
    }
}

/// How far transformers itself is off when it runs the recorded hybrid in bf16: the outputs of its layers, and the last hidden state.
/// With 32 features, roundings do not average out as they do in a real model.
const HYBRID_BF16: [f64; 4] = [1.13e-2, 2.20e-2, 5.18e-2, 5.63e-2];
const HYBRID_LAST_BF16: f64 = 9.17e-2;

/// A tiny hybrid with heads of odd widths, against what another implementation recorded.
#[test]
fn the_recorded_hybrid_matches() {
    let Some(gpu) = gpu() else { return };
    let captured: Vec<usize> = (0..5).collect();
    let folder = recorded("qwen3_5");
    let cpu = Target::load(&folder, &captured, &Device::Cpu)
        .unwrap()
        .with_last_hidden(true);
    let ids = safetensors::load(folder.join("expected.safetensors"), &Device::Cpu).unwrap();
    let rows = ids["input_ids"].to_dtype(DType::I64).unwrap();
    let rows: Vec<Vec<u32>> = rows
        .to_vec2::<i64>()
        .unwrap()
        .into_iter()
        .map(|row| row.into_iter().map(|id| id as u32).collect())
        .collect();
    let width = rows[0].len();
    let mut twins = Twins::new(&gpu, cpu, AttentionChoice::Fastest, width);
    let masks: Vec<Vec<bool>> = rows.iter().map(|row| vec![true; row.len()]).collect();
    let samples: Vec<Sample<'_>> = rows
        .iter()
        .zip(&masks)
        .map(|(input_ids, loss_mask)| Sample {
            input_ids,
            loss_mask,
        })
        .collect();
    let batch = PaddedBatch::new(&samples, width).unwrap();
    let got = twins.on_gpu(&batch);
    let last = numbers(&ids["last_hidden"]);
    let h = twins.cpu.config().geometry.hidden_size;
    for (n, got) in got[0]
        .chunks(5 * h)
        .flat_map(|token| token.chunks(h).enumerate())
        .fold(
            vec![Vec::new(); 5],
            |mut layers: Vec<Vec<f64>>, (n, part)| {
                layers[n].extend_from_slice(part);
                layers
            },
        )
        .iter()
        .enumerate()
    {
        let error = distance(got, &numbers(&ids[&format!("layer.{n}")]));
        eprintln!("recorded hybrid, layer {n}: {error:.2e}");
        let limit = HYBRID_BF16.get(n).unwrap_or(&HYBRID_LAST_BF16);
        assert!(error < 1.3 * limit, "layer {n}: {error:e}");
    }
    let error = distance(&got[1], &last);
    eprintln!("recorded hybrid, last hidden: {error:.2e}");
    assert!(error < 1.3 * HYBRID_LAST_BF16, "last hidden: {error:e}");
}

#[test]
fn the_reference_case_matches() {
    let Some(gpu) = gpu() else { return };
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(data("case.json")).unwrap()).unwrap();
    let captured: Vec<usize> = serde_json::from_value(json["target_layer_ids"].clone()).unwrap();
    let cpu = Target::load(&data("target"), &captured, &Device::Cpu)
        .unwrap()
        .with_last_hidden(true);
    let mut twins = Twins::new(&gpu, cpu, AttentionChoice::Fastest, 64);
    let read = |name: &str| -> BTreeMap<String, Tensor> {
        safetensors::load(data(name), &Device::Cpu)
            .unwrap()
            .into_iter()
            .collect()
    };
    let (inputs, expected) = (read("batch.safetensors"), read("expected_f32.safetensors"));
    for m in 0..2 {
        let rows = inputs[&format!("mb{m}.input_ids")]
            .to_vec2::<i64>()
            .unwrap();
        let lengths = inputs[&format!("mb{m}.lengths")].to_vec1::<i64>().unwrap();
        let batch = PaddedBatch {
            input_ids: rows
                .iter()
                .map(|r| r.iter().map(|&t| t as u32).collect())
                .collect(),
            lengths: lengths.iter().map(|&n| n as usize).collect(),
            loss_mask: rows.iter().map(|r| vec![true; r.len()]).collect(),
        };
        let got = twins.on_gpu(&batch);
        let h = twins.cpu.config().geometry.hidden_size;
        for (n, (name, width)) in [("features", captured.len() * h), ("last_hidden", h)]
            .into_iter()
            .enumerate()
        {
            let want = real(&numbers(&expected[&format!("mb{m}.{name}")]), &batch, width);
            let error = distance(&got[n], &want);
            eprintln!("reference case, mb{m}.{name}: {error:.2e}");
            assert!(error < FEATURES, "mb{m}.{name}: {error:e}");
        }
    }
}

/// Products that are one kernel with the norm before them and with what follows, on a target whose norms have weights.
#[test]
fn a_forward_of_fused_products_matches_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let (sizes, captured) = ([256, 328, 3, 4, 2, 128], [0, 2]);
    let config = config("Qwen3ForCausalLM", sizes);
    let random = Target::random(config, 5, &captured, &Device::Cpu).unwrap();
    let mut draw = draws(3);
    let weights = random.weights().iter().map(|(name, t)| {
        let mut near_one = || -> Vec<f32> { (0..t.elem_count()).map(|_| 1.0 + draw()).collect() };
        let t = match name.contains("norm") {
            true => Tensor::from_vec(near_one(), t.shape(), &Device::Cpu).unwrap(),
            false => t.clone(),
        };
        (name.clone(), t)
    });
    let weights = rounded(&weights.collect());
    let cpu = Target::from_tensors(random.config().clone(), &weights, &captured, "test")
        .unwrap()
        .with_last_hidden(true);
    let mut twins = Twins::new(&gpu, cpu, AttentionChoice::Fastest, 200);
    twins.gpu.fuse_always().unwrap();
    for (lengths, padded) in [(vec![200, 131, 7], 200), (vec![129], 130), (vec![1], 1)] {
        let batch = batch(500, &lengths, padded);
        let (got, want) = (twins.on_gpu(&batch), twins.on_cpu(&batch));
        let errors = [0, 1].map(|n| distance(&got[n], &want[n]));
        let how = twins.gpu.fused();
        eprintln!(
            "fused {lengths:?}: features {:.2e} last {:.2e} ({how})",
            errors[0], errors[1]
        );
        assert!(errors.iter().all(|&e| e < FEATURES), "{errors:?}");
        let is_hopper = gpu.capability() == (9, 0);
        assert_eq!(how.contains("gate/up, heads"), is_hopper, "{how}");
    }
}

#[test]
fn random_weights_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let cpu = Target::random(
        config("Qwen3ForCausalLM", [64, 80, 2, 4, 2, 16]),
        9,
        &[0],
        &Device::Cpu,
    )
    .unwrap();
    let shape = TargetShape::of(cpu.config()).unwrap();
    let source = WeightSource::Random { seed: 9, std: 0.08 };
    let weights = TargetWeights::new(
        &gpu,
        &shape,
        source,
        Kept {
            layers: 2,
            head: false,
        },
    )
    .unwrap();
    let stream = Stream::new(&gpu).unwrap();
    let got: Vec<f64> = stream
        .download(weights.embed().ptr())
        .unwrap()
        .into_iter()
        .map(f64::from)
        .collect();
    let want = numbers(&cpu.embed().to_dtype(DType::BF16).unwrap());
    let error = distance(&got, &want);
    eprintln!("random embedding: {error:.2e}");
    assert!(error < 1e-3, "{error:e}");
}

#[test]
fn long_rows_are_the_same_by_both_attentions() {
    let Some(gpu) = gpu() else { return };
    for (architecture, sizes) in [
        ("Qwen3ForCausalLM", [256, 384, 2, 8, 2, 128]),
        ("LlamaForCausalLM", [192, 256, 2, 3, 1, 64]),
    ] {
        let target = Target::random(config(architecture, sizes), 3, &[0, 1], &Device::Cpu).unwrap();
        let batch = batch(500, &[1500, 700, 1499], 1500);
        let [own, fastest] = [AttentionChoice::Own, AttentionChoice::Fastest].map(|attention| {
            let mut twins = Twins::new(&gpu, target.clone(), attention, 1500);
            let states = twins.on_gpu(&batch);
            eprintln!("long rows: {}", twins.gpu.attention());
            states
        });
        let errors = [0, 1].map(|n| distance(&own[n], &fastest[n]));
        eprintln!(
            "long rows, own against fastest: {:.2e} {:.2e}",
            errors[0], errors[1]
        );
        assert!(errors.iter().all(|&e| e < FEATURES), "{errors:?}");
    }
}

/// A real target, where `DFLASH_SMOLLM2` names its file.
#[test]
fn a_real_target_matches_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let Some(path) = std::env::var_os("DFLASH_SMOLLM2") else {
        return;
    };
    let captured = [1, 8, 15, 22, 28];
    let cpu = Target::load(Path::new(&path), &captured, &Device::Cpu)
        .unwrap()
        .with_last_hidden(true);
    let mut twins = Twins::new(&gpu, cpu, AttentionChoice::Fastest, 64);
    let batch = batch(40_000, &[64, 33], 64);
    let (got, want) = (twins.on_gpu(&batch), twins.on_cpu(&batch));
    let errors = [0, 1].map(|n| distance(&got[n], &want[n]));
    eprintln!(
        "real target: features {:.2e} last {:.2e}",
        errors[0], errors[1]
    );
    assert!(errors[1] < 6e-2, "{errors:?}");
}

// ---------------------------------------------------------------- without a GPU

/// Kernels compile for every architecture that this program is for. `DFLASH_NVRTC=1` says that there must be a compiler.
#[test]
fn all_kernels_compile() {
    if let Err(error) = compiler_version() {
        let must = std::env::var("DFLASH_NVRTC").is_ok_and(|value| value == "1");
        assert!(!must, "DFLASH_NVRTC=1 and {error}");
        return;
    }
    let Family::Qwen3_5(wide) = hybrid().family else {
        panic!("a hybrid")
    };
    let narrow = Hybrid {
        key_head_dim: 8,
        value_head_dim: 12,
        ..wide.clone()
    };
    let texts = [&wide, &narrow].map(hybrid_kernel_text);
    let hybrids = texts.iter().map(|(file, text)| Source { file, text });
    for source in kernel_sources().into_iter().chain(hybrids) {
        for arch in ["sm_80", "sm_90a", "sm_100a"] {
            let image = compile(&source, arch).unwrap();
            assert!(image.len() > 1000, "{} for {arch}", source.file);
        }
    }
    for source in hopper_kernel_sources() {
        let image = compile(&source, "sm_90a").unwrap();
        assert!(image.len() > 1000, "{}", source.file);
    }
}

#[test]
fn a_machine_without_a_driver_is_named() {
    if let Err(error) = Gpu::open(0) {
        let text = error.to_string();
        assert!(text.ends_with("use --backend cpu"), "{text}");
    }
}
