//! Matrix products through cuBLASLt: bf16 factors, sums in f32, results in bf16 or f32.
//!
//! Matrices are row-major. The library's are column-major, so C = A·B is asked for as Cᵀ = Bᵀ·Aᵀ. Asking the library which of its
//! kernels to take costs more host time than a launch; the answer is kept for each shape.

use super::{Buffer, CudaError, Element, Named, Pool, Ptr, Stream};
use cudarc::cublaslt::{result, sys};
use half::bf16;
use std::collections::HashMap;
use std::ffi::c_void;

/// What the library may use beside the operands. (bytes)
pub(crate) const WORKSPACE_BYTES: usize = 64 << 20;

/// Candidates timed for a shape.
const CANDIDATES: usize = 8;

/// Runs of each candidate in a burst.
const BURST_RUNS: usize = 3;

/// Products shorter than this are judged by the burst alone. (ms)
const LONG_MS: f32 = 0.3;

/// Candidates within this factor of the best burst are run under load.
const NEAR: f32 = 1.15;

/// How long each is run under load, in each order. (ms)
const SUSTAINED_MS: f32 = 40.0;

/// Shapes whose descriptors are kept; when there are more, all are made anew.
const PLANS_MAX: usize = 4096;

/// How a kernel is chosen for a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tuning {
    /// The library's first answer: the same in every run.
    Heuristic,
    /// The fastest of its first answers, timed when a shape is first met; may differ from run to run, and so may last digits.
    Timed,
}

/// A row-major matrix in device memory, or a batch of them, perhaps seen transposed.
#[derive(Debug)]
pub struct Matrix<T> {
    ptr: Ptr<T>,
    rows: usize,
    columns: usize,
    /// Elements from one row to the next, in memory.
    pitch: usize,
    transposed: bool,
    batch: usize,
    /// Elements from one matrix of the batch to the next.
    stride: usize,
}

impl<T> Clone for Matrix<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Matrix<T> {}

impl<T: Element> Matrix<T> {
    /// A dense matrix at the start of `ptr`.
    pub fn new(ptr: Ptr<T>, rows: usize, columns: usize) -> Self {
        Self {
            ptr,
            rows,
            columns,
            pitch: columns,
            transposed: false,
            batch: 1,
            stride: 0,
        }
    }

    /// The same with `pitch` elements from row to row.
    #[must_use]
    pub fn with_pitch(self, pitch: usize) -> Self {
        Self { pitch, ..self }
    }

    /// `count` such matrices, `stride` elements apart; a stride of 0 repeats one.
    #[must_use]
    pub fn batched(self, count: usize, stride: usize) -> Self {
        Self {
            batch: count,
            stride,
            ..self
        }
    }

    /// The transposed view of the same memory.
    #[must_use]
    pub fn t(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            transposed: !self.transposed,
            ..self
        }
    }

    /// Elements from the first to behind the last one.
    fn extent(&self) -> usize {
        let (rows, columns) = self.in_memory();
        match rows * columns {
            0 => 0,
            _ => (self.batch - 1) * self.stride + (rows - 1) * self.pitch + columns,
        }
    }

    fn in_memory(&self) -> (usize, usize) {
        match self.transposed {
            true => (self.columns, self.rows),
            false => (self.rows, self.columns),
        }
    }

    fn place(&self) -> Place {
        Place {
            pitch: self.pitch,
            transposed: self.transposed,
            stride: self.stride,
            // Pointers into the middle of a buffer may not allow the widest loads.
            alignment: 1 << self.ptr.address().trailing_zeros().min(8),
        }
    }
}

/// Where a product goes.
#[derive(Debug, Clone, Copy)]
pub enum Output {
    /// Rounded to bf16.
    Bf16(Matrix<bf16>),
    /// As summed.
    F32(Matrix<f32>),
}

impl From<Matrix<bf16>> for Output {
    fn from(matrix: Matrix<bf16>) -> Self {
        Self::Bf16(matrix)
    }
}

impl From<Matrix<f32>> for Output {
    fn from(matrix: Matrix<f32>) -> Self {
        Self::F32(matrix)
    }
}

impl Output {
    fn shape(&self) -> [usize; 3] {
        match self {
            Self::Bf16(m) => [m.batch, m.rows, m.columns],
            Self::F32(m) => [m.batch, m.rows, m.columns],
        }
    }

