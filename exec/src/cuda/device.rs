//! Devices, streams and events.

use super::{CudaError, Element, Named, PinnedBuffer, Ptr};
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, result};
use shared::id::Bytes;
use std::ffi::c_int;
use std::ops::Range;
use std::sync::Arc;

/// The version this program is built for, as the driver counts: 1000 · major + 10 · minor.
const VERSION: c_int = 13_000;

/// One GPU. Clones of the handle share the device's primary context, so memory of one worker can be read by another.
#[derive(Debug)]
pub struct Gpu {
    context: Arc<CudaContext>,
    ordinal: usize,
    name: String,
    capability: (u32, u32),
    multiprocessors: u32,
}

impl Gpu {
    /// How many GPUs the driver shows.
    ///
    /// # Errors
    /// No driver, or one that is too old.
    pub fn count() -> Result<usize, CudaError> {
        check_driver()?;
        match CudaContext::device_count() {
            Ok(count) => Ok(count.max(0) as usize),
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => Ok(0),
            Err(error) => Err(error).named("cuDeviceGetCount"),
        }
    }

    /// Opens GPU `ordinal`, counted from 0 among those that CUDA_VISIBLE_DEVICES leaves.
    ///
    /// # Errors
    /// No driver, one that is too old, or no such device.
    pub fn open(ordinal: usize) -> Result<Arc<Self>, CudaError> {
        let count = Self::count()?;
        if ordinal >= count {
            return Err(CudaError::NoDevice { ordinal, count });
        }
        let context = CudaContext::new(ordinal).named("cuDevicePrimaryCtxRetain")?;
        // Order between streams is kept by the events of this module; the library's own tracking sees none of our buffers.
        // SAFETY: no slice of the library's own is ever made.
        unsafe { context.disable_event_tracking() };
        let (major, minor) = context
            .compute_capability()
            .named("cuDeviceGetAttribute(compute capability)")?;
        let multiprocessors = context
            .attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            .named("cuDeviceGetAttribute(multiprocessors)")?;
        Ok(Arc::new(Self {
            name: context.name().named("cuDeviceGetName")?,
            capability: (major as u32, minor as u32),
            multiprocessors: multiprocessors as u32,
            ordinal,
            context,
        }))
    }

    /// Which, counted from 0.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The model, such as "NVIDIA H200".
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Compute capability, major and minor.
    pub fn capability(&self) -> (u32, u32) {
        self.capability
    }

    /// Streaming multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// Free and total memory.
    pub fn memory(&self) -> Result<(Bytes, Bytes), CudaError> {
        let (free, total) = self.context.mem_get_info().named("cuMemGetInfo")?;
        Ok((Bytes(free as u64), Bytes(total as u64)))
    }

    /// Makes this GPU the calling thread's; cheap when it is already.
    pub fn bind(&self) -> Result<(), CudaError> {
        self.context.bind_to_thread().named("cuCtxSetCurrent")
    }

    /// Waits until all work on this GPU is done.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.synchronize().named("cuCtxSynchronize")
    }

    /// Whether this GPU can read and write `other`'s memory directly.
    pub fn can_reach(&self, other: &Self) -> Result<bool, CudaError> {
        if self.ordinal == other.ordinal {
            return Ok(true);
        }
        let mut can = 0;
        let (here, there) = (self.context.cu_device(), other.context.cu_device());
        // SAFETY: both devices are open and the result has a place.
        unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, here, there) }
            .result()
            .named("cuDeviceCanAccessPeer")?;
        Ok(can != 0)
    }

    /// Where it sits on the PCI bus, such as "0000:1b:00.0".
    pub fn bus_id(&self) -> Result<String, CudaError> {
        let mut text = [0 as std::ffi::c_char; 32];
        let device = self.context.cu_device();
        // SAFETY: the text has a place of the length given.
        unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as c_int, device) }
            .result()
            .named("cuDeviceGetPCIBusId")?;
        let bytes = text.iter().take_while(|&&c| c != 0);
        Ok(bytes
            .map(|&c| (c as u8 as char).to_ascii_lowercase())
            .collect())
    }

    /// How the driver ranks the way to `other`'s memory among those of the box: 0 is the best.
    pub fn rank_of_way(&self, other: &Self) -> Result<i32, CudaError> {
        let mut rank = 0;
        let (here, there) = (self.context.cu_device(), other.context.cu_device());
        let which = sys::CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
        // SAFETY: both devices are open and the result has a place.
        unsafe { sys::cuDeviceGetP2PAttribute(&raw mut rank, which, here, there) }
            .result()
            .named("cuDeviceGetP2PAttribute")?;
        Ok(rank)
    }

    /// Lets this GPU read and write `other`'s memory directly; done once a pair and direction.
    pub fn reach(&self, other: &Self) -> Result<(), CudaError> {
        if self.ordinal == other.ordinal {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: the context is the other's primary one, which its handle keeps alive.
        match unsafe { sys::cuCtxEnablePeerAccess(other.context.cu_ctx(), 0) } {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            code => code.result().named("cuCtxEnablePeerAccess"),
        }
    }
}

