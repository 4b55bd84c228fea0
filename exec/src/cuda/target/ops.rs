//! The target's kernels, each behind a function that checks lengths.

use crate::cuda::{CudaError, Gpu, Kernel, Module, Ptr, Source, Stream};
use half::bf16;
use std::sync::Arc;

/// The kernels' text.
pub(in crate::cuda) const SOURCE: Source<'_> = Source {
    file: "target.cu",
    text: include_str!("../kernels/target.cu"),
};

/// The compiled kernels.
#[derive(Debug, Clone)]
pub(super) struct Ops {
    module: Arc<Module>,
    embed: Kernel,
    norms: [(usize, Kernel); 5],
    copy_rows: Kernel,
    swiglu: Kernel,
}

/// Rows of a buffer that a captured layer's output goes to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    /// The first row's first element.
    pub(super) first: Ptr<bf16>,
    /// Elements from row to row.
    pub(super) pitch: usize,
}

/// Where a norm goes: its rows, or only what each row is to be multiplied with.
#[derive(Debug, Clone, Copy)]
enum NormTo {
    Rows(Ptr<bf16>),
    Scales(Ptr<f32>),
}

impl Ops {
    pub(super) fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        let module = Module::load(gpu, &SOURCE)?;
        Ok(Self {
            embed: module.kernel("embed")?,
            norms: [
                (1, module.kernel("rms_norm_1")?),
                (2, module.kernel("rms_norm_2")?),
                (4, module.kernel("rms_norm_4")?),
                (8, module.kernel("rms_norm_8")?),
                (16, module.kernel("rms_norm_16")?),
            ],
            copy_rows: module.kernel("copy_rows")?,
            swiglu: module.kernel("swiglu")?,
            module,
        })
    }

    /// Rows of the table [V, width] by token; the ids were checked against V.
    pub(super) fn embed(
        &self,
        s: &Stream,
        ids: Ptr<u32>,
        table: Ptr<bf16>,
        x: Ptr<bf16>,
        width: usize,
    ) -> Result<(), CudaError> {
        x.check("embed", ids.len() * width)?;
        let launch = self
            .embed
            .launch([ids.len(), 1, 1], threads(width))
            .ptr(ids)
            .ptr(table)
            .ptr(x)
            .int(width);
        // SAFETY: as declared; lengths were checked.
        unsafe { launch.on(s) }
    }

    /// y = norm(x) · (offset + weight) for `rows` rows; x goes to `copy` too where it is given.
    pub(super) fn rms_norm(
        &self,
        s: &Stream,
        [x, weight, y]: [Ptr<bf16>; 3],
        rows: usize,
        how: (f32, f32),
        copy: Option<Rows>,
    ) -> Result<(), CudaError> {
        y.check("norm's result", rows * weight.len())?;
        self.norm(s, [x, weight], NormTo::Rows(y), rows, how, copy)
    }

    /// 1 / sqrt(mean(x²) + eps) of `rows` rows of `width`; x goes to `copy` too where it is given.
    pub(super) fn rms_scales(
        &self,
        s: &Stream,
        x: Ptr<bf16>,
        scales: Ptr<f32>,
        [rows, width]: [usize; 2],
        eps: f32,
        copy: Option<Rows>,
    ) -> Result<(), CudaError> {
        scales.check("scales of rows", rows)?;
        let row = x.at(0..width);
        self.norm(s, [x, row], NormTo::Scales(scales), rows, (eps, 0.0), copy)
    }

    fn norm(
        &self,
        s: &Stream,
        [x, weight]: [Ptr<bf16>; 2],
        to: NormTo,
        rows: usize,
        (eps, offset): (f32, f32),
        copy: Option<Rows>,
    ) -> Result<(), CudaError> {
        let width = weight.len();
        x.check("norm", rows * width)?;
        check_rows(copy, rows, width)?;
        // One access of 8 elements a thread, more where a row is wider.
        let groups = width.div_ceil(8);
        let wanted = groups.div_ceil(NORM_BLOCK);
        let (each, kernel) = self
            .norms
            .iter()
            .find(|(each, _)| *each >= wanted)
            .ok_or_else(|| CudaError::Shape(format!("a norm over rows of {width}")))?;
        let block = groups.div_ceil(*each).next_multiple_of(32);
        let launch = kernel.launch([rows, 1, 1], block).ptr(x).ptr(weight);
        let launch = match to {
            NormTo::Rows(y) => launch.ptr(y),
            NormTo::Scales(_) => launch.null(),
        }
        .int(width)
        .float(eps);
        let launch = match copy {
            Some(to) => launch.ptr(to.first).long(to.pitch as u64),
            None => launch.null().long(0),
        }
        .float(offset);
        let launch = match to {
            NormTo::Rows(_) => launch.null(),
            NormTo::Scales(scales) => launch.ptr(scales),
        };
        // SAFETY: as declared; lengths were checked.
        unsafe { launch.on(s) }
    }

    /// Multiplies each column of a matrix [rows, width] with offset + its weight.
    pub(super) fn scale_columns(
        &self,
        s: &Stream,
        matrix: Ptr<bf16>,
        weight: Ptr<bf16>,
        offset: f32,
    ) -> Result<(), CudaError> {
        let width = weight.len();
        let rows = matrix.len() / width;
        let kernel = self.module.kernel("scale_columns")?;
        let launch = kernel
            .launch([rows, 1, 1], threads(width))
            .ptr(matrix)
            .ptr(weight)
            .int(width)
            .float(offset);
        // SAFETY: as declared; whole rows alone are touched.
        unsafe { launch.on(s) }
    }

    /// Dense rows of `width` elements to spread ones.
    pub(super) fn copy_rows(
        &self,
        s: &Stream,
        from: Ptr<bf16>,
        to: Rows,
        rows: usize,
        width: usize,
    ) -> Result<(), CudaError> {
        from.check("copy of rows", rows * width)?;
        check_rows(Some(to), rows, width)?;
        let launch = self
            .copy_rows
            .launch([rows, 1, 1], threads(width))
            .ptr(from)
            .ptr(to.first)
            .int(width)
            .long(to.pitch as u64);
        // SAFETY: as declared; lengths were checked.
        unsafe { launch.on(s) }
    }

    /// silu(gate) · up for rows of `width` gates and as many ups.
    pub(super) fn swiglu(
        &self,
        s: &Stream,
        both: Ptr<bf16>,
        out: Ptr<bf16>,
        rows: usize,
        width: usize,
    ) -> Result<(), CudaError> {
        both.check("gates and ups", rows * 2 * width)?;
        out.check("gated ups", rows * width)?;
        let chunks = width.div_ceil(8 * BLOCK);
        let launch = self
            .swiglu
            .launch([rows * chunks, 1, 1], BLOCK)
            .ptr(both)
            .ptr(out)
            .int(width)
            .int(chunks);
        // SAFETY: as declared; lengths were checked.
        unsafe { launch.on(s) }
    }

    /// x · sigmoid(gate) in place for rows of `width` elements, whose gates are `pitch` apart.
    pub(super) fn gate_output(
        &self,
        s: &Stream,
        x: Ptr<bf16>,
        gates: Rows,
        rows: usize,
        width: usize,
    ) -> Result<(), CudaError> {
        x.check("attention's result", rows * width)?;
        check_rows(Some(gates), rows, width)?;
        let chunks = width.div_ceil(8 * BLOCK);
        let kernel = self.module.kernel("gate_output")?;
        let launch = kernel
            .launch([rows * chunks, 1, 1], BLOCK)
            .ptr(x)
            .ptr(gates.first)
            .int(width)
            .long(gates.pitch as u64)
            .int(chunks);
        // SAFETY: as declared; lengths were checked.
        unsafe { launch.on(s) }
    }

    /// The kernel that normalises heads and turns their first dimensions alone.
    pub(super) fn part_kernel(&self) -> Result<Kernel, CudaError> {
        self.module.kernel("head_norm_rope_part")
    }

    /// The kernel that normalises and turns heads of width `dim`.
    pub(super) fn head_kernel(&self, dim: usize) -> Result<Kernel, CudaError> {
        self.module.kernel(match dim {
            8 => "head_norm_rope_8",
            16 => "head_norm_rope_16",
            32 => "head_norm_rope_32",
            64 => "head_norm_rope_64",
            96 => "head_norm_rope_96",
            128 => "head_norm_rope_128",
            256 => "head_norm_rope_256",
            _ => return Err(CudaError::Shape(format!("heads of width {dim}"))),
        })
    }

    /// cos and sin of positions 0 … `positions` − 1, as pairs of f32 [positions, rates, 2].
    pub(super) fn rope_table(
        &self,
        s: &Stream,
        rates: Ptr<f64>,
        table: Ptr<f32>,
        positions: usize,
    ) -> Result<(), CudaError> {
        table.check("rotary table", 2 * positions * rates.len())?;
        let kernel = self.module.kernel("rope_table")?;
        let launch = kernel
            .launch([positions, 1, 1], 64)
            .ptr(rates)
            .ptr(table)
            .int(rates.len());
        // SAFETY: as declared; lengths were checked.
        unsafe { launch.on(s) }
    }

    /// Normal draws of a stream, the same as on the CPU but rounded to bf16.
    pub(super) fn normals(
        &self,
        s: &Stream,
        to: Ptr<bf16>,
        stream: u64,
        std: f64,
    ) -> Result<(), CudaError> {
        let blocks = to.len().div_ceil(2 * BLOCK).min(BLOCKS_MAX);
        let kernel = self.module.kernel("normals")?;
        let launch = kernel
            .launch([blocks, 1, 1], BLOCK)
            .ptr(to)
            .long(to.len() as u64)
            .long(stream)
            .long(std.to_bits());
        // SAFETY: as declared; a double travels as its bits.
        unsafe { launch.on(s) }
    }

    /// Sets all elements to one value.
    pub(super) fn fill(&self, s: &Stream, to: Ptr<bf16>, value: f32) -> Result<(), CudaError> {
        let blocks = to.len().div_ceil(BLOCK).min(BLOCKS_MAX);
        let kernel = self.module.kernel("fill")?;
        let launch = kernel
            .launch([blocks, 1, 1], BLOCK)
            .ptr(to)
            .long(to.len() as u64)
            .float(value);
        // SAFETY: as declared.
        unsafe { launch.on(s) }
    }
}

/// Threads of a block that copies a row, 8 elements each.
fn threads(width: usize) -> usize {
    (width / 8).next_multiple_of(32).min(512)
}

fn check_rows(rows: Option<Rows>, count: usize, width: usize) -> Result<(), CudaError> {
    match rows {
        Some(to) if count > 0 => to
            .first
            .check("spread rows", (count - 1) * to.pitch + width),
        Some(_) | None => Ok(()),
    }
}

/// Threads of a block that a norm's row takes before each thread holds more.
const NORM_BLOCK: usize = 256;

/// Threads of a block that works element by element.
const BLOCK: usize = 256;

/// Blocks of a launch whose threads go on to further elements.
const BLOCKS_MAX: usize = 132 * 64;
