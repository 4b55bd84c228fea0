//! NVIDIA GPUs: devices, memory, kernels, matrix products and the models on them.
//!
//! Nothing here is linked: the driver, the run-time compiler (NVRTC) and cuBLASLt are found when the first device is opened, so the
//! same program starts on machines without them. Kernels are CUDA C++ text in `kernels/`, compiled for the device found and cached on
//! disk.
//!
//! Three rules keep asynchronous work right. A [`Stream`] does its work in order; a [`Pool`] belongs to one stream, so that memory
//! given back may be used again at once; and what one stream makes for another is handed over with an [`Event`] that the other waits
//! for, never by luck.
//!
//! `unsafe` stands in these files alone: calls into the libraries and launches of kernels. Each launch is wrapped in a function that
//! checks lengths.

mod cudnn;
mod device;
pub mod drafter;
mod error;
mod ferry;
mod gemm;
mod hidden;
mod kernels;
pub mod links;
pub mod nccl;
mod past_caches;
mod pieces;
mod pinned;
mod pool;
pub mod target;
mod tensor_map;
mod way;

pub use device::{Event, Gpu, Stream};
pub use error::CudaError;
pub(crate) use error::Named;
pub use ferry::Ferry;
pub use gemm::{FusedProducts, Gemm, HeadTurn, Matrix, Output, Tuning};
pub use hidden::{HiddenCheck, NotFinite};
pub use kernels::{Kernel, Module, Source, compile, compiler_version};
pub(crate) use pieces::pieces;
pub use pinned::PinnedBuffer;
pub(crate) use pool::round_up as piece_bytes;
pub use pool::{Buffer, Element, Pool, Ptr};
pub use way::{End, Way};
