//! Gated delta layers: convolution, delta rule in chunks, gated norm. What the CPU has in `model::target::delta`.

use super::attention::Extent;
use super::ops::Rows;
use super::shape::{CHUNK, TargetShape, delta_places, padded, projected, projected_pitch};
use crate::cuda::{Buffer, CudaError, Kernel, Module, Pool, Ptr, Source, Stream};
use crate::model::Hybrid;
use half::bf16;
use std::sync::Arc;

const TEXT: &str = include_str!("../kernels/delta.cu");

/// The kernels' text for heads of these widths.
pub(super) fn text(d: &Hybrid) -> String {
    let (keys, values, taps) = (d.key_head_dim, d.value_head_dim, d.conv_kernel);
    format!("#define KEY_DIM {keys}\n#define VALUE_DIM {values}\n#define TAPS {taps}\n{TEXT}")
}

/// The file's name, for errors and for the cache.
pub(super) const FILE: &str = "delta.cu";

/// Weights of one layer's mixer.
#[derive(Debug)]
pub(super) struct DeltaWeights {
    /// To queries, keys, values, gates, strengths and decays, one below the other.
    pub(super) projections: Buffer<bf16>,
    /// The convolution's [taps, channels], the oldest token's first.
    pub(super) taps: Buffer<f32>,
    /// Added to the decays' projection, a value head.
    pub(super) bias: Buffer<f32>,
    /// −exp(A_log): what a unit of decay counts, a value head.
    pub(super) rate: Buffer<f32>,
    pub(super) norm: Buffer<bf16>,
    pub(super) out: Buffer<bf16>,
}

/// The kernels for one target.
#[derive(Debug)]
pub(super) struct DeltaKernels {
    d: Hybrid,
    eps: f32,
    convolve: Kernel,
    chunk: Kernel,
    scan: Kernel,
    gate: Kernel,
    /// Tokens that go through the rule together, at most.
    places: usize,
}

impl DeltaKernels {
    /// For microbatches of up to `tokens` padded tokens in rows of up to `width`.
    pub(super) fn new(
        stream: &Stream,
        shape: &TargetShape,
        d: &Hybrid,
        tokens: usize,
        width: usize,
    ) -> Result<Self, CudaError> {
        let text = text(d);
        let source = Source {
            file: FILE,
            text: &text,
        };
        let module = Module::load(stream.gpu(), &source)?;
        let (chunk, scan) = (module.kernel("delta_chunk")?, module.kernel("delta_scan")?);
        chunk.allow_shared(chunk_bytes(d))?;
        scan.allow_shared(scan_bytes(d))?;
        Ok(Self {
            convolve: module.kernel("delta_convolve")?,
            gate: module.kernel("delta_gate")?,
            chunk,
            scan,
            eps: shape.eps,
            places: delta_places(tokens, width),
            d: d.clone(),
        })
    }

    /// out [tokens, values] of the layer's projections of all tokens, rows of [`projected_pitch`] elements; `lengths` of each row.
    pub(super) fn mix(
        &self,
        stream: &Stream,
        pool: &Arc<Pool>,
        w: &DeltaWeights,
        projections: Ptr<bf16>,
        out: Ptr<bf16>,
        extent: Extent,
        lengths: Ptr<u32>,
    ) -> Result<(), CudaError> {
        let (d, Extent { rows, width }) = (&self.d, extent);
        let (tokens, pitch) = (rows * width, projected_pitch(d));
        let channels = d.conv_width();
        projections.check("projections", (tokens - 1) * pitch + projected(d))?;
        out.check("what heads read", tokens * d.value_width())?;
        lengths.check("lengths", rows)?;
        let mixed = pool.buffer::<bf16>(tokens * channels)?;
        let heads = 2 * d.key_heads + d.value_heads;
        let launch = self
            .convolve
            .launch([width.div_ceil(SPAN * WARPS), heads, rows], THREADS)
            .ptr(projections)
            .long(pitch as u64)
            .ptr(w.taps.ptr())
            .ptr(mixed.ptr())
            .int(width)
            .int(d.key_heads)
            .int(d.value_heads);
        // SAFETY: as declared in delta.cu; lengths were checked here and weights when they were loaded.
        unsafe { launch.on(stream) }?;
        self.rule(
            stream,
            pool,
            w,
            [projections, mixed.ptr(), out],
            extent,
            lengths,
        )?;
        let gates = Rows {
            first: projections.at(channels..projections.len()),
            pitch,
        };
        let launch = self
            .gate
            .launch([(tokens * d.value_heads).div_ceil(WARPS), 1, 1], THREADS)
            .ptr(out)
            .ptr(gates.first)
            .long(gates.pitch as u64)
            .ptr(w.norm.ptr())
            .int(tokens)
            .int(d.value_heads)
            .float(self.eps);
        // SAFETY: as above.
        unsafe { launch.on(stream) }
    }

