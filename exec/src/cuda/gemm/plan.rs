//! The library's descriptors of a product, and its kernels for it.

use super::WORKSPACE_BYTES;
use super::matrix::{Place, Shape};
use crate::cuda::{CudaError, Named};
use cudarc::cublaslt::{result, sys};

/// A kernel's settings: its number, tile, stages, cluster and order of tiles, as the library numbers them.
pub(super) fn settings(algorithm: &sys::cublasLtMatmulAlgo_t) -> String {
    use sys::cublasLtMatmulAlgoConfigAttributes_t as Attribute;
    let attributes = [
        ("kernel", Attribute::CUBLASLT_ALGO_CONFIG_ID),
        ("tile", Attribute::CUBLASLT_ALGO_CONFIG_TILE_ID),
        ("stages", Attribute::CUBLASLT_ALGO_CONFIG_STAGES_ID),
        ("cluster", Attribute::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
        ("order", Attribute::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
    ];
    let each = attributes.map(|(name, attribute)| {
        let (mut value, mut written) = (0u32, 0usize);
        // SAFETY: there is room for the four bytes that are asked for.
        let _ = unsafe {
            sys::cublasLtMatmulAlgoConfigGetAttribute(
                algorithm,
                attribute,
                (&raw mut value).cast(),
                size_of::<u32>(),
                &raw mut written,
            )
        };
        // Some attributes are 16 bits wide.
        let value = if written == 2 { value & 0xffff } else { value };
        format!("{name} {value}")
    });
    each.join(" ")
}

/// The library's descriptors of a shape, and the kernel to take.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) operation: sys::cublasLtMatmulDesc_t,
    pub(super) a: sys::cublasLtMatrixLayout_t,
    pub(super) b: sys::cublasLtMatrixLayout_t,
    pub(super) c: sys::cublasLtMatrixLayout_t,
    pub(super) algorithm: sys::cublasLtMatmulAlgo_t,
}

impl Plan {
    pub(super) fn new(shape: &Shape, kind: sys::cudaDataType) -> Result<Self, CudaError> {
        let [a, b, c] = shape.places;
        let bf16 = sys::cudaDataType::CUDA_R_16BF;
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let operation = result::create_matmul_desc(compute, sys::cudaDataType::CUDA_R_32F)
            .named("cublasLtMatmulDescCreate")?;
        let plan = Self {
            operation,
            a: layout(bf16, [shape.rows, shape.inner], &a, shape.batch)?,
            b: layout(bf16, [shape.inner, shape.columns], &b, shape.batch)?,
            c: layout(kind, [shape.rows, shape.columns], &c, shape.batch)?,
            algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
        };
        // The library's first factor is our second.
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        for (attribute, place) in [
            (Attribute::CUBLASLT_MATMUL_DESC_TRANSA, b),
            (Attribute::CUBLASLT_MATMUL_DESC_TRANSB, a),
        ] {
            let transpose = i32::from(place.transposed);
            // SAFETY: the descriptor is alive and the attribute is an int.
            unsafe {
                result::set_matmul_desc_attribute(
                    plan.operation,
                    attribute,
                    (&raw const transpose).cast(),
                    size_of::<i32>(),
                )
            }
            .named("cublasLtMatmulDescSetAttribute")?;
        }
        Ok(plan)
    }

    /// Whether a kernel that was chosen for another shape works on this one.
    pub(super) fn accepts(
        &self,
        handle: sys::cublasLtHandle_t,
        algorithm: &sys::cublasLtMatmulAlgo_t,
    ) -> bool {
        // SAFETY: plain numbers, for which all zeros is a value.
        let mut answer: sys::cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        // SAFETY: all descriptors are alive and the answer has a place.
        let code = unsafe {
            sys::cublasLtMatmulAlgoCheck(
                handle,
                self.operation,
                self.b,
                self.a,
                self.c,
                self.c,
                algorithm,
                &raw mut answer,
            )
        };
        let fine = sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS;
        code == fine && answer.state == fine && answer.workspaceSize <= WORKSPACE_BYTES
    }

    pub(super) fn candidates(
        &self,
        handle: sys::cublasLtHandle_t,
        shape: &Shape,
        wanted: usize,
    ) -> Result<Vec<sys::cublasLtMatmulHeuristicResult_t>, CudaError> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let preference = result::create_matmul_pref().named("cublasLtMatmulPreferenceCreate")?;
        let workspace = WORKSPACE_BYTES;
        // SAFETY: the preference is alive and the attribute is a size.
        let mut outcome = unsafe {
            result::set_matmul_pref_attribute(
                preference,
                Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const workspace).cast(),
                size_of::<usize>(),
            )
        };
        let [a, b, c] = shape.places.map(|place| place.alignment);
        for (attribute, alignment) in [
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c),
        ] {
            outcome = outcome.and_then(|()| {
                // SAFETY: the preference is alive and the attribute is an unsigned int.
                unsafe {
                    result::set_matmul_pref_attribute(
                        preference,
                        attribute,
                        (&raw const alignment).cast(),
                        size_of::<u32>(),
                    )
                }
            });
        }
        // SAFETY: plain numbers, for which all zeros is a value.
        let nothing: sys::cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        let mut found = vec![nothing; wanted];
        let mut count = 0;
        // SAFETY: all descriptors are alive and there is room for `wanted` answers.
        let code = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle,
                self.operation,
                self.b,
                self.a,
                self.c,
                self.c,
                preference,
                wanted as i32,
                found.as_mut_ptr(),
                &raw mut count,
            )
        };
        // SAFETY: made above and destroyed once.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
        outcome
            .and_then(|()| code.result())
            .named("cublasLtMatmulAlgoGetHeuristic")?;
        found.truncate(count.max(0) as usize);
        found.retain(|f| f.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        Ok(found)
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: made by `new` and destroyed once. Nobody is left to hear of an error.
        unsafe {
            let _ = result::destroy_matmul_desc(self.operation);
            let _ = result::destroy_matrix_layout(self.a);
            let _ = result::destroy_matrix_layout(self.b);
            let _ = result::destroy_matrix_layout(self.c);
        }
    }
}

/// A row-major matrix [rows, columns] (as seen, so swapped in memory when transposed) as the library's column-major one.
pub(super) fn layout(
    kind: sys::cudaDataType,
    [rows, columns]: [usize; 2],
    place: &Place,
    batch: usize,
) -> Result<sys::cublasLtMatrixLayout_t, CudaError> {
    let (rows, columns) = match place.transposed {
        true => (columns, rows),
        false => (rows, columns),
    };
    let made = result::create_matrix_layout(kind, columns as u64, rows as u64, place.pitch as i64)
        .named("cublasLtMatrixLayoutCreate")?;
    if batch > 1 {
        use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
        let (count, stride) = (batch as i32, place.stride as i64);
        // SAFETY: the layout is alive; the attributes are an int and a 64-bit int.
        unsafe {
            result::set_matrix_layout_attribute(
                made,
                Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                (&raw const count).cast(),
                size_of::<i32>(),
            )
            .and_then(|()| {
                result::set_matrix_layout_attribute(
                    made,
                    Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                    (&raw const stride).cast(),
                    size_of::<i64>(),
                )
            })
        }
        .named("cublasLtMatrixLayoutSetAttribute")?;
    }
    Ok(made)
}
