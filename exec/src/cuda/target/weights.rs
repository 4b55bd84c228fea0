//! A target's weights in bf16 on one GPU, shared by the workers there.

use super::delta::DeltaWeights;
use super::ops::Ops;
use super::shape::TargetShape;
use crate::cuda::{Buffer, CudaError, FusedProducts, Gpu, Pool, Ptr, Stream};
use crate::model::{Hybrid, Tensors, hash, normals};
use candle_core::{DType, Tensor};
use half::bf16;
use std::sync::Arc;

/// Where weights come from, by their released names.
#[derive(Debug, Clone, Copy)]
pub enum WeightSource<'a> {
    /// Tensors on the host, rounded to bf16.
    Tensors(&'a Tensors),
    /// Normal draws, made on the device: those of [`crate::model::Target::random`], rounded. Norms multiply by 1.
    Random {
        /// The seed.
        seed: u64,
        /// Their spread.
        std: f64,
    },
}

/// Weights of the layers that run.
#[derive(Debug)]
pub struct TargetWeights {
    pub(super) shape: TargetShape,
    pub(super) embed: Arc<Buffer<bf16>>,
    pub(super) head: Option<Arc<Buffer<bf16>>>,
    pub(super) norm: Buffer<bf16>,
    pub(super) layers: Vec<LayerWeights>,
}

/// Weights of one layer; matrices that are multiplied with the same input lie side by side.
#[derive(Debug)]
pub(super) struct LayerWeights {
    pub(super) input_norm: Buffer<bf16>,
    pub(super) mixer: Mixer,
    pub(super) feed_forward_norm: Buffer<bf16>,
    /// Gate and up [2 · inner, H].
    pub(super) gate_up: Buffer<bf16>,
    pub(super) down: Buffer<bf16>,
}

/// What mixes the tokens of a layer.
#[derive(Debug)]
pub(super) enum Mixer {
    Attention(AttentionWeights),
    Delta(DeltaWeights),
}

/// Weights of softmax attention.
#[derive(Debug)]
pub(super) struct AttentionWeights {
    /// Queries, keys and values [(heads + 2 key heads) · D, H]; where the output is gated, gates below them [heads · D, H].
    pub(super) qkv: Buffer<bf16>,
    pub(super) head_norms: Option<[Buffer<bf16>; 2]>,
    pub(super) output: Buffer<bf16>,
}

/// Which weights are kept on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Layers from the first on.
    pub layers: usize,
    /// Whether the output head is kept: drafters on the same GPU share it.
    pub head: bool,
}

impl TargetWeights {
    /// Takes memory of the GPU and fills it.
    ///
    /// # Errors
    /// Not enough memory; a tensor that is missing or of another size.
    pub fn new(
        gpu: &Arc<Gpu>,
        shape: &TargetShape,
        source: WeightSource<'_>,
        kept: Kept,
    ) -> Result<Arc<Self>, CudaError> {
        let tied = matches!(source, WeightSource::Tensors(t) if !t.contains_key(HEAD));
        let size = shape.weight_bytes(kept.layers, tied, kept.head);
        let pool = Pool::new(gpu, size, "the target's weights")?;
        let stream = Stream::new(gpu)?;
        let filler = Filler {
            ops: Ops::new(gpu)?,
            pool,
            stream,
            source,
            norm: 1.0 - shape.norm_offset,
        };
        let h = shape.hidden;
        let layer = |n: usize| -> Result<LayerWeights, CudaError> {
            let prefix = format!("model.layers.{n}.");
            let fill = |parts: &[(&str, usize)]| filler.fill(&prefix, parts);
            let mixer = match shape.delta_of(n) {
                Some(d) => Mixer::Delta(filler.delta(&format!("{prefix}linear_attn."), d, h)?),
                None => Mixer::Attention(filler.attention(&prefix, shape)?),
            };
            Ok(LayerWeights {
                input_norm: fill(&[("input_layernorm", h)])?,
                mixer,
                feed_forward_norm: fill(&[("post_attention_layernorm", h)])?,
                gate_up: fill(&[
                    ("mlp.gate_proj", shape.inner * h),
                    ("mlp.up_proj", shape.inner * h),
                ])?,
                down: fill(&[("mlp.down_proj", h * shape.inner)])?,
            })
        };
        let weights = Self {
            embed: Arc::new(filler.fill("model.", &[("embed_tokens", shape.vocab * h)])?),
            head: (kept.head && !tied)
                .then(|| filler.fill("", &[("lm_head", shape.vocab * h)]))
                .transpose()?
                .map(Arc::new),
            norm: filler.fill("model.", &[("norm", h)])?,
            layers: (0..kept.layers).map(layer).collect::<Result<_, _>>()?,
            shape: shape.clone(),
        };
        if FusedProducts::fit(gpu) {
            for layer in &weights.layers {
                filler.fold_norms(layer, shape)?;
            }
        }
        filler.stream.synchronize()?;
        Ok(Arc::new(weights))
    }

