//! Products with what goes before and after them in one kernel, on Hopper: what lies between is not written and read again.
//!
//! A norm in front of a product is a factor for each row and one for each column of its input: the first is applied to the sums, the
//! second belongs to the product's weights.

use super::Matrix;
use crate::cuda::tensor_map::{Promotion, tensor_map};
use crate::cuda::{CudaError, Gpu, Kernel, Module, Ptr, Source, Stream};
use half::bf16;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The kernels' text; it is for Hopper alone.
pub(in crate::cuda) const SOURCE: Source<'_> = Source {
    file: "product.cu",
    text: concat!(
        include_str!("../kernels/hopper.cuh"),
        include_str!("../kernels/product.cu")
    ),
};

/// The kernels of one GPU.
#[derive(Debug, Clone)]
pub struct FusedProducts {
    gated: Kernel,
    turned: Kernel,
    clusters: usize,
}

/// How heads of 128 are normalised and turned after the product that makes them.
#[derive(Debug, Clone, Copy)]
pub struct HeadTurn {
    /// The norm's weights of queries and of keys `[128]`.
    pub norms: [Ptr<bf16>; 2],
    /// cos and sin as pairs [positions, 64, 2].
    pub table: Ptr<f32>,
    /// Tokens of a row: token t stands at position t mod `width`.
    pub width: usize,
    /// Query heads, then key heads, at the start of a token's row; both even.
    pub heads: [usize; 2],
    /// Added to the mean square.
    pub eps: f32,
}

impl FusedProducts {
    /// Whether there are such kernels for `gpu`.
    pub fn fit(gpu: &Gpu) -> bool {
        gpu.capability() == (9, 0)
    }

    /// The kernels for `gpu`, where there are some.
    ///
    /// # Errors
    /// No compiler.
    pub fn load(gpu: &Arc<Gpu>) -> Result<Option<Self>, CudaError> {
        if !Self::fit(gpu) {
            return Ok(None);
        }
        let module = Module::load(gpu, &SOURCE)?;
        let kernels = Self {
            gated: module.kernel("product_gated")?,
            turned: module.kernel("product_turned")?,
            clusters: gpu.multiprocessors() as usize / 2,
        };
        kernels.gated.allow_shared(SHARED_BYTES)?;
        kernels.turned.allow_shared(SHARED_BYTES)?;
        Ok(Some(kernels))
    }

    /// out [m, n] = silu(a · gateᵀ) · (a · upᵀ) with each row of a [m, k] times its scale, where `gate_up` [2n, k] holds the gates' rows
    /// and then the ups'.
    ///
    /// # Errors
    /// Matrices that do not fit each other or their memory, or whose widths are no multiples of 8.
    pub fn gated(
        &self,
        stream: &Stream,
        a: Matrix<bf16>,
        scales: Ptr<f32>,
        gate_up: Matrix<bf16>,
        out: Matrix<bf16>,
    ) -> Result<(), CudaError> {
        check(&a, &gate_up, &out, 2)?;
        scales.check("scales of rows", out.rows)?;
        let launch = self.launch(&self.gated, &a, &gate_up, &out, TILE_COLUMNS / 2)?;
        let size = pair(out.rows, out.columns);
        let launch = launch.words(&[size, 0, 0, scales.address(), 0, 0, 0]);
        // SAFETY: as declared; extents were checked.
        unsafe { launch.on(stream) }
    }

    /// out [m, n] = a · bᵀ with each row of a [m, k] times its scale; the first heads are then normalised and turned.
    ///
    /// # Errors
    /// As [`FusedProducts::gated`]; heads or positions that are not there, an odd number of heads.
    pub fn turned(
        &self,
        stream: &Stream,
        a: Matrix<bf16>,
        scales: Ptr<f32>,
        b: Matrix<bf16>,
        out: Matrix<bf16>,
        turn: &HeadTurn,
    ) -> Result<(), CudaError> {
        check(&a, &b, &out, 1)?;
        scales.check("scales of rows", out.rows)?;
        let [queries, keys] = turn.heads;
        if queries % 2 + keys % 2 > 0 || (queries + keys) * HEAD > out.columns {
            return Err(CudaError::Shape(format!(
                "{queries} and {keys} heads of {HEAD} in rows of {}; the kernel takes even numbers of them",
                out.columns
            )));
        }
        turn.table.check("rotary table", turn.width * HEAD)?;
        for norm in turn.norms {
            norm.check("norm of heads", HEAD)?;
        }
        let launch = self.launch(&self.turned, &a, &b, &out, TILE_COLUMNS)?;
        let launch = launch.words(&[
            pair(out.rows, out.columns),
            pair(turn.width, queries),
            keys as u64 | u64::from(turn.eps.to_bits()) << 32,
            scales.address(),
            turn.norms[0].address(),
            turn.norms[1].address(),
            turn.table.address(),
        ]);
        // SAFETY: as declared; extents were checked.
        unsafe { launch.on(stream) }
    }

