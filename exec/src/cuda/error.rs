//! What can go wrong between this program and a GPU.

use shared::id::Bytes;
use thiserror::Error;

/// Why the GPU cannot be used, or what it refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CudaError {
    /// There is no driver.
    #[error(
        "no NVIDIA driver is installed here (libcuda was not found); install one or use --backend cpu"
    )]
    NoDriver,
    /// The driver is older than what this program is built for.
    #[error(
        "the NVIDIA driver supports CUDA {have}, this program needs CUDA {need} (driver {driver} or newer); update the driver or use --backend cpu"
    )]
    OldDriver {
        /// What the driver supports.
        have: String,
        /// What is needed.
        need: &'static str,
        /// The first driver that has it.
        driver: &'static str,
    },
    /// There is a driver and no such device.
    #[error(
        "GPU {ordinal} was asked for and the driver shows {count}; check CUDA_VISIBLE_DEVICES or use --backend cpu"
    )]
    NoDevice {
        /// Which, from 0.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// A CUDA library is missing.
    #[error(
        "{library} was not found; install CUDA {version} or pip's {package} and put its folder on LD_LIBRARY_PATH"
    )]
    NoLibrary {
        /// File name without suffix.
        library: &'static str,
        /// The wanted version.
        version: &'static str,
        /// The package of the Python index that holds it.
        package: &'static str,
    },
    /// The device's memory is not enough.
    #[error(
        "GPU {ordinal}: {what} needs {need} and {free} are free; take a smaller token budget or fewer slots, or end what else runs there"
    )]
    OutOfMemory {
        /// Which, from 0.
        ordinal: usize,
        /// For what.
        what: String,
        /// How much.
        need: Bytes,
        /// How much there is.
        free: Bytes,
    },
    /// A pool made at start is used up.
    #[error(
        "a pool of {size} for {what} has no {need} left in one piece ({free} free in all); this is a wrong estimate of the memory model, set a smaller token budget"
    )]
    PoolExhausted {
        /// Whose pool.
        what: String,
        /// The pool.
        size: Bytes,
        /// What was asked for.
        need: Bytes,
        /// What is left, in pieces.
        free: Bytes,
    },
    /// A kernel's text is not accepted by the compiler.
    #[error("kernels of {file} do not compile for {arch}: {log}")]
    Compile {
        /// The source file.
        file: &'static str,
        /// The architecture.
        arch: String,
        /// What the compiler said.
        log: String,
    },
    /// NVLink multicast was not switched off before the process began.
    #[error(
        "NCCL is not used: NCCL_NVLS_ENABLE is {found} and NVLink multicast stays off in this program; set NCCL_NVLS_ENABLE=0"
    )]
    Multicast {
        /// What the variable says.
        found: String,
    },
    /// A call into a CUDA library failed.
    #[error("{call} failed: {code}")]
    Call {
        /// The call, with what it was for.
        call: &'static str,
        /// The library's name for the error.
        code: String,
    },
    /// Matrices that do not fit each other, or a length that a kernel cannot work on.
    #[error("{0}")]
    Shape(String),
}

/// Names the call that failed.
pub(crate) trait Named<T> {
    /// The same result; an error carries the call's name and the library's code.
    fn named(self, call: &'static str) -> Result<T, CudaError>;
}

impl<T, E: std::fmt::Debug> Named<T> for Result<T, E> {
    fn named(self, call: &'static str) -> Result<T, CudaError> {
        self.map_err(|error| CudaError::Call {
            call,
            code: format!("{error:?}"),
        })
    }
}
