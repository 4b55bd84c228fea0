//! Attention over the context before each block's anchor and over the block itself.
//!
//! Two sets of kernels with one interface: Hopper's own, and portable ones for other devices and for checks.

use std::sync::Arc;

use cudarc::driver::sys;
use half::bf16;

use super::ops::source;
use super::shape::Shape;
use crate::cuda::{CudaError, Gpu, Kernel, Module, Named, Ptr, Source, Stream};

/// Blocks of slots that one launch block works on: one a warpgroup.
const UNITS: usize = 3;
/// Depth of the ring of key tiles.
const STAGES: usize = 4;
/// Depth of the ring of units in the gradient of keys.
const UNIT_STAGES: usize = 3;
/// Bytes of 64 rows of 64 numbers.
const TILE_BYTES: usize = 8192;
/// Rows of keys in a tile.
const TILE_ROWS: usize = 64;

/// Which kernels to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionKernels {
    /// The fastest for the device.
    Auto,
    /// Those that run on every device.
    Portable,
}

/// Rows of heads in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    pub(super) ptr: Ptr<bf16>,
    /// Elements from row to row.
    pub(super) pitch: usize,
    pub(super) rows: usize,
}

/// Inputs of attention: turned queries and keys, and values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub(super) queries: Rows,
    pub(super) context_keys: Rows,
    pub(super) context_values: Rows,
    pub(super) slot_keys: Rows,
    pub(super) slot_values: Rows,
}

/// The plan's lists that attention reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sights {
    pub(super) shares: Ptr<u32>,
    pub(super) key_shares: Ptr<u32>,
    pub(super) anchors: Ptr<u32>,
    pub(super) sights: Ptr<u32>,
    pub(super) slots: usize,
}

/// What the forward pass leaves: its output [N, queries] and the logarithms of its sums [N · heads].
#[derive(Debug, Clone, Copy)]
pub(super) struct Attended {
    pub(super) out: Ptr<bf16>,
    pub(super) log_sum: Ptr<f32>,
}

/// Where the backward pass puts the gradients: those of slots as queries, keys, values side by side [N, qkv], those of the context as keys,
/// values [C, 2 · keys].
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadGradients {
    pub(super) of_slots: Ptr<bf16>,
    pub(super) of_context: Ptr<bf16>,
    pub(super) means: Ptr<f32>,
}

/// The kernels for one shape and device.
#[derive(Debug)]
pub(super) struct Attention {
    s: Shape,
    stream: Stream,
    hopper: bool,
    attention: Kernel,
    gradient_means: Kernel,
    query_gradient: Kernel,
    key_gradient: Kernel,
}

/// The text of the kernels for a shape.
pub(super) fn attention_source(s: &Shape, hopper: bool) -> (&'static str, String) {
    let mut defines = vec![
        ("HEAD_DIM", s.head_dim),
        ("SLOTS", s.slots),
        ("UNIT_HEADS", s.unit_heads()),
    ];
    if !hopper {
        let text = include_str!("../kernels/drafter/attention_portable.cu");
        return ("drafter/attention_portable", source(text, &defines));
    }
    defines.extend([
        ("UNITS", UNITS),
        ("STAGES", STAGES),
        ("UNIT_STAGES", UNIT_STAGES),
    ]);
    let text = concat!(
        include_str!("../kernels/drafter/hopper.cuh"),
        include_str!("../kernels/drafter/attention.cu")
    );
    ("drafter/attention", source(text, &defines))
}