    /// A launch whose last argument is still missing; a tile gives so many `columns` of the result.
    fn launch<'a>(
        &self,
        kernel: &'a Kernel,
        a: &Matrix<bf16>,
        b: &Matrix<bf16>,
        out: &Matrix<bf16>,
        columns: usize,
    ) -> Result<crate::cuda::kernels::Launch<'a>, CudaError> {
        let pairs = out.rows.div_ceil(2 * TILE_ROWS);
        let across = out.columns.div_ceil(columns);
        let clusters = self.clusters.min(pairs * across);
        Ok(kernel
            .launch([2 * clusters, 1, 1], THREADS)
            .shared(SHARED_BYTES)
            .words(&map(a, TILE_ROWS)?)
            .words(&map(b, TILE_COLUMNS / 2)?)
            .words(&map(out, WARP_ROWS)?)
            .int(pairs)
            .int(across)
            .int(a.columns.div_ceil(PANEL))
            .int(BAND))
    }
}

/// Two of a kernel's ints.
fn pair(first: usize, second: usize) -> u64 {
    first as u64 | (second as u64) << 32
}

/// Whether a · bᵀ is shaped like `out`, with `share` rows of b for each column.
fn check(
    a: &Matrix<bf16>,
    b: &Matrix<bf16>,
    out: &Matrix<bf16>,
    share: usize,
) -> Result<(), CudaError> {
    let all = [a, b, out];
    let fits = a.columns == b.columns
        && a.rows == out.rows
        && b.rows == share * out.columns
        && all.iter().all(|m| {
            m.batch == 1
                && !m.transposed
                && m.rows * m.columns > 0
                && m.rows.max(m.columns) < 1 << 31
                && m.extent() <= m.ptr.len()
                && m.pitch % 8 == 0
                && m.ptr.address() % 16 == 0
        });
    if fits {
        return Ok(());
    }
    let [a, b, out] = all.map(|m| (m.rows, m.columns, m.pitch));
    Err(CudaError::Shape(format!(
        "a product of {a:?} and the transpose of {b:?} into {out:?} (rows, columns, pitch) does not fit, or rows do not begin at 16 bytes"
    )))
}

/// Describes a matrix to the copy engine, which moves boxes of 64 numbers of so many rows.
fn map(m: &Matrix<bf16>, rows: usize) -> Result<[u64; 16], CudaError> {
    tensor_map(
        m.ptr,
        [m.columns, m.rows],
        [1, m.pitch],
        [PANEL, rows],
        Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    )
}

/// What was found faster, by GPU and by what was asked, so that all workers of a GPU take the same kernels.
static FASTER: Mutex<Option<HashMap<(usize, Question), bool>>> = Mutex::new(None);

/// A choice between two ways: its name, and sizes rounded up to eighths of a power of two.
type Question = (&'static str, [usize; 3]);

/// Whether the second of two `ways` to the same result is faster under load; remembered for `name` and about these `sizes`.
///
/// # Errors
/// What the ways return.
pub(in crate::cuda) fn second_is_faster(
    stream: &Stream,
    name: &'static str,
    sizes: [usize; 3],
    ways: &mut dyn FnMut(usize) -> Result<(), CudaError>,
) -> Result<bool, CudaError> {
    let up = |n: usize| n.next_multiple_of((n.next_power_of_two() / 8).max(1));
    let key = (stream.gpu().ordinal(), (name, sizes.map(up)));
    let mut faster = FASTER.lock().unwrap_or_else(PoisonError::into_inner);
    let faster = faster.get_or_insert_with(HashMap::new);
    if let Some(known) = faster.get(&key) {
        return Ok(*known);
    }
    let mut time = |way: usize, runs: usize| -> Result<f32, CudaError> {
        let start = stream.record_timed()?;
        for _ in 0..runs {
            ways(way)?;
        }
        Ok(start.elapsed_ms(&stream.record_timed()?)? / runs as f32)
    };
    // The first run of each chooses and compiles.
    time(0, 1)?;
    time(1, 1)?;
    let runs = ((SUSTAINED_MS / time(0, 1)?) as usize).clamp(2, RUNS_MAX);
    // Warms the GPU, so that neither is timed before the power limit is felt.
    time(0, runs)?;
    time(1, runs)?;
    let mut sums = [0.0f32; 2];
    for way in [0, 1, 1, 0] {
        sums[way] += time(way, runs)?;
    }
    let is_faster = sums[1] < sums[0];
    faster.insert(key, is_faster);
    Ok(is_faster)
}

/// How long each way runs at a time. (ms)
const SUSTAINED_MS: f32 = 60.0;

/// Runs of a way at a time, at most.
const RUNS_MAX: usize = 200;

/// Width of a head.
const HEAD: usize = 128;

// As in the kernels: rows and columns of a tile, numbers of a panel, rows that a warp stores, threads of a block.
const TILE_ROWS: usize = 128;
const TILE_COLUMNS: usize = 256;
const PANEL: usize = 64;
const WARP_ROWS: usize = 16;
const THREADS: usize = 384;

/// Four stages of panels, room for what is stored, barriers, and room to align all that. (bytes)
const SHARED_BYTES: u32 = 4 * (128 + 256) * 128 + 8 * 2 * 16 * 128 + 64 + 1024;

/// Pairs of tiles that are worked on side by side: 2048 rows, which stay in the second-level cache while the columns' panels pass.
const BAND: usize = 8;
