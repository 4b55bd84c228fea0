//! Host memory that GPUs copy from and to directly.

use super::{CudaError, Element, Event, Gpu, Named};
use cudarc::driver::result;
use std::sync::Arc;

/// Page-locked host memory, which a GPU copies from and to at the link's full rate.
#[derive(Debug)]
pub struct PinnedBuffer<T> {
    gpu: Arc<Gpu>,
    address: *mut T,
    len: usize,
    busy: Option<Event>,
}

// SAFETY: the memory is this value's alone, and elements may be sent.
unsafe impl<T: Element> Send for PinnedBuffer<T> {}
// SAFETY: shared access only reads.
unsafe impl<T: Element> Sync for PinnedBuffer<T> {}

impl<T: Element> PinnedBuffer<T> {
    /// Takes host memory for `len` elements, all zero. It takes up to half a second a gigabyte: do it once, at start.
    pub fn new(gpu: &Arc<Gpu>, len: usize) -> Result<Self, CudaError> {
        gpu.bind()?;
        // Not write-combined: the host may read it.
        // SAFETY: the context is current; the memory is freed when the value is dropped.
        let address =
            unsafe { result::malloc_host(len.max(1) * T::BYTES, 0) }.named("cuMemHostAlloc")?;
        // SAFETY: the allocation is that large.
        unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0, len.max(1) * T::BYTES) };
        Ok(Self {
            gpu: Arc::clone(gpu),
            address: address.cast(),
            len,
            busy: None,
        })
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory is not freed before `event`: a copy from or to it may be under way until then.
    pub fn hold_until(&mut self, event: Event) {
        self.busy = Some(event);
    }

    /// What it holds.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: the allocation holds `len` initialised elements.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }

    /// What it holds, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.len) }
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        // Nobody is left to hear of an error.
        let _ = self.gpu.bind();
        if let Some(event) = &self.busy {
            let _ = event.synchronize();
        }
        // SAFETY: it was allocated by `new` and is freed once.
        let _ = unsafe { result::free_host(self.address.cast()) };
    }
}
