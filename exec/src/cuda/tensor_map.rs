//! Descriptions of memory for Hopper's copy engine, which moves whole boxes of it to and from shared memory.

use super::{CudaError, Named, Ptr};
use cudarc::driver::sys;
use half::bf16;
use std::ffi::c_void;

/// How much is brought to the second-level cache at a time.
pub(super) type Promotion = sys::CUtensorMapL2promotion;

/// Describes bf16 numbers from `from` on: `sizes` of them in each dimension, innermost first, `steps` elements from one to the next
/// (the innermost are neighbours), moved in `boxes`. Rows of a box lie in shared memory in the order of 128-byte swizzling; what a box
/// asks for outside comes as zeros.
///
/// The caller has checked that all of it exists, and keeps it.
///
/// # Errors
/// Sizes or steps that the engine cannot do.
pub(super) fn tensor_map<const N: usize>(
    from: Ptr<bf16>,
    sizes: [usize; N],
    steps: [usize; N],
    boxes: [usize; N],
    promotion: Promotion,
) -> Result<[u64; 16], CudaError> {
    let sizes = sizes.map(|n| n as u64);
    // In bytes; the innermost one is not told.
    let strides = steps.map(|n| 2 * n as u64);
    let boxes = boxes.map(|n| n as u32);
    let every = [1u32; N];
    let mut map = sys::CUtensorMap { opaque: [0; 16] };
    // SAFETY: all arrays have the rank's length, the strides one less, and the memory described exists.
    unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut map,
            sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            N as u32,
            from.address() as *mut c_void,
            sizes.as_ptr(),
            strides[1..].as_ptr(),
            boxes.as_ptr(),
            every.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            promotion,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    }
    .result()
    .named("cuTensorMapEncodeTiled")?;
    Ok(map.opaque)
}
