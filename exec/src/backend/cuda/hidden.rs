//! Hidden states of one microbatch, in a slot of the memory where they are.

use super::WorkError;
use crate::checks::Stamp;
use crate::cuda::{Buffer, CudaError, Event, Gpu, PinnedBuffer, Pool};
use half::bf16;
use shared::id::Bytes;
use std::sync::{Arc, Mutex, PoisonError};

/// Captured features [rows, width, K·H], then the last hidden state [rows, width, H] where it is captured, in a slot that is given back
/// when this is dropped.
#[derive(Debug)]
pub struct CudaHidden {
    pub(super) at: Slot,
    /// Elements that are used of the slot.
    pub(super) elements: usize,
    /// The point from which on they are there.
    pub(super) ready: Event,
    /// What the target says they are.
    pub(super) said: Arc<Described>,
}

/// Extent and origin of hidden states, which travel beside them.
#[derive(Debug, Clone, Default)]
pub(super) struct Described {
    pub(super) rows: usize,
    /// Tokens a row, padding included.
    pub(super) tokens: usize,
    /// Elements of a token's features, and of its last hidden state.
    pub(super) widths: [usize; 2],
    pub(super) stamp: Stamp,
}

/// Memory for the hidden states of one microbatch, of the size of the largest.
#[derive(Debug)]
pub(super) enum Slot {
    /// In a GPU's memory.
    Device(Buffer<bf16>),
    /// In page-locked host memory.
    Pinned(Lent<PinnedBuffer<bf16>>),
    /// In ordinary host memory.
    Pageable(Lent<Vec<bf16>>),
}

/// Slots of equal size in one GPU's memory, taken at start.
#[derive(Debug, Clone)]
pub(super) struct DeviceSlots {
    pool: Arc<Pool>,
    elements: usize,
}

impl DeviceSlots {
    /// What `count` slots of `elements` take.
    pub(super) fn bytes(count: usize, elements: usize) -> Bytes {
        Bytes((count * crate::cuda::piece_bytes(2 * elements)) as u64)
    }

    pub(super) fn new(gpu: &Arc<Gpu>, count: usize, elements: usize) -> Result<Self, CudaError> {
        let pool = Pool::new(gpu, Self::bytes(count, elements), "hidden states")?;
        Ok(Self { pool, elements })
    }

    /// A free slot. The policy's caps say that there is one.
    pub(super) fn take(&self) -> Result<Slot, WorkError> {
        let buffer = self.pool.buffer(self.elements).map_err(super::fatal)?;
        Ok(Slot::Device(buffer))
    }
}

/// Slots of equal size in host memory, taken at start and lent out.
#[derive(Debug, Clone)]
pub(super) enum HostSlots {
    Pinned(Shelf<PinnedBuffer<bf16>>),
    Pageable(Shelf<Vec<bf16>>),
}

impl HostSlots {
    pub(super) fn pinned(gpu: &Arc<Gpu>, count: usize, elements: usize) -> Result<Self, CudaError> {
        let slots = (0..count).map(|_| PinnedBuffer::new(gpu, elements));
        Ok(Self::Pinned(Shelf::new(slots.collect::<Result<_, _>>()?)))
    }

    /// Memory is touched now, so that no copy waits for it later.
    pub(super) fn pageable(count: usize, elements: usize) -> Self {
        Self::Pageable(Shelf::new((0..count).map(|_| touched(elements)).collect()))
    }

    /// A free slot. The policy's caps say that there is one.
    pub(super) fn take(&self) -> Result<Slot, WorkError> {
        match self {
            Self::Pinned(shelf) => shelf.take().map(Slot::Pinned),
            Self::Pageable(shelf) => shelf.take().map(Slot::Pageable),
        }
    }
}

/// Host memory that is there: written to by as many threads as the machine runs, since pages are handed out slowly.
fn touched(elements: usize) -> Vec<bf16> {
    let mut memory = vec![bf16::ZERO; elements];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = elements.div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for part in memory.chunks_mut(share) {
            scope.spawn(|| part.fill(bf16::ONE));
        }
    });
    memory
}

/// Things of one kind, lent out and given back by dropping.
#[derive(Debug)]
pub(super) struct Shelf<T> {
    free: Arc<Mutex<Vec<T>>>,
    count: usize,
}

impl<T> Clone for Shelf<T> {
    fn clone(&self) -> Self {
        Self {
            free: Arc::clone(&self.free),
            count: self.count,
        }
    }
}

impl<T> Shelf<T> {
    fn new(all: Vec<T>) -> Self {
        Self {
            count: all.len(),
            free: Arc::new(Mutex::new(all)),
        }
    }

    fn take(&self) -> Result<Lent<T>, WorkError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let thing = free.pop().ok_or_else(|| {
            WorkError::Fatal(format!(
                "all {} host slots for hidden states are in use; the policy grants more than was counted at start",
                self.count
            ))
        })?;
        Ok(Lent {
            thing: Some(thing),
            home: Arc::clone(&self.free),
        })
    }
}

/// Something lent.
#[derive(Debug)]
pub(super) struct Lent<T> {
    /// Empty only while it is dropped.
    thing: Option<T>,
    home: Arc<Mutex<Vec<T>>>,
}

impl<T> Lent<T> {
    pub(super) fn get(&self) -> &T {
        self.thing.as_ref().expect("it is given back by drop alone")
    }

    pub(super) fn get_mut(&mut self) -> &mut T {
        self.thing.as_mut().expect("it is given back by drop alone")
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        home.extend(self.thing.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_comes_back_when_it_is_dropped() {
        let slots = HostSlots::pageable(1, 4);
        let slot = slots.take().unwrap();
        let refused = slots.take().unwrap_err().to_string();
        assert!(refused.starts_with("all 1 host slots"), "{refused}");
        drop(slot);
        assert!(slots.take().is_ok());
    }
}