impl Attention {
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        stream: &Stream,
        s: &Shape,
        kernels: AttentionKernels,
    ) -> Result<Self, CudaError> {
        let hopper = gpu.capability().0 == 9 && kernels == AttentionKernels::Auto;
        let (file, text) = attention_source(s, hopper);
        let module = Module::load(gpu, &Source { file, text: &text })?;
        let this = Self {
            s: *s,
            stream: stream.clone(),
            hopper,
            attention: module.kernel("attention")?,
            gradient_means: module.kernel("gradient_means")?,
            query_gradient: module.kernel("query_gradient")?,
            key_gradient: module.kernel("key_gradient")?,
        };
        if hopper {
            for (kernel, tiles) in [
                (&this.attention, this.forward_tiles()),
                (&this.query_gradient, this.query_tiles()),
                (&this.key_gradient, this.key_tiles()),
            ] {
                kernel.allow_shared(this.shared(tiles))?;
            }
        }
        Ok(this)
    }

    /// How many blocks of slots the plan puts into a share.
    pub(super) fn units(&self) -> usize {
        UNITS
    }

    /// Tiles of 64 rows that a launch block holds.
    fn forward_tiles(&self) -> usize {
        UNITS + 2 * STAGES
    }

    fn query_tiles(&self) -> usize {
        2 * UNITS + 2 * STAGES
    }

    fn key_tiles(&self) -> usize {
        4 + 2 * UNIT_STAGES
    }

    /// Shared memory of so many tiles, with room to align them.
    fn shared(&self, tiles: usize) -> u32 {
        (tiles * self.s.head_dim.div_ceil(64) * TILE_BYTES + 1024) as u32
    }

    /// Attention of all slots.
    pub(super) fn forward(
        &self,
        h: &Heads,
        sights: &Sights,
        to: &Attended,
    ) -> Result<(), CudaError> {
        let s = &self.s;
        to.out.check("attention", sights.slots * s.queries())?;
        to.log_sum.check("attention", sights.slots * s.heads)?;
        if !self.hopper {
            let launch = self
                .attention
                .launch([(sights.slots * s.heads).div_ceil(8), 1, 1], 256);
            let launch = rows(launch, &h.queries);
            let launch = self
                .keys(launch, h)
                .ptr(sights.sights)
                .ptr(to.out)
                .ptr(to.log_sum);
            let launch = launch
                .int(sights.slots)
                .int(s.heads)
                .int(s.heads / s.key_heads)
                .float(s.scale());
            // SAFETY: as declared in attention_portable.cu; the plan's numbers name rows of the operands.
            return unsafe { launch.on(&self.stream) };
        }
        let launch = self
            .attention
            .launch(self.share_grid(sights), UNITS * 128 + 128);
        let launch = launch
            .shared(self.shared(self.forward_tiles()))
            .words(&self.unit_map(&h.queries)?);
        let launch = self
            .key_maps(launch, h)?
            .ptr(sights.shares)
            .ptr(sights.anchors)
            .ptr(to.out)
            .ptr(to.log_sum);
        let launch = launch
            .int(sights.slots)
            .int(s.heads)
            .int(s.chunks())
            .float(s.scale());
        // SAFETY: as declared in attention.cu; the plan's numbers name rows of the operands.
        unsafe { launch.on(&self.stream) }
    }

    /// Gradients of all inputs from that of the output [N, queries].
    pub(super) fn backward(
        &self,
        h: &Heads,
        sights: &Sights,
        from: &Attended,
        gradient: Ptr<bf16>,
        to: &HeadGradients,
    ) -> Result<(), CudaError> {
        let (s, slots) = (&self.s, sights.slots);
        gradient.check("attention gradient", slots * s.queries())?;
        to.of_slots.check("attention gradient", slots * s.qkv())?;
        to.of_context
            .check("attention gradient", h.context_keys.rows * 2 * s.keys())?;
        to.means.check("attention gradient", slots * s.heads)?;
        let launch = self
            .gradient_means
            .launch([(slots * s.heads).div_ceil(8), 1, 1], 256);
        let launch = launch
            .ptr(gradient)
            .ptr(from.out)
            .ptr(to.means)
            .int(slots)
            .int(s.heads);
        // SAFETY: as declared in either file.
        unsafe { launch.on(&self.stream) }?;
        self.query_gradient(h, sights, from, gradient, to)?;
        self.key_gradient(h, sights, from, gradient, to)
    }

    fn query_gradient(
        &self,
        h: &Heads,
        sights: &Sights,
        from: &Attended,
        gradient: Ptr<bf16>,
        to: &HeadGradients,
    ) -> Result<(), CudaError> {
        let s = &self.s;
        if !self.hopper {
            let launch = self
                .query_gradient
                .launch([(sights.slots * s.heads).div_ceil(8), 1, 1], 256);
            let launch = self
                .keys(rows(launch, &h.queries).ptr(gradient), h)
                .ptr(sights.sights);
            let launch = launch
                .ptr(from.log_sum)
                .ptr(to.means)
                .ptr(to.of_slots)
                .long(s.qkv() as u64);
            let launch = launch
                .int(sights.slots)
                .int(s.heads)
                .int(s.heads / s.key_heads)
                .float(s.scale());
            // SAFETY: as declared in attention_portable.cu.
            return unsafe { launch.on(&self.stream) };
        }
        let launch = self
            .query_gradient
            .launch(self.share_grid(sights), UNITS * 128 + 128);
        let launch = launch.shared(self.shared(self.query_tiles()));
        let launch = self
            .unit_maps(launch, h, gradient, sights)?
            .ptr(sights.shares)
            .ptr(sights.anchors);
        let launch = launch
            .ptr(from.log_sum)
            .ptr(to.means)
            .ptr(to.of_slots)
            .int(s.qkv());
        let launch = launch.int(sights.slots).int(s.chunks()).float(s.scale());
        // SAFETY: as declared in attention.cu.
        unsafe { launch.on(&self.stream) }
    }

    fn key_gradient(
        &self,
        h: &Heads,
        sights: &Sights,
        from: &Attended,
        gradient: Ptr<bf16>,
        to: &HeadGradients,
    ) -> Result<(), CudaError> {
        let s = &self.s;
        let grid = [sights.key_shares.len() / 6, s.key_heads, 1];
        let slot_keys = to.of_slots.at(s.queries()..to.of_slots.len());
        let launch = if self.hopper {
            let launch = self
                .key_gradient
                .launch(grid, 384)
                .shared(self.shared(self.key_tiles()));
            self.unit_maps(launch, h, gradient, sights)?
        } else {
            self.keys(
                rows(self.key_gradient.launch(grid, 256), &h.queries).ptr(gradient),
                h,
            )
        };
        let launch = launch
            .ptr(sights.key_shares)
            .ptr(sights.anchors)
            .ptr(from.log_sum)
            .ptr(to.means);
        let launch = launch
            .ptr(to.of_context)
            .int(2 * s.keys())
            .ptr(slot_keys)
            .int(s.qkv())
            .int(s.keys());
        let launch = launch.int(sights.slots);
        let launch = match self.hopper {
            true => launch.int(s.chunks()),
            false => launch.int(s.heads).int(s.heads / s.key_heads),
        };
        // SAFETY: as declared in either file.
        unsafe { launch.float(s.scale()).on(&self.stream) }
    }

    fn share_grid(&self, sights: &Sights) -> [usize; 3] {
        [
            sights.shares.len() / 4,
            self.s.key_heads * self.s.chunks(),
            1,
        ]
    }

    /// Keys and values for the portable kernels.
    fn keys<'a>(&self, launch: Launch<'a>, h: &Heads) -> Launch<'a> {
        let parts = [
            &h.context_keys,
            &h.context_values,
            &h.slot_keys,
            &h.slot_values,
        ];
        parts.into_iter().fold(launch, rows)
    }

    /// Maps of queries, of their gradient, of keys and values.
    fn unit_maps<'a>(
        &self,
        launch: Launch<'a>,
        h: &Heads,
        gradient: Ptr<bf16>,
        sights: &Sights,
    ) -> Result<Launch<'a>, CudaError> {
        let gradients = Rows {
            ptr: gradient,
            pitch: self.s.queries(),
            rows: sights.slots,
        };
        let launch = launch
            .words(&self.unit_map(&h.queries)?)
            .words(&self.unit_map(&gradients)?);
        self.key_maps(launch, h)
    }

    fn key_maps<'a>(&self, launch: Launch<'a>, h: &Heads) -> Result<Launch<'a>, CudaError> {
        let parts = [
            &h.context_keys,
            &h.context_values,
            &h.slot_keys,
            &h.slot_values,
        ];
        parts.into_iter().try_fold(launch, |launch, part| {
            let map = self.map(part, self.s.key_heads, [1, TILE_ROWS])?;
            Ok(launch.words(&map))
        })
    }

    fn unit_map(&self, queries: &Rows) -> Result<[u64; 16], CudaError> {
        self.map(queries, self.s.heads, [self.s.unit_heads(), self.s.slots])
    }

    /// Describes rows of heads to the copy engine, which brings boxes of 64 numbers of so many heads and rows.
    fn map(
        &self,
        r: &Rows,
        heads: usize,
        [box_heads, box_rows]: [usize; 2],
    ) -> Result<[u64; 16], CudaError> {
        let d = self.s.head_dim;
        r.ptr.check(
            "rows of heads",
            r.rows.saturating_sub(1) * r.pitch + heads * d,
        )?;
        let dims = [d, heads, r.rows.max(1)].map(|n| n as u64);
        let strides = [d * 2, r.pitch * 2].map(|n| n as u64);
        let boxes = [64, box_heads, box_rows].map(|n| n as u32);
        let steps = [1u32; 3];
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        // SAFETY: all arrays have the rank's length, and the memory described was checked to exist.
        unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut map,
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                3,
                r.ptr.address() as *mut std::ffi::c_void,
                dims.as_ptr(),
                strides.as_ptr(),
                boxes.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        }
        .result()
        .named("cuTensorMapEncodeTiled")?;
        Ok(map.opaque)
    }
}

type Launch<'a> = crate::cuda::kernels::Launch<'a>;

fn rows<'a>(launch: Launch<'a>, r: &Rows) -> Launch<'a> {
    launch.ptr(r.ptr).long(r.pitch as u64)
}
