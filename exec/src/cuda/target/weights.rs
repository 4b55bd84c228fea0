//! A target's weights in bf16 on one GPU, shared by the workers there.

use super::ops::Ops;
use super::shape::TargetShape;
use crate::cuda::{Buffer, CudaError, Gpu, Pool, Ptr, Stream};
use crate::model::{Tensors, hash};
use half::bf16;
use std::sync::Arc;

/// Where weights come from, by their released names.
#[derive(Debug, Clone, Copy)]
pub enum WeightSource<'a> {
    /// Tensors on the host, rounded to bf16.
    Tensors(&'a Tensors),
    /// Normal draws, made on the device: those of [`crate::model::Target::random`], rounded. Norms are 1.
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
    /// Queries, keys and values [(heads + 2 key heads) · D, H].
    pub(super) qkv: Buffer<bf16>,
    pub(super) head_norms: Option<[Buffer<bf16>; 2]>,
    pub(super) output: Buffer<bf16>,
    pub(super) feed_forward_norm: Buffer<bf16>,
    /// Gate and up [2 · inner, H].
    pub(super) gate_up: Buffer<bf16>,
    pub(super) down: Buffer<bf16>,
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
        };
        let (h, d) = (shape.hidden, shape.head_dim);
        let layer = |n: usize| -> Result<LayerWeights, CudaError> {
            let prefix = format!("model.layers.{n}.");
            let fill = |parts: &[(&str, usize)]| filler.fill(&prefix, parts);
            let norms = || -> Result<[Buffer<bf16>; 2], CudaError> {
                Ok([
                    fill(&[("self_attn.q_norm", d)])?,
                    fill(&[("self_attn.k_norm", d)])?,
                ])
            };
            Ok(LayerWeights {
                input_norm: fill(&[("input_layernorm", h)])?,
                qkv: fill(&[
                    ("self_attn.q_proj", shape.queries() * h),
                    ("self_attn.k_proj", shape.keys() * h),
                    ("self_attn.v_proj", shape.keys() * h),
                ])?,
                head_norms: shape.head_norms.then(norms).transpose()?,
                output: fill(&[("self_attn.o_proj", h * shape.queries())])?,
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
}

impl Filler<'_> {
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

    fn put(&self, name: &str, to: Ptr<bf16>) -> Result<(), CudaError> {
        match self.source {
            WeightSource::Random { .. } if name.contains("norm") => {
                self.ops.fill(&self.stream, to, 1.0)
            }
            WeightSource::Random { seed, std } => {
                self.ops
                    .normals(&self.stream, to, stream_of(seed, name), std)
            }
            WeightSource::Tensors(tensors) => {
                let wrong = |problem: String| CudaError::Shape(format!("weight {name}: {problem}"));
                let tensor = tensors
                    .get(name)
                    .ok_or_else(|| wrong("is missing".to_owned()))?;
                let values = tensor
                    .flatten_all()
                    .and_then(|t| t.to_vec1::<f32>())
                    .map_err(|error| wrong(error.to_string()))?;
                if values.len() != to.len() {
                    let have = values.len();
                    return Err(wrong(format!(
                        "has {have} numbers, {} are wanted",
                        to.len()
                    )));
                }
                let values: Vec<bf16> = values.into_iter().map(bf16::from_f32).collect();
                self.stream.upload(&values, to)
            }
        }
    }
}

/// The stream of draws that `name` has under `seed`, as on the CPU.
fn stream_of(seed: u64, name: &str) -> u64 {
    let begin = hash(&[seed]);
    name.bytes()
        .fold(begin, |state, byte| hash(&[state, byte.into()]))
}

const HEAD: &str = "lm_head.weight";
