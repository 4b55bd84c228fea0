//! The frozen target on a GPU, in bf16.
//!
//! A forward's rows stay padded as the microbatch is. The residual stream is kept in bf16 and added to inside the matrix products;
//! norms write the captured layers' outputs straight into the hidden states while they read them.

pub(in crate::cuda) mod attention;
mod delta;
mod fusing;
pub(in crate::cuda) mod ops;
mod shape;
mod weights;

use super::{CudaError, FusedProducts, Gemm, Matrix, Pool, Ptr, Stream, Tuning};
use crate::model::PaddedBatch;
use attention::{Attention, Extent};
use delta::{DeltaKernels, DeltaWeights};
use fusing::Fused;
use half::bf16;
use ops::{Ops, Rows};
use shared::id::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use weights::{AttentionWeights, LayerWeights, Mixer};

pub use shape::TargetShape;
pub use weights::{Kept, TargetWeights, WeightSource};

/// What a forward gives: which layers, and whether the last hidden state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captures {
    /// Layers whose outputs are concatenated, in this order.
    pub layers: Vec<usize>,
    /// Whether the last hidden state, after the final norm, is given too. Without it the layers above the last captured one are skipped.
    pub last_hidden: bool,
}

impl Captures {
    /// Layers that run, of `all`.
    pub fn depth(&self, all: usize) -> usize {
        match self.last_hidden {
            true => all,
            false => self.layers.iter().max().map_or(0, |id| id + 1),
        }
    }

    /// Elements that a token's hidden states have, for a target of width `hidden`.
    pub fn elements_per_token(&self, hidden: usize) -> usize {
        (self.layers.len() + usize::from(self.last_hidden)) * hidden
    }
}

/// Token rows, right-padded, as a forward takes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRows {
    /// Tokens [rows · width].
    pub ids: Vec<u32>,
    /// Tokens of each row that are no padding `[rows]`.
    pub lengths: Vec<u32>,
    /// Tokens a row.
    pub width: usize,
}

impl From<&PaddedBatch> for TokenRows {
    fn from(batch: &PaddedBatch) -> Self {
        Self {
            ids: batch.input_ids.concat(),
            lengths: batch.lengths.iter().map(|&n| n as u32).collect(),
            width: batch.padded_tokens(),
        }
    }
}

/// Where a forward's hidden states go.
#[derive(Debug, Clone, Copy)]
pub struct HiddenPlace {
    /// Captured layers' outputs [rows, width, K·H].
    pub features: Ptr<bf16>,
    /// The last hidden state [rows, width, H].
    pub last_hidden: Option<Ptr<bf16>>,
}

/// One worker's target: shared weights, its own stream and working memory.
#[derive(Debug)]
pub struct CudaTarget {
    weights: Arc<TargetWeights>,
    captures: Captures,
    stream: Stream,
    scratch: Arc<Pool>,
    gemm: Gemm,
    fused: Option<FusedProducts>,
    fuses_always: bool,
    ops: Ops,
    attention: Attention,
    delta: Option<DeltaKernels>,
    tokens_max: usize,
    width_max: usize,
    tuning: Tuning,
    /// What was chosen for microbatches of so many tokens.
    chosen: BTreeMap<usize, Fused>,
}

/// How one worker computes, and for what sizes.
#[derive(Debug, Clone)]
pub struct TargetOptions {
    /// What a forward gives.
    pub captures: Captures,
    /// Padded tokens of a microbatch, at most.
    pub tokens_max: usize,
    /// Tokens of a row, at most.
    pub width_max: usize,
    /// How kernels of matrix products are chosen.
    pub tuning: Tuning,
    /// Whose attention.
    pub attention: AttentionChoice,
}

/// Whose attention kernels a target takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionChoice {
    /// cuDNN's where it is installed and has one for the shape, else this program's.
    Fastest,
    /// This program's.
    Own,
}

impl CudaTarget {
    /// A worker on shared weights.
    ///
    /// # Errors
    /// Not enough memory; a library that is missing; layers that the weights do not hold.
    pub fn new(weights: &Arc<TargetWeights>, options: TargetOptions) -> Result<Self, CudaError> {
        let TargetOptions {
            captures,
            tokens_max,
            width_max,
            ..
        } = options;
        let shape = &weights.shape;
        let (depth, held) = (captures.depth(shape.layers), weights.layers.len());
        if depth > held {
            return Err(CudaError::Shape(format!(
                "{depth} layers are to run and the weights of {held} are on the GPU"
            )));
        }
        let gpu = weights.embed.gpu();
        let size = shape.scratch_bytes(tokens_max, width_max);
        let scratch = Pool::new(gpu, size, "a target worker's activations")?;
        let stream = Stream::new(gpu)?;
        let ops = Ops::new(gpu)?;
        let attention =
            Attention::new(&scratch, &stream, &ops, shape, width_max, options.attention)?;
        let delta = shape.delta.as_ref();
        let delta = delta.map(|d| DeltaKernels::new(&stream, shape, d, tokens_max, width_max));
        Ok(Self {
            delta: delta.transpose()?,
            gemm: Gemm::new(&scratch, options.tuning)?,
            fused: match options.tuning {
                Tuning::Timed => FusedProducts::load(gpu)?,
                Tuning::Heuristic => None,
            },
            weights: Arc::clone(weights),
            captures,
            stream,
            scratch,
            ops,
            attention,
            tokens_max,
            width_max,
            tuning: options.tuning,
            chosen: BTreeMap::new(),
            fuses_always: false,
        })
    }

