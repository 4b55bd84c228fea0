//! Matrix products through cuBLASLt: bf16 factors, sums in f32, results in bf16 or f32.
//!
//! Matrices are row-major. The library's are column-major, so C = A·B is asked for as Cᵀ = Bᵀ·Aᵀ. Asking the library which of its
//! kernels to take costs more host time than a launch; the answer is kept for each shape.

pub(in crate::cuda) mod fused;
mod matrix;
mod plan;

use super::{Buffer, CudaError, Named, Pool, Stream};
use cudarc::cublaslt::{result, sys};
use half::bf16;
use matrix::{Shape, fit};
use plan::{Plan, settings};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use fused::{FusedProducts, HeadTurn};
pub use matrix::{Matrix, Output};

/// What the library may use beside the operands. (bytes)
pub(crate) const WORKSPACE_BYTES: usize = 64 << 20;

/// Candidates timed for a shape.
const CANDIDATES: usize = 16;

/// Runs of each candidate in a burst.
const BURST_RUNS: usize = 3;

/// Products shorter than this are judged by the burst alone. (ms)
const LONG_MS: f32 = 0.3;

/// Candidates within this factor of the best burst are run under load.
const NEAR: f32 = 1.15;

/// How long the GPU works before candidates are compared, so that all of them meet its power limit. (ms)
const WARM_MS: f32 = 300.0;

/// How long each is run under load in a round, in each order; the slower half leaves after it. (ms)
const ROUNDS_MS: [f32; 3] = [20.0, 40.0, 60.0];

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

/// What timing chose, for shapes of about one size.
type Chosen = HashMap<Shape, sys::cublasLtMatmulAlgo_t>;

/// What timing has chosen so far in this process on a GPU: whoever comes later need not time again, and takes the same kernels.
fn choices(gpu: usize) -> Choices {
    static CHOSEN: Mutex<Vec<Chosen>> = Mutex::new(Vec::new());
    let mut all = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() <= gpu {
        all.resize_with(gpu + 1, Chosen::new);
    }
    Choices { all, gpu }
}

/// One GPU's choices, locked.
struct Choices {
    all: MutexGuard<'static, Vec<Chosen>>,
    gpu: usize,
}

impl std::ops::Deref for Choices {
    type Target = Chosen;
    fn deref(&self) -> &Chosen {
        &self.all[self.gpu]
    }
}

impl std::ops::DerefMut for Choices {
    fn deref_mut(&mut self) -> &mut Chosen {
        &mut self.all[self.gpu]
    }
}

/// The library with its workspace, for one stream.
#[derive(Debug)]
pub struct Gemm {
    handle: sys::cublasLtHandle_t,
    workspace: Buffer<u8>,
    tuning: Tuning,
    /// Results are set to zero before they are computed: a memory checker does not see what the library's kernels write.
    marks: bool,
    plans: HashMap<Shape, Plan>,
    chosen: Chosen,
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
            marks: std::env::var_os("DFLASH_INITCHECK").is_some(),
            plans: HashMap::new(),
            chosen: choices(pool.gpu().ordinal()).clone(),
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
        if self.marks && call.repeats() {
            mark(stream, &c)?;
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
        if candidates.len() > 1
            && let Some(best) = self.survey(stream, &plan, &candidates, call)?.1
        {
            plan.algorithm = candidates[best].algo;
            self.chosen.insert(shape.rounded(), plan.algorithm);
            choices(stream.gpu().ordinal()).insert(shape.rounded(), plan.algorithm);
        }
        Ok(plan)
    }

    /// Milliseconds of each candidate when it was last run, infinite for one that does not run; and the best of them.
    ///
    /// A GPU under load is held back by its power limit, and the kernel that is fastest in a short burst need not be the fastest then. So
    /// candidates near the best run in rounds, under load and in either order; the slower half of a round does not come into the next.
    fn survey(
        &self,
        stream: &Stream,
        plan: &Plan,
        candidates: &[sys::cublasLtMatmulHeuristicResult_t],
        call: &Call,
    ) -> Result<(Vec<f32>, Option<usize>), CudaError> {
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
        let mut left: Vec<usize> = (0..times.len()).filter(|&n| times[n].is_finite()).collect();
        left.sort_by(|&a, &b| times[a].total_cmp(&times[b]));
        let Some(best) = left.first().map(|&at| times[at]) else {
            return Ok((times, None));
        };
        left.retain(|&at| times[at] < NEAR * best);
        if best < LONG_MS || left.len() == 1 {
            return Ok((times, left.first().copied()));
        }
        let runs = |ms: f32| ((ms / best) as usize).max(1);
        time(left[0], runs(WARM_MS))?;
        for ms in ROUNDS_MS {
            let mut sums = vec![0.0; times.len()];
            for &at in left.iter().chain(left.iter().rev()) {
                sums[at] += time(at, runs(ms))? / 2.0;
            }
            for &at in &left {
                times[at] = sums[at];
            }
            left.sort_by(|&a, &b| times[a].total_cmp(&times[b]));
            left.truncate(left.len().div_ceil(2).max(2));
        }
        Ok((times, left.first().copied()))
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
        let (times, _) = self.survey(stream, &plan, &candidates, &call)?;
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

impl Drop for Gemm {
    fn drop(&mut self) {
        self.plans.clear();
        // SAFETY: the handle was made by `new` and is destroyed once. Nobody is left to hear of an error.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// Sets the elements of a result to zero, and nothing between its rows.
fn mark(stream: &Stream, c: &Output) -> Result<(), CudaError> {
    let [batch, rows, columns] = c.shape();
    let (place, bytes) = match c {
        Output::Bf16(m) => (m.place(), size_of::<bf16>()),
        Output::F32(m) => (m.place(), size_of::<f32>()),
    };
    for n in 0..batch {
        let first = c.address() + (n * place.stride * bytes) as u64;
        // SAFETY: the result's extent was checked against its buffer.
        unsafe {
            cudarc::driver::sys::cuMemsetD2D8Async(
                first,
                place.pitch * bytes,
                0,
                columns * bytes,
                rows,
                stream.raw(),
            )
        }
        .result()
        .named("cuMemsetD2D8Async")?;
    }
    Ok(())
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