    /// The delta rule, as many rows at a time as there is room for.
    fn rule(
        &self,
        stream: &Stream,
        pool: &Arc<Pool>,
        w: &DeltaWeights,
        [projections, mixed, out]: [Ptr<bf16>; 3],
        Extent { rows, width }: Extent,
        lengths: Ptr<u32>,
    ) -> Result<(), CudaError> {
        let d = &self.d;
        let chunks = width.div_ceil(CHUNK);
        let together = (self.places / (chunks * CHUNK)).clamp(1, rows);
        let places = together * chunks * CHUNK * d.value_heads;
        let writes = pool.buffer::<bf16>(places * padded(d.value_head_dim))?;
        let erases = pool.buffer::<bf16>(places * padded(d.key_head_dim))?;
        let within = pool.buffer::<bf16>(places * CHUNK)?;
        let sums = pool.buffer::<f32>(places)?;
        for first in (0..rows).step_by(together) {
            let count = together.min(rows - first);
            let from = |ptr: Ptr<bf16>, wide: usize| ptr.at(first * width * wide..ptr.len());
            let mixed = from(mixed, d.conv_width());
            let lengths = lengths.at(first..first + count);
            let launch = self
                .chunk
                .launch([chunks, d.value_heads, count], THREADS)
                .shared(chunk_bytes(d))
                .ptr(from(projections, projected_pitch(d)))
                .long(projected_pitch(d) as u64)
                .ptr(mixed)
                .ptr(w.bias.ptr())
                .ptr(w.rate.ptr())
                .ptr(lengths)
                .ptr(writes.ptr())
                .ptr(erases.ptr())
                .ptr(within.ptr())
                .ptr(sums.ptr())
                .int(width)
                .int(d.key_heads)
                .int(d.value_heads);
            // SAFETY: as declared in delta.cu; all lists have places for `together` rows of whole chunks.
            unsafe { launch.on(stream) }?;
            let slices = padded(d.value_head_dim).div_ceil(slice(d));
            let launch = self
                .scan
                .launch([slices, d.value_heads, count], THREADS)
                .shared(scan_bytes(d))
                .ptr(mixed)
                .ptr(writes.ptr())
                .ptr(erases.ptr())
                .ptr(within.ptr())
                .ptr(sums.ptr())
                .ptr(lengths)
                .ptr(from(out, d.value_width()))
                .int(width)
                .int(d.key_heads)
                .int(d.value_heads);
            // SAFETY: as above.
            unsafe { launch.on(stream) }?;
        }
        Ok(())
    }
}

/// Columns of values that a block of the scan works on, as in the kernel.
fn slice(d: &Hybrid) -> usize {
    match padded(d.value_head_dim) {
        wide if wide % 64 == 0 => 64,
        wide if wide % 32 == 0 => 32,
        _ => 16,
    }
}

/// Elements that a row of a tile has beside its own.
const MARGIN: usize = 8;

/// Shared memory of a block that works within a chunk.
fn chunk_bytes(d: &Hybrid) -> u32 {
    let (keys, values) = (
        padded(d.key_head_dim) + MARGIN,
        padded(d.value_head_dim) + MARGIN,
    );
    let tiles = CHUNK * (2 * keys + values + 2 * (CHUNK + MARGIN));
    let wide = 2 * CHUNK * (CHUNK + 1) + 2 * CHUNK;
    (2 * tiles + 4 * wide) as u32
}

/// Shared memory of a block that goes from chunk to chunk.
fn scan_bytes(d: &Hybrid) -> u32 {
    let (keys, values) = (padded(d.key_head_dim), slice(d) + MARGIN);
    let tiles = CHUNK * (3 * (keys + MARGIN) + CHUNK + MARGIN + 3 * values) + keys * values;
    (2 * tiles + 4 * CHUNK) as u32
}

/// Threads of a block, and its warps.
const THREADS: usize = 128;
const WARPS: usize = THREADS / 32;

/// Tokens that a warp of the convolution walks over, as in the kernel.
const SPAN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_27b_targets_tiles_leave_room_for_two_blocks() {
        let d = Hybrid {
            layers: Vec::new(),
            key_heads: 16,
            value_heads: 48,
            key_head_dim: 128,
            value_head_dim: 128,
            conv_kernel: 4,
        };
        // A Hopper multiprocessor has 228 KiB, of which each block takes one more.
        assert!(chunk_bytes(&d) <= 113 << 10, "{}", chunk_bytes(&d));
        assert!(scan_bytes(&d) <= 113 << 10, "{}", scan_bytes(&d));
        assert_eq!((slice(&d), projected_pitch(&d)), (64, 16_480));
    }
}
