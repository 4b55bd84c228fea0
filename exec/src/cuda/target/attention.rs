//! The target's causal attention: norm and rotation of queries and keys, then one of several kernels.

use super::AttentionChoice;
use super::ops::Ops;
use super::shape::TargetShape;
use crate::cuda::cudnn::{self, Cudnn};
use crate::cuda::{Buffer, CudaError, Kernel, Module, Pool, Ptr, Source, Stream};
use half::bf16;
use std::sync::Arc;

/// The kernels' text.
pub(in crate::cuda) const SOURCE: Source<'_> = Source {
    file: "attention.cu",
    text: include_str!("../kernels/attention.cu"),
};

/// Attention over fused rows: a token's row holds its queries, then its keys, then its values.
#[derive(Debug)]
pub(super) struct Attention {
    shape: TargetShape,
    heads: Kernel,
    table: Buffer<f32>,
    kernel: Choice,
    cudnn: Option<Cudnn>,
    pool: Arc<Pool>,
}

#[derive(Debug)]
enum Choice {
    /// Tensor cores; D is 64, 128 or 256.
    Tiled { kernel: Kernel, shared: u32 },
    /// A warp a query; any D.
    Plain(Kernel),
}

/// Rows of tokens, right-padded to one width.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) rows: usize,
    pub(super) width: usize,
}

/// The norm's weights of queries and keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadNorms {
    pub(super) query: Ptr<bf16>,
    pub(super) key: Ptr<bf16>,
}

impl Attention {
    /// For rows of up to `width` tokens.
    pub(super) fn new(
        pool: &Arc<Pool>,
        stream: &Stream,
        ops: &Ops,
        shape: &TargetShape,
        width: usize,
        choice: AttentionChoice,
    ) -> Result<Self, CudaError> {
        let rates = pool.buffer::<f64>(shape.rates.len())?;
        stream.upload(&shape.rates, rates.ptr())?;
        let table = pool.buffer::<f32>(2 * width * shape.rates.len())?;
        ops.rope_table(stream, rates.ptr(), table.ptr(), width)?;
        let module = Module::load(stream.gpu(), &SOURCE)?;
        let tiled = |name| -> Result<Choice, CudaError> {
            let kernel: Kernel = module.kernel(name)?;
            let shared = tile_bytes(shape.head_dim);
            kernel.allow_shared(shared)?;
            Ok(Choice::Tiled { kernel, shared })
        };
        let kernel = match shape.head_dim {
            64 => tiled("attention_64")?,
            128 => tiled("attention_128")?,
            // Its tiles are too large for the shared memory of some GPUs.
            256 => match tiled("attention_256") {
                Ok(tiled) => tiled,
                Err(_) => Choice::Plain(module.kernel("attention_plain")?),
            },
            _ => Choice::Plain(module.kernel("attention_plain")?),
        };
        Ok(Self {
            heads: match shape.delta {
                Some(_) => ops.part_kernel()?,
                None => ops.head_kernel(shape.head_dim)?,
            },
            shape: shape.clone(),
            table,
            kernel,
            pool: Arc::clone(pool),
            cudnn: match choice {
                AttentionChoice::Fastest if matches!(shape.head_dim, 64 | 128 | 256) => {
                    Cudnn::open(pool, stream)?
                }
                AttentionChoice::Fastest | AttentionChoice::Own => None,
            },
        })
    }

    /// Which kernels mix, and why not the fastest ones.
    pub(super) fn describe(&self) -> String {
        let own = match self.kernel {
            Choice::Tiled { .. } => "own tiled kernel",
            Choice::Plain(_) => "own plain kernel",
        };
        match &self.cudnn {
            Some(cudnn) => match cudnn.refusal() {
                None => "cuDNN".to_owned(),
                Some(error) => format!("{own} for some shapes, since {error}"),
            },
            None => own.to_owned(),
        }
    }

    /// cos and sin of positions, as pairs [positions, rates, 2].
    pub(super) fn table(&self) -> Ptr<f32> {
        self.table.ptr()
    }

