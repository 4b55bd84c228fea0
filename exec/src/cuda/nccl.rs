//! Sums and broadcasts over GPUs by NCCL, found at run time.
//!
//! NCCL says nothing of the order in which it adds: it follows from the topology, the algorithm it chooses and its version. Over two GPUs
//! no order can be told from another, since a + b = b + a in floating point too; over more, whoever needs the same bits everywhere adds
//! in an order of his own (see [`CudaDrafter::add_from_device`](super::drafter::CudaDrafter::add_from_device)).
//!
//! Invariant: NVLink multicast is off. A program that uses it can put the GPUs of a host that others share out of service, so no communicator
//! is made unless `NCCL_NVLS_ENABLE=0` stood in the environment when the process began.

use super::{CudaError, Element, Gpu, Ptr, Stream};
use cudarc::nccl::result::{self, NcclError, NcclStatus};
use cudarc::nccl::sys;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// The variable that keeps NVLink multicast off when it is "0".
pub const MULTICAST: &str = "NCCL_NVLS_ENABLE";

/// Numbers that NCCL adds.
pub trait Summable: Element {
    /// NCCL's name for them.
    #[doc(hidden)]
    const KIND: sys::ncclDataType_t;
}

impl Summable for f32 {
    const KIND: sys::ncclDataType_t = sys::ncclDataType_t::ncclFloat32;
}
impl Summable for f64 {
    const KIND: sys::ncclDataType_t = sys::ncclDataType_t::ncclFloat64;
}
impl Summable for u64 {
    const KIND: sys::ncclDataType_t = sys::ncclDataType_t::ncclUint64;
}

/// Communicators of some GPUs of one process, one each; they are numbered as the GPUs were given.
#[derive(Debug)]
pub struct Comms {
    raw: Vec<sys::ncclComm_t>,
    gpus: Vec<Arc<Gpu>>,
}

// SAFETY: any one thread at a time may use a communicator, and `&mut self` says that it is one.
unsafe impl Send for Comms {}