    fn place(&self) -> Place {
        match self {
            Self::Bf16(m) => m.place(),
            Self::F32(m) => m.place(),
        }
    }

    fn fits(&self) -> bool {
        match self {
            Self::Bf16(m) => m.extent() <= m.ptr.len() && !m.transposed,
            Self::F32(m) => m.extent() <= m.ptr.len() && !m.transposed,
        }
    }

    fn address(&self) -> u64 {
        match self {
            Self::Bf16(m) => m.ptr.address(),
            Self::F32(m) => m.ptr.address(),
        }
    }

    fn kind(&self) -> sys::cudaDataType {
        match self {
            Self::Bf16(_) => sys::cudaDataType::CUDA_R_16BF,
            Self::F32(_) => sys::cudaDataType::CUDA_R_32F,
        }
    }
}

/// How a matrix lies in memory, as far as the choice of a kernel depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    pitch: usize,
    transposed: bool,
    stride: usize,
    alignment: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Shape {
    batch: usize,
    rows: usize,
    columns: usize,
    inner: usize,
    places: [Place; 3],
    is_f32: bool,
}

impl Shape {
    /// The same with sizes rounded up to eighths of a power of two: shapes of about one size share what timing chose.
    fn rounded(self) -> Self {
        let up = |n: usize| n.next_multiple_of((n.next_power_of_two() / 8).max(1));
        Self {
            rows: up(self.rows),
            columns: up(self.columns),
            inner: up(self.inner),
            ..self
        }
    }
}

/// The library with its workspace, for one stream.
#[derive(Debug)]
pub struct Gemm {
    handle: sys::cublasLtHandle_t,
    workspace: Buffer<u8>,
    tuning: Tuning,
    plans: HashMap<Shape, Plan>,
    /// What timing chose, for shapes of about one size.
    chosen: HashMap<Shape, sys::cublasLtMatmulAlgo_t>,
}

// SAFETY: the library's handles may be used by any thread, one at a time, which `&mut self` keeps.
unsafe impl Send for Gemm {}