    /// Normalises (where weights are given) and turns queries and keys in place.
    pub(super) fn turn(
        &self,
        stream: &Stream,
        qkv: Ptr<bf16>,
        extent: Extent,
        norms: Option<HeadNorms>,
    ) -> Result<(), CudaError> {
        let (s, tokens) = (&self.shape, extent.rows * extent.width);
        qkv.check("queries, keys and values", tokens * s.attention_row())?;
        self.table
            .ptr()
            .check("rotary table", 2 * extent.width * s.rates.len())?;
        let lanes = match s.delta {
            Some(_) => 32,
            None => lanes(s.head_dim),
        };
        let threads = tokens * (s.heads + s.kv_heads) * lanes;
        let launch = self
            .heads
            .launch([threads.div_ceil(256), 1, 1], 256)
            .ptr(qkv);
        let launch = match norms {
            Some(norms) => launch.ptr(norms.query).ptr(norms.key),
            None => launch.null().null(),
        };
        let launch = launch
            .ptr(self.table.ptr())
            .int(tokens)
            .int(extent.width)
            .int(s.heads)
            .int(s.kv_heads)
            .long(s.attention_row() as u64)
            .float(s.eps);
        let launch = match s.delta {
            Some(_) => launch
                .int(s.head_dim)
                .int(s.rates.len())
                .float(s.norm_offset),
            None => launch,
        };
        // SAFETY: as declared; lengths were checked.
        unsafe { launch.on(stream) }
    }

    /// out [tokens, heads · D] of turned queries and keys. `lengths` `[rows]`: what stands behind them may be zeros.
    pub(super) fn mix(
        &mut self,
        stream: &Stream,
        qkv: Ptr<bf16>,
        out: Ptr<bf16>,
        extent: Extent,
        lengths: Ptr<u32>,
    ) -> Result<(), CudaError> {
        let (s, tokens) = (&self.shape, extent.rows * extent.width);
        qkv.check("queries, keys and values", tokens * s.attention_row())?;
        out.check("attention's result", tokens * s.queries())?;
        lengths.check("lengths", extent.rows)?;
        let q = qkv;
        let k = qkv.at(s.queries()..qkv.len());
        let v = qkv.at(s.queries() + s.keys()..qkv.len());
        let of_library = cudnn::Shape {
            rows: extent.rows,
            width: extent.width,
            heads: s.heads,
            kv_heads: s.kv_heads,
            head_dim: s.head_dim,
            pitch: s.attention_row(),
            out_pitch: s.queries(),
        };
        if let Some(cudnn) = &mut self.cudnn {
            let sums = self.pool.buffer(tokens * s.heads)?;
            if cudnn.attend(of_library, [q, k, v, out], sums.ptr())? {
                return Ok(());
            }
        }
        let scale = (s.head_dim as f32).powf(-0.5);
        let launch = match &self.kernel {
            Choice::Tiled { kernel, shared } => {
                let grid = [extent.width.div_ceil(QUERIES), s.heads, extent.rows];
                kernel
                    .launch(grid, 256)
                    .shared(*shared)
                    .ptr(q)
                    .ptr(k)
                    .ptr(v)
                    .ptr(out)
                    .int(extent.width)
                    .int(s.heads)
                    .int(s.kv_heads)
                    .long(s.attention_row() as u64)
                    .long(s.queries() as u64)
                    .float(scale * std::f32::consts::LOG2_E)
                    .ptr(lengths)
            }
            Choice::Plain(kernel) => {
                let grid = [extent.width.div_ceil(4), s.heads, extent.rows];
                kernel
                    .launch(grid, 128)
                    .ptr(q)
                    .ptr(k)
                    .ptr(v)
                    .ptr(out)
                    .int(extent.width)
                    .int(s.heads)
                    .int(s.kv_heads)
                    .int(s.head_dim)
                    .long(s.attention_row() as u64)
                    .long(s.queries() as u64)
                    .float(scale)
                    .ptr(lengths)
            }
        };
        // SAFETY: as declared; lengths were checked.
        unsafe { launch.on(stream) }
    }
}

/// Threads that hold a head, as in the kernel.
fn lanes(head_dim: usize) -> usize {
    match head_dim / 2 {
        48 => 4,
        half => (half / 8).max(1),
    }
}

/// Queries of a block and keys of a tile, as in the kernel.
const QUERIES: usize = 128;
const KEYS: usize = 64;

/// One tile of queries and two of keys and of values. (bytes)
fn tile_bytes(head_dim: usize) -> u32 {
    (2 * head_dim * (QUERIES + 4 * KEYS)) as u32
}