    /// The embedding [V, H].
    pub fn embed(&self) -> &Arc<Buffer<bf16>> {
        &self.embed
    }

    /// The output head [V, H]: its own, or the embedding where they are tied.
    pub fn head(&self) -> &Arc<Buffer<bf16>> {
        self.head.as_ref().unwrap_or(&self.embed)
    }

    /// The sizes.
    pub fn shape(&self) -> &TargetShape {
        &self.shape
    }
}

/// Fills buffers from a source.
struct Filler<'a> {
    ops: Ops,
    pool: Arc<Pool>,
    stream: Stream,
    source: WeightSource<'a>,
    /// What norms of random weights hold.
    norm: f32,
}

impl Filler<'_> {
    /// Multiplies the norms' weights into the matrices that the normalised rows are multiplied with, where that may be one kernel (see
    /// `fusing`). What is left of the norm is a scale for each row; its weights are 1 from then on.
    fn fold_norms(&self, w: &LayerWeights, shape: &TargetShape) -> Result<(), CudaError> {
        let fold = |norm: &Buffer<bf16>, matrix: &Buffer<bf16>| -> Result<(), CudaError> {
            let (s, offset) = (&self.stream, shape.norm_offset);
            self.ops
                .scale_columns(s, matrix.ptr(), norm.ptr(), offset)?;
            self.ops.fill(s, norm.ptr(), 1.0 - offset)
        };
        fold(&w.feed_forward_norm, &w.gate_up)?;
        match &w.mixer {
            Mixer::Attention(mixer) if shape.turns_in_pairs() => fold(&w.input_norm, &mixer.qkv),
            Mixer::Attention(_) | Mixer::Delta(_) => Ok(()),
        }
    }

    /// A buffer of the named weights, one behind the other.
    fn fill(&self, prefix: &str, parts: &[(&str, usize)]) -> Result<Buffer<bf16>, CudaError> {
        let buffer = self.pool.buffer(parts.iter().map(|(_, len)| len).sum())?;
        let mut start = 0;
        for (name, len) in parts {
            let name = format!("{prefix}{name}.weight");
            self.put(&name, buffer.ptr().at(start..start + len))?;
            start += len;
        }
        Ok(buffer)
    }

    fn attention(&self, prefix: &str, s: &TargetShape) -> Result<AttentionWeights, CudaError> {
        let (h, d) = (s.hidden, s.head_dim);
        let (keys, queries) = (s.keys() * h, s.queries() * h);
        let fill = |parts: &[(&str, usize)]| self.fill(prefix, parts);
        let norms = || -> Result<[Buffer<bf16>; 2], CudaError> {
            Ok([
                fill(&[("self_attn.q_norm", d)])?,
                fill(&[("self_attn.k_norm", d)])?,
            ])
        };
        let qkv = match s.delta {
            None => fill(&[
                ("self_attn.q_proj", queries),
                ("self_attn.k_proj", keys),
                ("self_attn.v_proj", keys),
            ])?,
            Some(_) => {
                let buffer = self.pool.buffer(s.attention_row() * h)?;
                let ptr = buffer.ptr();
                self.put_gated(&format!("{prefix}self_attn.q_proj.weight"), ptr, s)?;
                let places = [("k_proj", queries), ("v_proj", queries + keys)];
                for (name, first) in places {
                    let to = ptr.at(first..first + keys);
                    self.put(&format!("{prefix}self_attn.{name}.weight"), to)?;
                }
                buffer
            }
        };
        Ok(AttentionWeights {
            qkv,
            head_norms: s.head_norms.then(norms).transpose()?,
            output: fill(&[("self_attn.o_proj", h * s.queries())])?,
        })
    }

    /// A projection that holds each head's queries and then its gates: queries go to the start of `to`, gates behind queries, keys and
    /// values.
    fn put_gated(&self, name: &str, to: Ptr<bf16>, s: &TargetShape) -> Result<(), CudaError> {
        let head = s.head_dim * s.hidden;
        // Heads alternate in the source alone, so the whole is put apart first.
        let whole = Pool::new(
            self.stream.gpu(),
            shared::id::Bytes((4 * s.heads * head) as u64),
            "a layer's queries and gates",
        )?;
        let both = whole.buffer::<bf16>(2 * s.heads * head)?;
        self.put(name, both.ptr())?;
        let gates = s.qkv() * s.hidden;
        for n in 0..s.heads {
            let part = |first: usize| both.ptr().at(first..first + head);
            let place = |first: usize| to.at(first..first + head);
            self.stream.copy(part(2 * n * head), place(n * head))?;
            let gate = part((2 * n + 1) * head);
            self.stream.copy(gate, place(gates + n * head))?;
        }
        Ok(())
    }

    fn delta(&self, prefix: &str, d: &Hybrid, h: usize) -> Result<DeltaWeights, CudaError> {
        let fill = |parts: &[(&str, usize)]| self.fill(prefix, parts);
        let (channels, values, heads) = (d.conv_width(), d.value_width(), d.value_heads);
        let wide = |values: &[f32]| -> Result<Buffer<f32>, CudaError> {
            let buffer = self.pool.buffer(values.len())?;
            self.stream.upload(values, buffer.ptr())?;
            Ok(buffer)
        };
        let conv = self.numbers(&format!("{prefix}conv1d.weight"), channels * d.conv_kernel)?;
        // [channels, taps] as released.
        let tap = |at: usize| conv[at % channels * d.conv_kernel + at / channels];
        let taps: Vec<f32> = (0..conv.len()).map(tap).collect();
        let logs = self.numbers(&format!("{prefix}A_log"), heads)?;
        let rates: Vec<f32> = logs.iter().map(|log| -log.exp()).collect();
        Ok(DeltaWeights {
            projections: fill(&[
                ("in_proj_qkv", channels * h),
                ("in_proj_z", values * h),
                ("in_proj_b", heads * h),
                ("in_proj_a", heads * h),
            ])?,
            taps: wide(&taps)?,
            bias: wide(&self.numbers(&format!("{prefix}dt_bias"), heads)?)?,
            rate: wide(&rates)?,
            norm: fill(&[("norm", d.value_head_dim)])?,
            out: fill(&[("out_proj", h * values)])?,
        })
    }

    /// A small tensor on the host, as it is.
    fn numbers(&self, name: &str, len: usize) -> Result<Vec<f32>, CudaError> {
        match self.source {
            // As on the CPU: vectors that are no norms begin at 0.
            WeightSource::Random { seed, std } if name.ends_with("weight") => {
                Ok(normals(seed, name, len, std))
            }
            WeightSource::Random { .. } => Ok(vec![0.0; len]),
            WeightSource::Tensors(tensors) => {
                let values = tensor(tensors, name, len)?
                    .to_dtype(DType::F32)
                    .and_then(|t| t.flatten_all()?.to_vec1());
                values.map_err(|error| wrong(name, error))
            }
        }
    }

    fn put(&self, name: &str, to: Ptr<bf16>) -> Result<(), CudaError> {
        match self.source {
            WeightSource::Random { .. } if name.contains("linear_attn.norm") => {
                self.ops.fill(&self.stream, to, 1.0)
            }
            WeightSource::Random { .. } if name.contains("norm") => {
                self.ops.fill(&self.stream, to, self.norm)
            }
            WeightSource::Random { seed, std } => {
                self.ops
                    .normals(&self.stream, to, stream_of(seed, name), std)
            }
            WeightSource::Tensors(tensors) => {
                // Tensors that are bf16 already are sent as they are.
                let values = tensor(tensors, name, to.len())?
                    .to_dtype(DType::BF16)
                    .and_then(|t| t.flatten_all()?.to_vec1::<bf16>());
                let values = values.map_err(|error| wrong(name, error))?;
                self.stream.upload(&values, to)
            }
        }
    }
}

/// A tensor of `len` numbers.
fn tensor<'a>(tensors: &'a Tensors, name: &str, len: usize) -> Result<&'a Tensor, CudaError> {
    let tensor = tensors.get(name).ok_or_else(|| wrong(name, "is missing"))?;
    let have = tensor.elem_count();
    match have == len {
        true => Ok(tensor),
        false => Err(wrong(name, format!("has {have} numbers, {len} are wanted"))),
    }
}

fn wrong(name: &str, problem: impl std::fmt::Display) -> CudaError {
    CudaError::Shape(format!("weight {name}: {problem}"))
}

/// The stream of draws that `name` has under `seed`, as on the CPU.
fn stream_of(seed: u64, name: &str) -> u64 {
    let begin = hash(&[seed]);
    name.bytes()
        .fold(begin, |state, byte| hash(&[state, byte.into()]))
}

const HEAD: &str = "lm_head.weight";