    /// The stream that forwards are put into.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// What is captured.
    pub fn captures(&self) -> &Captures {
        &self.captures
    }

    /// Which attention kernels the forwards so far took.
    pub fn attention(&self) -> String {
        self.attention.describe()
    }

    /// The most of its working memory that was ever in use.
    pub fn scratch_peak(&self) -> Bytes {
        self.scratch.peak()
    }

    /// Puts the forward of a microbatch into the stream; `out` is filled once the stream has come this far.
    ///
    /// # Errors
    /// Tokens outside the vocabulary, more tokens than the worker was made for, a place that is too small.
    pub fn forward(&mut self, batch: &TokenRows, out: HiddenPlace) -> Result<(), CudaError> {
        let extent = self.check(batch)?;
        let weights = Arc::clone(&self.weights);
        let shape = &weights.shape;
        let (tokens, h) = (extent.rows * extent.width, shape.hidden);
        let captured = self.captures.layers.len();
        out.features.check("features", tokens * captured * h)?;
        let ids = self.scratch.buffer::<u32>(tokens)?;
        let lengths = self.scratch.buffer::<u32>(extent.rows)?;
        self.stream.upload(&batch.ids, ids.ptr())?;
        self.stream.upload(&batch.lengths, lengths.ptr())?;
        let x = self.scratch.buffer::<bf16>(tokens * h)?;
        let y = self.scratch.buffer::<bf16>(tokens * h)?;
        let scales = self.scratch.buffer::<f32>(tokens)?;
        let rows = Residual {
            x: x.ptr(),
            y: y.ptr(),
            scales: scales.ptr(),
            lengths: lengths.ptr(),
            extent,
        };
        let fused = self.choose(&rows)?;
        self.ops
            .embed(&self.stream, ids.ptr(), weights.embed.ptr(), x.ptr(), h)?;
        let depth = self.captures.depth(shape.layers);
        let mut leaving = None;
        for (n, layer) in weights.layers[..depth].iter().enumerate() {
            self.layer(layer, &rows, leaving, fused)?;
            leaving = self.place_of(n, out.features, captured);
        }
        match (self.captures.last_hidden, out.last_hidden) {
            (true, Some(last)) => {
                last.check("last hidden state", tokens * h)?;
                let norm = [x.ptr(), weights.norm.ptr(), last];
                self.ops
                    .rms_norm(&self.stream, norm, tokens, norm_of(shape), leaving)
            }
            (true, None) => Err(CudaError::Shape(
                "the last hidden state has no place to go".to_owned(),
            )),
            (false, _) => match leaving {
                Some(to) => self.ops.copy_rows(&self.stream, x.ptr(), to, tokens, h),
                None => Ok(()),
            },
        }
    }

    /// One layer; where `leaving` is given, the output of the layer before goes there.
    fn layer(
        &mut self,
        w: &LayerWeights,
        rows: &Residual,
        leaving: Option<Rows>,
        fused: Fused,
    ) -> Result<(), CudaError> {
        let weights = Arc::clone(&self.weights);
        let (shape, tokens) = (&weights.shape, rows.extent.rows * rows.extent.width);
        let h = shape.hidden;
        let matrix = |ptr, columns| Matrix::new(ptr, tokens, columns);
        let x = matrix(rows.x, h);
        let is_scaled = fused.heads && matches!(w.mixer, Mixer::Attention(_));
        self.normalise(&w.input_norm, rows, leaving, is_scaled)?;
        match &w.mixer {
            Mixer::Attention(w) => self.attend(w, rows, fused)?,
            Mixer::Delta(w) => self.recur(w, rows)?,
        }
        self.normalise(&w.feed_forward_norm, rows, None, fused.gate_up)?;
        let inner = self.scratch.buffer::<bf16>(tokens * shape.inner)?;
        self.gate_up(w, rows, inner.ptr(), fused.gate_up)?;
        let down = Matrix::new(w.down.ptr(), h, shape.inner);
        let inner = matrix(inner.ptr(), shape.inner);
        self.gemm.multiply(&self.stream, inner, down.t(), x, ADD)
    }