impl Gemm {
    /// Takes its workspace of 64 MiB from `pool`.
    ///
    /// # Errors
    /// The library is missing, or the pool is too small.
    pub fn new(pool: &std::sync::Arc<Pool>, tuning: Tuning) -> Result<Self, CudaError> {
        // SAFETY: loading the library runs its initialisers.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoLibrary {
                library: "libcublasLt",
                version: "13",
                package: "nvidia-cublas",
            });
        }
        pool.gpu().bind()?;
        Ok(Self {
            handle: result::create_handle().named("cublasLtCreate")?,
            workspace: pool.buffer(WORKSPACE_BYTES)?,
            tuning,
            plans: HashMap::new(),
            chosen: HashMap::new(),
        })
    }

    /// From now on, kernels for shapes not met before are chosen so.
    pub fn set_tuning(&mut self, tuning: Tuning) {
        self.tuning = tuning;
    }

    /// c = alpha · a·b + beta · c.
    ///
    /// With [`Tuning::Timed`], a shape met for the first time is timed where running it again changes nothing, which waits for the stream.
    ///
    /// # Errors
    /// Matrices that do not fit each other or their memory; shapes that the library has no kernel for.
    pub fn multiply(
        &mut self,
        stream: &Stream,
        a: Matrix<bf16>,
        b: Matrix<bf16>,
        c: impl Into<Output>,
        factors: [f32; 2],
    ) -> Result<(), CudaError> {
        let c = c.into();
        let source = c.address();
        self.product(stream, a, b, c, source, factors)
    }

    /// c = a·b + source, where `source` is shaped like `c` and lies apart from it.
    ///
    /// # Errors
    /// As [`Gemm::multiply`].
    pub fn multiply_onto(
        &mut self,
        stream: &Stream,
        a: Matrix<bf16>,
        b: Matrix<bf16>,
        source: Matrix<bf16>,
        c: Matrix<bf16>,
    ) -> Result<(), CudaError> {
        let alike = |m: &Matrix<bf16>| (m.batch, m.rows, m.columns, m.pitch, m.stride);
        if alike(&source) != alike(&c) || source.extent() > source.ptr.len() {
            return Err(CudaError::Shape(format!(
                "a product into {:?} onto {:?} (batch, rows, columns, pitch, stride) does not fit",
                alike(&c),
                alike(&source)
            )));
        }
        let address = source.ptr.address();
        self.product(stream, a, b, c.into(), address, [1.0, 1.0])
    }

    fn product(
        &mut self,
        stream: &Stream,
        a: Matrix<bf16>,
        b: Matrix<bf16>,
        c: Output,
        source: u64,
        [alpha, beta]: [f32; 2],
    ) -> Result<(), CudaError> {
        let shape = fit(&a, &b, &c)?;
        if shape.batch * shape.rows * shape.columns == 0 {
            return Ok(());
        }
        stream.gpu().bind()?;
        let call = Call {
            addresses: [a.ptr.address(), b.ptr.address(), source, c.address()],
            alpha,
            beta,
        };
        if !self.plans.contains_key(&shape) {
            if self.plans.len() >= PLANS_MAX {
                self.plans.clear();
            }
            let plan = self.plan(stream, &shape, &c, &call)?;
            self.plans.insert(shape, plan);
        }
        let plan = &self.plans[&shape];
        self.run(stream, plan, &plan.algorithm, &call)
    }

    fn plan(
        &mut self,
        stream: &Stream,
        shape: &Shape,
        c: &Output,
        call: &Call,
    ) -> Result<Plan, CudaError> {
        let mut plan = Plan::new(shape, c.kind())?;
        // Sizes differ a little from one microbatch to the next; timing again for each would never end.
        let known = self.chosen.get(&shape.rounded());
        if let Some(known) = known.filter(|known| plan.accepts(self.handle, known)) {
            plan.algorithm = *known;
            return Ok(plan);
        }
        let wanted = match self.tuning {
            Tuning::Timed if call.repeats() => CANDIDATES,
            Tuning::Timed | Tuning::Heuristic => 1,
        };
        let candidates = plan.candidates(self.handle, shape, wanted)?;
        let Some(first) = candidates.first() else {
            return Err(CudaError::Shape(format!(
                "cuBLASLt has no kernel for a product of {} x {} x {}",
                shape.rows, shape.inner, shape.columns
            )));
        };
        plan.algorithm = first.algo;
        let times = match candidates.len() {
            1 => Vec::new(),
            _ => self.survey(stream, &plan, &candidates, call)?,
        };
        let timed = times.iter().zip(&candidates);
        if let Some((_, best)) = timed.min_by(|a, b| a.0.total_cmp(b.0)) {
            plan.algorithm = best.algo;
            self.chosen.insert(shape.rounded(), best.algo);
        }
        Ok(plan)
    }

    /// Milliseconds of each candidate; infinite for one that does not run or is far behind.
    ///
    /// A GPU under load is held back by its power limit, and the kernel that is fastest in a short burst need not be the fastest then. So
    /// candidates near the best are run long enough to feel the limit, once in each order.
    fn survey(
        &self,
        stream: &Stream,
        plan: &Plan,
        candidates: &[sys::cublasLtMatmulHeuristicResult_t],
        call: &Call,
    ) -> Result<Vec<f32>, CudaError> {
        let time = |at: usize, runs: usize| -> Result<f32, CudaError> {
            let start = stream.record_timed()?;
            for _ in 0..runs {
                self.run(stream, plan, &candidates[at].algo, call)?;
            }
            Ok(start.elapsed_ms(&stream.record_timed()?)? / runs as f32)
        };
        let burst = |at: usize| time(at, 1).and_then(|_| time(at, BURST_RUNS));
        let mut times: Vec<f32> = (0..candidates.len())
            .map(|at| burst(at).unwrap_or(f32::INFINITY))
            .collect();
        let best = times.iter().copied().fold(f32::INFINITY, f32::min);
        if !best.is_finite() || best < LONG_MS {
            return Ok(times);
        }
        let near: Vec<usize> = (0..times.len())
            .filter(|&at| times[at] < NEAR * best)
            .collect();
        let runs = ((SUSTAINED_MS / best) as usize).max(2);
        // The first of them warms the GPU for the others and is timed again.
        time(near[0], 2 * runs)?;
        let mut sums = vec![0.0; times.len()];
        for &at in near.iter().chain(near.iter().rev()) {
            sums[at] += time(at, runs)? / 2.0;
        }
        for (time, sum) in times.iter_mut().zip(sums) {
            *time = if sum > 0.0 { sum } else { f32::INFINITY };
        }
        Ok(times)
    }

    /// The library's candidates for a product, each with its settings and milliseconds.
    ///
    /// # Errors
    /// As [`Gemm::multiply`].
    pub fn candidates(
        &self,
        stream: &Stream,
        a: Matrix<bf16>,
        b: Matrix<bf16>,
        c: Matrix<bf16>,
        wanted: usize,
    ) -> Result<Vec<(String, f32)>, CudaError> {
        let c = Output::Bf16(c);
        let shape = fit(&a, &b, &c)?;
        let call = Call {
            addresses: [a.ptr.address(), b.ptr.address(), c.address(), c.address()],
            alpha: 1.0,
            beta: 0.0,
        };
        let plan = Plan::new(&shape, c.kind())?;
        let candidates = plan.candidates(self.handle, &shape, wanted)?;
        let times = self.survey(stream, &plan, &candidates, &call)?;
        let settings = candidates.iter().map(|candidate| settings(&candidate.algo));
        Ok(settings.zip(times).collect())
    }

    fn run(
        &self,
        stream: &Stream,
        plan: &Plan,
        algorithm: &sys::cublasLtMatmulAlgo_t,
        call: &Call,
    ) -> Result<(), CudaError> {
        let [a, b, source, c] = call.addresses;
        // SAFETY: descriptors and handle live as long as `self`; the operands' extents were checked against their buffers.
        unsafe {
            result::matmul(
                self.handle,
                plan.operation,
                (&raw const call.alpha).cast(),
                (&raw const call.beta).cast(),
                b as *const c_void,
                plan.b,
                a as *const c_void,
                plan.a,
                source as *const c_void,
                plan.c,
                c as *mut c_void,
                plan.c,
                algorithm,
                self.workspace.ptr().address() as *mut c_void,
                WORKSPACE_BYTES,
                stream.raw().cast(),
            )
        }
        .named("cublasLtMatmul")
    }
}