impl Comms {
    /// Connects the GPUs with each other; it takes a second or so.
    ///
    /// # Errors
    /// NCCL is not there, multicast was not switched off, or NCCL refuses.
    pub fn new(gpus: &[Arc<Gpu>]) -> Result<Self, CudaError> {
        let found = std::env::var(MULTICAST).ok();
        is_multicast_off(found.as_deref())?;
        // SAFETY: loading the library runs its initialisers, as any program that uses it does.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoLibrary {
                library: "libnccl.so",
                version: "13.0 with NCCL",
                package: "nvidia-nccl-cu13 (which names it libnccl.so.2: add a link libnccl.so)",
            });
        }
        let ordinals: Vec<c_int> = gpus.iter().map(|gpu| gpu.ordinal() as c_int).collect();
        let mut raw = vec![std::ptr::null_mut(); gpus.len()];
        // SAFETY: both lists have one entry a GPU.
        let made = unsafe {
            result::comm_init_all(raw.as_mut_ptr(), ordinals.len() as c_int, ordinals.as_ptr())
        };
        called("ncclCommInitAll", made)?;
        Ok(Self {
            raw,
            gpus: gpus.to_vec(),
        })
    }

    /// Its version, such as 22803 for 2.28.3.
    pub fn version(&self) -> Result<i32, CudaError> {
        result::get_nccl_version().map_err(|error| refused("ncclGetVersion", &error))
    }

    /// The GPUs, in order.
    pub fn gpus(&self) -> &[Arc<Gpu>] {
        &self.gpus
    }

    /// Puts a sum over all GPUs into the streams: GPU i gives the vector of `parts[i]`, and the first one's vector becomes the sum.
    ///
    /// # Errors
    /// Vectors of different lengths, streams of other GPUs, or what NCCL refuses.
    pub fn sum_to_first<T: Summable>(
        &mut self,
        parts: &[(&Stream, Ptr<T>)],
    ) -> Result<(), CudaError> {
        let sum = sys::ncclRedOp_t::ncclSum;
        self.each(parts, "ncclReduce", |at, len, comm, stream| {
            // SAFETY: `each` checks that the vector is that long and on the communicator's GPU.
            unsafe { result::reduce(at, at.cast_mut(), len, T::KIND, sum, 0, comm, stream) }
        })
    }

    /// Puts a copy of the first GPU's vector to all others into the streams.
    ///
    /// # Errors
    /// As [`Comms::sum_to_first`].
    pub fn spread_first<T: Summable>(
        &mut self,
        parts: &[(&Stream, Ptr<T>)],
    ) -> Result<(), CudaError> {
        self.each(parts, "ncclBroadcast", |at, len, comm, stream| {
            // SAFETY: as above.
            unsafe { result::broadcast(at, at.cast_mut(), len, T::KIND, 0, comm, stream) }
        })
    }

    fn each<T: Summable>(
        &mut self,
        parts: &[(&Stream, Ptr<T>)],
        call: &'static str,
        one: impl Fn(
            *const c_void,
            usize,
            sys::ncclComm_t,
            sys::cudaStream_t,
        ) -> Result<NcclStatus, NcclError>,
    ) -> Result<(), CudaError> {
        let devices = parts.iter().map(|(stream, _)| stream.gpu().ordinal());
        if !devices.eq(self.gpus.iter().map(|gpu| gpu.ordinal())) {
            return Err(CudaError::Shape(format!(
                "{call}: {} streams that are not one on each of the {} GPUs, in their order",
                parts.len(),
                self.gpus.len()
            )));
        }
        let len = parts.first().map_or(0, |(_, vector)| vector.len());
        if let Some((_, other)) = parts.iter().find(|(_, vector)| vector.len() != len) {
            return Err(CudaError::Shape(format!(
                "{call}: vectors of {len} and {} elements",
                other.len()
            )));
        }
        called("ncclGroupStart", result::group_start())?;
        let mut outcome = Ok(());
        for ((stream, vector), &comm) in parts.iter().zip(&self.raw) {
            let at = vector.address() as *const c_void;
            let done = called(call, one(at, len, comm, stream.raw().cast()));
            outcome = outcome.and(done);
        }
        // A group that was begun is ended, whatever happened in it.
        let ended = called("ncclGroupEnd", result::group_end());
        outcome.and(ended)
    }
}

impl Drop for Comms {
    fn drop(&mut self) {
        for (&comm, gpu) in self.raw.iter().zip(&self.gpus) {
            // Nobody is left to hear of an error.
            let _ = gpu.bind().and_then(|()| gpu.synchronize());
            // SAFETY: made by `new`, destroyed once, and nothing of it is under way.
            let _ = unsafe { result::comm_destroy(comm) };
        }
    }
}

fn is_multicast_off(found: Option<&str>) -> Result<(), CudaError> {
    match found {
        Some("0") => Ok(()),
        other => Err(CudaError::Multicast {
            found: other.map_or_else(|| "not set".to_owned(), |value| format!("{value:?}")),
        }),
    }
}

fn called(call: &'static str, outcome: Result<NcclStatus, NcclError>) -> Result<(), CudaError> {
    outcome.map(drop).map_err(|error| refused(call, &error))
}

fn refused(call: &'static str, error: &NcclError) -> CudaError {
    CudaError::Call {
        call,
        code: format!("{:?}", error.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_communicator_is_made_with_multicast_on() {
        assert_eq!(is_multicast_off(Some("0")), Ok(()));
        for (found, shown) in [(None, "not set"), (Some("1"), "\"1\"")] {
            let error = is_multicast_off(found).unwrap_err().to_string();
            assert!(
                error.contains(&format!("NCCL_NVLS_ENABLE is {shown} and")),
                "{error}"
            );
        }
    }
}
