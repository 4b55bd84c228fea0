//! The texts of attention's kernels, and the kernels loaded.

use std::sync::Arc;

use crate::cuda::drafter::ops::source;
use crate::cuda::drafter::shape::Shape;
use crate::cuda::{CudaError, Gpu, Kernel, Module, Source};

/// Blocks of slots that one launch block works on: one a warpgroup.
pub(super) const UNITS: usize = 3;
/// Depth of the ring of key tiles.
const STAGES: usize = 4;
/// Depth of the ring of units in the gradient of keys.
const UNIT_STAGES: usize = 3;
/// Bytes of 64 rows of 64 numbers.
const TILE_BYTES: usize = 8192;

/// The text of the kernels for a shape, of full layers (`window` 0) or of sliding ones.
pub(in crate::cuda::drafter) fn attention_source(
    s: &Shape,
    hopper: bool,
    window: usize,
) -> (&'static str, String) {
    let mut defines = vec![
        ("HEAD_DIM", s.head_dim),
        ("SLOTS", s.slots),
        ("UNIT_HEADS", s.unit_heads()),
        ("WINDOW", window),
        ("CAUSAL", usize::from(s.causal)),
    ];
    if !hopper {
        let text = include_str!("../../kernels/drafter/attention_portable.cu");
        return ("drafter/attention_portable", source(text, &defines));
    }
    defines.extend([
        ("UNITS", UNITS),
        ("STAGES", STAGES),
        ("UNIT_STAGES", UNIT_STAGES),
        ("LANES", lanes()),
    ]);
    let text = concat!(
        include_str!("../../kernels/hopper.cuh"),
        include_str!("../../kernels/drafter/attention.cu")
    );
    ("drafter/attention", source(text, &defines))
}

/// Lanes of a warp that arrive at a barrier for all of it; with `DFLASH_RACECHECK` each for itself, which a race checker understands.
fn lanes() -> usize {
    match std::env::var_os("DFLASH_RACECHECK") {
        Some(_) => 32,
        None => 1,
    }
}

/// The kernels of full or of sliding layers.
#[derive(Debug)]
pub(super) struct Kernels {
    pub(super) attention: Kernel,
    pub(super) gradient_means: Kernel,
    pub(super) query_gradient: Kernel,
    pub(super) key_gradient: Kernel,
    /// Dynamic shared memory of a block of each; used on Hopper. (bytes)
    pub(super) attention_shared: u32,
    pub(super) query_shared: u32,
    pub(super) key_shared: u32,
}

impl Kernels {
    pub(super) fn load(
        gpu: &Arc<Gpu>,
        s: &Shape,
        hopper: bool,
        window: usize,
    ) -> Result<Self, CudaError> {
        let (file, text) = attention_source(s, hopper, window);
        let module = Module::load(gpu, &Source { file, text: &text })?;
        // So many tiles of 64 rows, with room to align them.
        let shared = |tiles: usize| (tiles * s.head_dim.div_ceil(64) * TILE_BYTES + 1024) as u32;
        let kernels = Self {
            attention: module.kernel("attention")?,
            gradient_means: module.kernel("gradient_means")?,
            query_gradient: module.kernel("query_gradient")?,
            key_gradient: module.kernel("key_gradient")?,
            attention_shared: shared(UNITS + 2 * STAGES),
            query_shared: shared(2 * UNITS + 2 * STAGES),
            key_shared: shared(4 + 2 * UNIT_STAGES),
        };
        if hopper {
            kernels.attention.allow_shared(kernels.attention_shared)?;
            kernels.query_gradient.allow_shared(kernels.query_shared)?;
            kernels.key_gradient.allow_shared(kernels.key_shared)?;
        }
        Ok(kernels)
    }
}