/// The shape of a product whose matrices fit each other and their memory.
fn fit(a: &Matrix<bf16>, b: &Matrix<bf16>, c: &Output) -> Result<Shape, CudaError> {
    let [batch, rows, columns] = c.shape();
    let inner = a.columns;
    let fits = a.rows == rows
        && b.columns == columns
        && b.rows == inner
        && [a.batch, b.batch] == [batch; 2]
        && a.extent() <= a.ptr.len()
        && b.extent() <= b.ptr.len()
        && c.fits();
    if fits {
        return Ok(Shape {
            batch,
            rows,
            columns,
            inner,
            places: [a.place(), b.place(), c.place()],
            is_f32: matches!(c, Output::F32(_)),
        });
    }
    let (a, b) = ([a.batch, a.rows, a.columns], [b.batch, b.rows, b.columns]);
    let c = c.shape();
    Err(CudaError::Shape(format!(
        "a product of {a:?} and {b:?} into {c:?} (batch, rows, columns) does not fit"
    )))
}

/// A kernel's settings: its number, tile, stages, cluster and order of tiles, as the library numbers them.
fn settings(algorithm: &sys::cublasLtMatmulAlgo_t) -> String {
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

impl Drop for Gemm {
    fn drop(&mut self) {
        self.plans.clear();
        // SAFETY: the handle was made by `new` and is destroyed once. Nobody is left to hear of an error.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

struct Call {
    /// Of a, b, what is added to the product, and the result.
    addresses: [u64; 4],
    alpha: f32,
    beta: f32,
}

impl Call {
    /// Whether running it again gives the same.
    fn repeats(&self) -> bool {
        let [_, _, source, result] = self.addresses;
        self.beta == 0.0 || source != result
    }
}

/// The library's descriptors of a shape, and the kernel to take.
#[derive(Debug)]
struct Plan {
    operation: sys::cublasLtMatmulDesc_t,
    a: sys::cublasLtMatrixLayout_t,
    b: sys::cublasLtMatrixLayout_t,
    c: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

impl Plan {
    fn new(shape: &Shape, kind: sys::cudaDataType) -> Result<Self, CudaError> {
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
    fn accepts(
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

    fn candidates(
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
fn layout(
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
