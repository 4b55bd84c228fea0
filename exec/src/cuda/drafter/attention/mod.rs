//! Attention over the context before each block's anchor and over the block itself.
//! Sliding layers see a window of that context, and perhaps only the slots before each.
//!
//! Two sets of kernels with one interface: Hopper's own, and portable ones for other devices and for checks.

mod kernels;

use std::sync::Arc;

use half::bf16;

use super::shape::Shape;
use crate::cuda::tensor_map::{Promotion, tensor_map};
use crate::cuda::{CudaError, Gpu, Ptr, Stream};
use kernels::{Kernels, UNITS};

pub(super) use kernels::attention_source;

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
    full: Kernels,
    sliding: Option<Kernels>,
    /// Which layers slide; none when the list is empty.
    slides: Vec<bool>,
}

impl Attention {
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        stream: &Stream,
        s: &Shape,
        slides: Vec<bool>,
        kernels: AttentionKernels,
    ) -> Result<Self, CudaError> {
        let hopper = gpu.capability().0 == 9 && kernels == AttentionKernels::Auto;
        let load = |window: usize| Kernels::load(gpu, s, hopper, window);
        Ok(Self {
            s: *s,
            stream: stream.clone(),
            hopper,
            full: load(0)?,
            sliding: slides.contains(&true).then(|| load(s.window)).transpose()?,
            slides,
        })
    }

    /// The kernels of a layer.
    fn of(&self, layer: usize) -> &Kernels {
        match (&self.sliding, self.slides.get(layer)) {
            (Some(sliding), Some(true)) => sliding,
            _ => &self.full,
        }
    }

    /// How many blocks of slots the plan puts into a share.
    pub(super) fn units(&self) -> usize {
        UNITS
    }

    /// Attention of all slots.
    pub(super) fn forward(
        &self,
        layer: usize,
        h: &Heads,
        sights: &Sights,
        to: &Attended,
    ) -> Result<(), CudaError> {
        let (s, kernels) = (&self.s, self.of(layer));
        to.out.check("attention", sights.slots * s.queries())?;
        to.log_sum.check("attention", sights.slots * s.heads)?;
        if !self.hopper {
            let launch = kernels
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
        let launch = kernels
            .attention
            .launch(self.share_grid(sights), UNITS * 128 + 128);
        let launch = launch
            .shared(kernels.attention_shared)
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
        layer: usize,
        h: &Heads,
        sights: &Sights,
        from: &Attended,
        gradient: Ptr<bf16>,
        to: &HeadGradients,
    ) -> Result<(), CudaError> {
        let (s, slots, kernels) = (&self.s, sights.slots, self.of(layer));
        gradient.check("attention gradient", slots * s.queries())?;
        to.of_slots.check("attention gradient", slots * s.qkv())?;
        to.of_context
            .check("attention gradient", h.context_keys.rows * 2 * s.keys())?;
        to.means.check("attention gradient", slots * s.heads)?;
        let launch = kernels
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
        self.query_gradient(kernels, h, sights, from, gradient, to)?;
        self.key_gradient(kernels, h, sights, from, gradient, to)
    }

    fn query_gradient(
        &self,
        kernels: &Kernels,
        h: &Heads,
        sights: &Sights,
        from: &Attended,
        gradient: Ptr<bf16>,
        to: &HeadGradients,
    ) -> Result<(), CudaError> {
        let s = &self.s;
        if !self.hopper {
            let launch = kernels
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
        let launch = kernels
            .query_gradient
            .launch(self.share_grid(sights), UNITS * 128 + 128);
        let launch = launch.shared(kernels.query_shared);
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
        kernels: &Kernels,
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
            let launch = kernels
                .key_gradient
                .launch(grid, 384)
                .shared(kernels.key_shared);
            self.unit_maps(launch, h, gradient, sights)?
        } else {
            self.keys(
                rows(kernels.key_gradient.launch(grid, 256), &h.queries).ptr(gradient),
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
        tensor_map(
            r.ptr,
            [d, heads, r.rows.max(1)],
            [1, d, r.pitch],
            [64, box_heads, box_rows],
            Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        )
    }
}

type Launch<'a> = crate::cuda::kernels::Launch<'a>;

fn rows<'a>(launch: Launch<'a>, r: &Rows) -> Launch<'a> {
    launch.ptr(r.ptr).long(r.pitch as u64)
}
