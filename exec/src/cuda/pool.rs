//! Device memory taken once and handed out in pieces.

use super::{CudaError, Gpu, Named};
use cudarc::driver::{result, sys};
use half::bf16;
use shared::id::Bytes;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pieces begin at multiples of this, as the widest loads and matrix products like it. (bytes)
const ALIGNMENT: usize = 512;

/// A value that host and device hold alike.
pub trait Element: Copy + Send + Sync + 'static {
    /// All bits 0.
    const ZERO: Self;
    /// Bytes of one.
    const BYTES: usize = size_of::<Self>();
}

impl Element for bf16 {
    const ZERO: Self = Self::ZERO;
}
impl Element for f32 {
    const ZERO: Self = 0.0;
}
impl Element for f64 {
    const ZERO: Self = 0.0;
}
impl Element for u8 {
    const ZERO: Self = 0;
}
impl Element for i32 {
    const ZERO: Self = 0;
}
impl Element for u32 {
    const ZERO: Self = 0;
}
impl Element for u64 {
    const ZERO: Self = 0;
}

/// One allocation of a GPU's memory, handed out in [`Buffer`]s.
///
/// Invariant: all work on a pool's buffers is put into one stream, or the buffers live as long as whatever uses them. A buffer that is
/// dropped is handed out again at once, which is right only because a stream works in order.
#[derive(Debug)]
pub struct Pool {
    gpu: Arc<Gpu>,
    base: sys::CUdeviceptr,
    what: String,
    free: Mutex<FreeList>,
}

impl Pool {
    /// Takes `size` of the GPU's memory; `what` names it in errors.
    ///
    /// # Errors
    /// Not enough memory: the message says how much is free.
    pub fn new(gpu: &Arc<Gpu>, size: Bytes, what: &str) -> Result<Arc<Self>, CudaError> {
        gpu.bind()?;
        let bytes = round_up(size.0 as usize);
        let lacking = |free: Bytes| CudaError::OutOfMemory {
            ordinal: gpu.ordinal(),
            what: what.to_owned(),
            need: Bytes(bytes as u64),
            free,
        };
        // SAFETY: the context is current; the allocation is freed when the pool is dropped.
        let base = match unsafe { result::malloc_sync(bytes.max(ALIGNMENT)) } {
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                return Err(lacking(gpu.memory()?.0));
            }
            other => other.named("cuMemAlloc")?,
        };
        Ok(Arc::new(Self {
            gpu: Arc::clone(gpu),
            base,
            what: what.to_owned(),
            free: Mutex::new(FreeList::new(bytes)),
        }))
    }

    /// A piece for `len` elements, with whatever was there before.
    ///
    /// # Errors
    /// The pool has no piece that large left.
    pub fn buffer<T: Element>(self: &Arc<Self>, len: usize) -> Result<Buffer<T>, CudaError> {
        let bytes = round_up(len * T::BYTES);
        let mut free = self.lock();
        let offset = free.take(bytes).ok_or_else(|| CudaError::PoolExhausted {
            what: self.what.clone(),
            size: Bytes(free.size as u64),
            need: Bytes(bytes as u64),
            free: Bytes((free.size - free.used) as u64),
        })?;
        Ok(Buffer {
            pool: Arc::clone(self),
            offset,
            len,
            kind: PhantomData,
        })
    }

    /// Its GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Its size.
    pub fn size(&self) -> Bytes {
        Bytes(self.lock().size as u64)
    }

    /// What is handed out now.
    pub fn used(&self) -> Bytes {
        Bytes(self.lock().used as u64)
    }

    /// The most that was ever handed out.
    pub fn peak(&self) -> Bytes {
        Bytes(self.lock().peak as u64)
    }

    /// Whoever panicked with the lock held is gone, and the list is whole between its statements.
    fn lock(&self) -> MutexGuard<'_, FreeList> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // What still runs on the memory ends first. Nobody is left to hear of an error.
        let _ = self.gpu.bind();
        let _ = self.gpu.synchronize();
        // SAFETY: every buffer holds the pool, so none is left.
        let _ = unsafe { result::free_sync(self.base) };
    }
}

/// `bytes`, up to whole units of alignment; what a piece of a pool really takes.
pub(crate) fn round_up(bytes: usize) -> usize {
    bytes.max(1).div_ceil(ALIGNMENT) * ALIGNMENT
}