/// Refuses machines without a driver and drivers that are too old.
fn check_driver() -> Result<(), CudaError> {
    // SAFETY: loading the driver's library runs its initialisers, as any CUDA program does.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoDriver);
    }
    let mut version = 0;
    // SAFETY: the library is there and the result has a place.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }
        .result()
        .named("cuDriverGetVersion")?;
    check_version(version)?;
    match result::init() {
        Ok(()) => Ok(()),
        Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => Err(CudaError::NoDevice {
            ordinal: 0,
            count: 0,
        }),
        Err(error) => Err(error).named("cuInit"),
    }
}

fn check_version(version: c_int) -> Result<(), CudaError> {
    if version >= VERSION {
        return Ok(());
    }
    Err(CudaError::OldDriver {
        have: format!("{}.{}", version / 1000, version % 1000 / 10),
        need: "13.0",
        driver: "580",
    })
}

/// A queue of work on one GPU; what is put in is done in order.
#[derive(Debug, Clone)]
pub struct Stream {
    gpu: Arc<Gpu>,
    raw: Arc<CudaStream>,
}

impl Stream {
    /// A stream of its own, which waits for no other.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        gpu.bind()?;
        let raw = gpu.context.new_stream().named("cuStreamCreate")?;
        Ok(Self {
            gpu: Arc::clone(gpu),
            raw,
        })
    }

    /// Its GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Marks this point of the stream.
    pub fn record(&self) -> Result<Event, CudaError> {
        self.record_as(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// Marks this point and its time, for [`Event::elapsed_ms`].
    pub fn record_timed(&self) -> Result<Event, CudaError> {
        self.record_as(sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn record_as(&self, flags: sys::CUevent_flags) -> Result<Event, CudaError> {
        let event = self.raw.record_event(Some(flags)).named("cuEventRecord")?;
        Ok(Event(Arc::new(event)))
    }

    /// What is put in from now on is done after `event`; the host does not wait.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        self.raw.wait(&event.0).named("cuStreamWaitEvent")
    }

    /// The host waits until everything put in so far is done, and hears of errors in it.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.raw.synchronize().named("cuStreamSynchronize")
    }

    /// Copies host values to the start of `to`. Returns when `from` may be changed again.
    pub fn upload<T: Element>(&self, from: &[T], to: Ptr<T>) -> Result<(), CudaError> {
        to.check("upload", from.len())?;
        self.gpu.bind()?;
        // SAFETY: `to` holds at least as many elements; pageable memory is read before the call returns.
        unsafe { result::memcpy_htod_async(to.address(), from, self.raw()) }
            .named("cuMemcpyHtoDAsync")
    }

    /// Copies the start of pinned host memory to `to`, and returns at once: `from` must stay as it is until the copy is done.
    pub fn upload_pinned<T: Element>(
        &self,
        from: &PinnedBuffer<T>,
        count: usize,
        to: Ptr<T>,
    ) -> Result<(), CudaError> {
        self.upload_part(from, 0..count, to)
    }

    /// The same with a part of pinned host memory.
    pub fn upload_part<T: Element>(
        &self,
        from: &PinnedBuffer<T>,
        part: Range<usize>,
        to: Ptr<T>,
    ) -> Result<(), CudaError> {
        to.check("upload from pinned memory", part.len())?;
        self.gpu.bind()?;
        let from = from.as_slice().get(part.clone()).ok_or_else(|| {
            CudaError::Shape(format!(
                "elements {part:?} of a pinned buffer of {}",
                from.len()
            ))
        })?;
        // SAFETY: both ends hold as many elements, and the caller keeps the source.
        unsafe { result::memcpy_htod_async(to.address(), from, self.raw()) }
            .named("cuMemcpyHtoDAsync")
    }

    /// Copies the start of `from` to the start of pinned host memory, and returns at once: `to` is filled once the stream has come this
    /// far.
    pub fn download_pinned<T: Element>(
        &self,
        from: Ptr<T>,
        count: usize,
        to: &mut PinnedBuffer<T>,
    ) -> Result<(), CudaError> {
        self.download_part(from, to, 0..count)
    }

    /// The same into a part of pinned host memory.
    pub fn download_part<T: Element>(
        &self,
        from: Ptr<T>,
        to: &mut PinnedBuffer<T>,
        part: Range<usize>,
    ) -> Result<(), CudaError> {
        from.check("download to pinned memory", part.len())?;
        self.gpu.bind()?;
        let held = to.len();
        let to = to.as_mut_slice().get_mut(part.clone()).ok_or_else(|| {
            CudaError::Shape(format!("elements {part:?} of a pinned buffer of {held}"))
        })?;
        // SAFETY: both ends hold as many elements, and the caller reads the destination only after the stream came this far.
        unsafe { result::memcpy_dtoh_async(to, from.address(), self.raw()) }
            .named("cuMemcpyDtoHAsync")
    }

    /// Copies device values to the host and waits for them.
    pub fn download<T: Element>(&self, from: Ptr<T>) -> Result<Vec<T>, CudaError> {
        let mut values = vec![T::ZERO; from.len()];
        self.download_into(from, &mut values)?;
        Ok(values)
    }

    /// Copies the start of `from` to `to` and waits for it.
    pub fn download_into<T: Element>(&self, from: Ptr<T>, to: &mut [T]) -> Result<(), CudaError> {
        from.check("download", to.len())?;
        self.gpu.bind()?;
        // SAFETY: `from` holds at least as many elements, and the stream is waited for before `to` is used.
        unsafe { result::memcpy_dtoh_async(to, from.address(), self.raw()) }
            .named("cuMemcpyDtoHAsync")?;
        self.synchronize()
    }

    /// Copies `from` to the start of `to` on the same device.
    pub fn copy<T: Element>(&self, from: Ptr<T>, to: Ptr<T>) -> Result<(), CudaError> {
        to.check("copy", from.len())?;
        self.gpu.bind()?;
        // SAFETY: both ranges lie in live allocations of this context.
        unsafe { result::memcpy_dtod_async(to.address(), from.address(), from.bytes(), self.raw()) }
            .named("cuMemcpyDtoDAsync")
    }

    /// Copies `from`, on GPU `source`, to the start of `to` on this stream's GPU.
    pub fn copy_from<T: Element>(
        &self,
        source: &Gpu,
        from: Ptr<T>,
        to: Ptr<T>,
    ) -> Result<(), CudaError> {
        if source.ordinal == self.gpu.ordinal {
            return self.copy(from, to);
        }
        to.check("copy between devices", from.len())?;
        self.gpu.bind()?;
        let (here, there) = (self.gpu.context.cu_ctx(), source.context.cu_ctx());
        // SAFETY: both ranges lie in live allocations of the two contexts.
        unsafe {
            result::memcpy_peer_async(
                here,
                to.address(),
                there,
                from.address(),
                from.bytes(),
                self.raw(),
            )
        }
        .named("cuMemcpyPeerAsync")
    }

    /// Copies `from`, on this stream's GPU, to the start of `to` on GPU `target`.
    pub fn copy_to<T: Element>(
        &self,
        target: &Gpu,
        from: Ptr<T>,
        to: Ptr<T>,
    ) -> Result<(), CudaError> {
        if target.ordinal == self.gpu.ordinal {
            return self.copy(from, to);
        }
        to.check("copy between devices", from.len())?;
        self.gpu.bind()?;
        let (here, there) = (self.gpu.context.cu_ctx(), target.context.cu_ctx());
        // SAFETY: both ranges lie in live allocations of the two contexts.
        unsafe {
            result::memcpy_peer_async(
                there,
                to.address(),
                here,
                from.address(),
                from.bytes(),
                self.raw(),
            )
        }
        .named("cuMemcpyPeerAsync")
    }

    /// Sets all bytes of `to` to 0.
    pub fn zero<T: Element>(&self, to: Ptr<T>) -> Result<(), CudaError> {
        self.gpu.bind()?;
        // SAFETY: the range lies in a live allocation of this context.
        unsafe { result::memset_d8_async(to.address(), 0, to.bytes(), self.raw()) }
            .named("cuMemsetD8Async")
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.raw.cu_stream()
    }
}

/// A point of a stream. Clones are the same point.
#[derive(Debug, Clone)]
pub struct Event(Arc<CudaEvent>);

impl Event {
    /// The host waits for this point.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.0.synchronize().named("cuEventSynchronize")
    }

    /// Milliseconds from `self` to `end`, both recorded with [`Stream::record_timed`]; waits for both.
    pub fn elapsed_ms(&self, end: &Self) -> Result<f32, CudaError> {
        self.0.elapsed_ms(&end.0).named("cuEventElapsedTime")
    }

    /// Whether the stream has come this far.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        self.0.try_is_complete().named("cuEventQuery")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_driver_is_named_with_its_version() {
        let error = check_version(12_040).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the NVIDIA driver supports CUDA 12.4, this program needs CUDA 13.0 (driver 580 or newer); update the driver or use --backend cpu"
        );
        assert_eq!(check_version(13_000), Ok(()));
        assert_eq!(check_version(13_010), Ok(()));
    }
}