    /// Adds what attention mixes to the residual stream.
    fn attend(
        &mut self,
        w: &AttentionWeights,
        rows: &Residual,
        fused: Fused,
    ) -> Result<(), CudaError> {
        let weights = Arc::clone(&self.weights);
        let (shape, tokens) = (&weights.shape, rows.extent.rows * rows.extent.width);
        let (h, pitch) = (shape.hidden, shape.attention_row());
        let matrix = |ptr, columns| Matrix::new(ptr, tokens, columns);
        let qkv = self.scratch.buffer::<bf16>(tokens * pitch)?;
        let mixed = self.scratch.buffer::<bf16>(tokens * shape.queries())?;
        let x = matrix(rows.x, h);
        self.project(w, rows, qkv.ptr(), fused.heads)?;
        self.attention.mix(
            &self.stream,
            qkv.ptr(),
            mixed.ptr(),
            rows.extent,
            rows.lengths,
        )?;
        if shape.delta.is_some() {
            let gates = Rows {
                first: qkv.ptr().at(shape.qkv()..qkv.len()),
                pitch,
            };
            self.ops
                .gate_output(&self.stream, mixed.ptr(), gates, tokens, shape.queries())?;
        }
        let output = Matrix::new(w.output.ptr(), h, shape.queries());
        let mixed = matrix(mixed.ptr(), shape.queries());
        self.gemm.multiply(&self.stream, mixed, output.t(), x, ADD)
    }

    /// Adds what the delta rule mixes to the residual stream.
    fn recur(&mut self, w: &DeltaWeights, rows: &Residual) -> Result<(), CudaError> {
        let weights = Arc::clone(&self.weights);
        let (shape, tokens) = (&weights.shape, rows.extent.rows * rows.extent.width);
        let (Some(d), Some(kernels)) = (&shape.delta, &self.delta) else {
            return Err(CudaError::Shape(
                "a delta layer in a target without any".to_owned(),
            ));
        };
        let (h, wide, pitch) = (shape.hidden, shape::projected(d), shape::projected_pitch(d));
        let projections = self.scratch.buffer::<bf16>(tokens * pitch)?;
        let read = self.scratch.buffer::<bf16>(tokens * d.value_width())?;
        let all = Matrix::new(w.projections.ptr(), wide, h);
        let y = Matrix::new(rows.y, tokens, h);
        let to = Matrix::new(projections.ptr(), tokens, wide).with_pitch(pitch);
        self.gemm.multiply(&self.stream, y, all.t(), to, SET)?;
        kernels.mix(
            &self.stream,
            &self.scratch,
            w,
            [projections.ptr(), read.ptr()],
            rows.extent,
            rows.lengths,
        )?;
        let out = Matrix::new(w.out.ptr(), h, d.value_width());
        let read = Matrix::new(read.ptr(), tokens, d.value_width());
        let x = Matrix::new(rows.x, tokens, h);
        self.gemm.multiply(&self.stream, read, out.t(), x, ADD)
    }

    /// Where the output of layer n goes, if it is captured.
    fn place_of(&self, n: usize, features: Ptr<bf16>, captured: usize) -> Option<Rows> {
        let h = self.weights.shape.hidden;
        let slot = self.captures.layers.iter().position(|&id| id == n)?;
        Some(Rows {
            first: features.at(slot * h..features.len()),
            pitch: captured * h,
        })
    }

    fn check(&self, batch: &TokenRows) -> Result<Extent, CudaError> {
        let (rows, width) = (batch.lengths.len(), batch.width);
        if batch.ids.len() != rows * width || rows == 0 || width > self.width_max {
            return Err(CudaError::Shape(format!(
                "{} tokens in {rows} rows of {width}; the worker takes rows of up to {}",
                batch.ids.len(),
                self.width_max
            )));
        }
        let vocab = self.weights.shape.vocab;
        match batch.ids.iter().find(|&&id| id as usize >= vocab) {
            Some(id) => Err(CudaError::Shape(format!(
                "token {id} is outside the vocabulary of {vocab}"
            ))),
            None => Ok(Extent { rows, width }),
        }
    }
}

/// What is added to a norm's mean square, and to its weight.
fn norm_of(shape: &TargetShape) -> (f32, f32) {
    (shape.eps, shape.norm_offset)
}

/// The residual stream of a forward, and its normalised rows or the scales that normalise them.
struct Residual {
    x: Ptr<bf16>,
    y: Ptr<bf16>,
    scales: Ptr<f32>,
    lengths: Ptr<u32>,
    extent: Extent,
}

impl Residual {
    fn tokens(&self) -> usize {
        self.extent.rows * self.extent.width
    }
}

/// Factors of a product and of what is there: the result replaces it.
const SET: [f32; 2] = [1.0, 0.0];

/// The result is added to what is there.
const ADD: [f32; 2] = [1.0, 1.0];

/// The text of a hybrid target's own kernels, by file, for a compiler without a device.
pub fn hybrid_kernel_text(hybrid: &crate::model::Hybrid) -> (&'static str, String) {
    (delta::FILE, delta::text(hybrid))
}

/// The texts of the kernels that only Hopper has, for a compiler without a device.
pub fn hopper_kernel_sources() -> [super::Source<'static>; 1] {
    [super::gemm::fused::SOURCE]
}

/// The texts of the target's kernels and of the checks of what it gives, for a compiler without a device.
pub fn kernel_sources() -> [super::Source<'static>; 3] {
    [ops::SOURCE, attention::SOURCE, super::hidden::SOURCE]
}