/// Which parts of a range are free: by offset, neighbours merged, the smallest that fits is taken.
#[derive(Debug)]
struct FreeList {
    pieces: BTreeMap<usize, usize>,
    size: usize,
    used: usize,
    peak: usize,
}

impl FreeList {
    fn new(size: usize) -> Self {
        Self {
            pieces: BTreeMap::from([(0, size)]),
            size,
            used: 0,
            peak: 0,
        }
    }

    fn take(&mut self, bytes: usize) -> Option<usize> {
        let fits = self.pieces.iter().filter(|(_, held)| **held >= bytes);
        let (&offset, &held) = fits.min_by_key(|(offset, held)| (**held, **offset))?;
        self.pieces.remove(&offset);
        if held > bytes {
            self.pieces.insert(offset + bytes, held - bytes);
        }
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        Some(offset)
    }

    fn give_back(&mut self, mut offset: usize, mut bytes: usize) {
        self.used -= bytes;
        if let Some((&before, &held)) = self.pieces.range(..offset).next_back()
            && before + held == offset
        {
            self.pieces.remove(&before);
            (offset, bytes) = (before, bytes + held);
        }
        if let Some(held) = self.pieces.remove(&(offset + bytes)) {
            bytes += held;
        }
        self.pieces.insert(offset, bytes);
    }
}

/// A piece of a pool, given back when dropped.
#[derive(Debug)]
pub struct Buffer<T> {
    pool: Arc<Pool>,
    offset: usize,
    len: usize,
    kind: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    /// Where it is, for kernels and copies. Valid while the buffer lives.
    pub fn ptr(&self) -> Ptr<T> {
        Ptr {
            address: self.pool.base + self.offset as u64,
            len: self.len,
            kind: PhantomData,
        }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.pool.gpu
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        let bytes = round_up(self.len * size_of::<T>());
        self.pool.lock().give_back(self.offset, bytes);
    }
}

/// An address in device memory with the number of elements behind it.
///
/// It does not keep its buffer alive: hold the buffer until the work that uses the address has been put into its stream.
#[derive(Debug)]
pub struct Ptr<T> {
    address: u64,
    len: usize,
    kind: PhantomData<T>,
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T: Element> Ptr<T> {
    /// The device's address.
    pub fn address(self) -> u64 {
        self.address
    }

    /// Elements from here on.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Bytes from here on.
    pub fn bytes(self) -> usize {
        self.len * T::BYTES
    }

    /// The elements of a range, which must lie inside: a wrong one is a mistake of this program.
    ///
    /// # Panics
    /// When the range does not lie inside.
    pub fn at(self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "elements {range:?} of {}",
            self.len
        );
        Self {
            address: self.address + (range.start * T::BYTES) as u64,
            len: range.end - range.start,
            kind: PhantomData,
        }
    }

    /// The same bytes as elements of another kind.
    pub fn cast<U: Element>(self) -> Ptr<U> {
        Ptr {
            address: self.address,
            len: self.bytes() / U::BYTES,
            kind: PhantomData,
        }
    }

    /// Refuses to work on more elements than there are.
    pub(crate) fn check(self, what: &str, need: usize) -> Result<(), CudaError> {
        if need <= self.len {
            return Ok(());
        }
        Err(CudaError::Shape(format!(
            "{what}: {need} elements of a buffer of {}",
            self.len
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_merged_when_given_back() {
        let mut list = FreeList::new(4096);
        let (a, b, c) = (list.take(512), list.take(1024), list.take(512));
        assert_eq!((a, b, c), (Some(0), Some(512), Some(1536)));
        assert_eq!(list.take(4096), None);
        list.give_back(0, 512);
        list.give_back(1536, 512);
        // The hole of 512 fits better than the rest.
        assert_eq!(list.take(512), Some(0));
        list.give_back(0, 512);
        list.give_back(512, 1024);
        assert_eq!(list.take(4096), Some(0));
        assert_eq!((list.used, list.peak), (4096, 4096));
    }

    #[test]
    fn what_a_piece_takes_is_whole_units() {
        assert_eq!(
            (round_up(0), round_up(512), round_up(513)),
            (512, 512, 1024)
        );
    }
}
