//! Copies between a GPU and ordinary host memory, through a little page-locked memory of its own.
//!
//! The driver would do the same, but it holds the GPU's context meanwhile: whoever launches a kernel on that GPU then waits, for up to
//! the whole copy. Here the calling thread carries the bytes between the two host memories, and nobody else waits.

use super::in_turn::{UNDER_WAY, in_turn};
use super::{CudaError, Element, Gpu, PinnedBuffer, Ptr, Stream};
use std::cell::RefCell;
use std::sync::Arc;

/// Bytes that are carried at a time: small enough to stay in a processor's cache.
const PIECE_BYTES: usize = 4 << 20;

/// The page-locked memory, and whoever carries through it.
#[derive(Debug)]
pub struct Ferry<T> {
    pieces: RefCell<Vec<PinnedBuffer<T>>>,
}

impl<T: Element> Ferry<T> {
    /// Takes a few megabytes of page-locked memory.
    ///
    /// # Errors
    /// Not enough memory that can be locked.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        let piece = |_| PinnedBuffer::new(gpu, Self::piece());
        let pieces = (0..UNDER_WAY).map(piece).collect::<Result<_, _>>()?;
        Ok(Self {
            pieces: RefCell::new(pieces),
        })
    }

    /// Elements of a piece.
    fn piece() -> usize {
        PIECE_BYTES / T::BYTES
    }

    /// Copies the start of `from` to `to`, after what is in `stream`, and waits for it.
    ///
    /// # Errors
    /// A source that is too small; failures of the device.
    pub fn download(
        &mut self,
        stream: &Stream,
        from: Ptr<T>,
        to: &mut [T],
    ) -> Result<(), CudaError> {
        from.check("download", to.len())?;
        let pieces = &self.pieces;
        in_turn(
            to.len(),
            Self::piece(),
            UNDER_WAY,
            |place, range| {
                let count = range.len();
                let piece = &mut pieces.borrow_mut()[place];
                stream.download_part(from.at(range), piece, 0..count)?;
                stream.record()
            },
            |place, range, there| {
                there.synchronize()?;
                let count = range.len();
                to[range].copy_from_slice(&pieces.borrow()[place].as_slice()[..count]);
                Ok(())
            },
        )
    }

    /// Copies `from` to the start of `to`, after what is in `stream`, and waits for it.
    ///
    /// # Errors
    /// A destination that is too small; failures of the device.
    pub fn upload(&mut self, stream: &Stream, from: &[T], to: Ptr<T>) -> Result<(), CudaError> {
        to.check("upload", from.len())?;
        let pieces = &self.pieces;
        in_turn(
            from.len(),
            Self::piece(),
            UNDER_WAY,
            |place, range| {
                let count = range.len();
                let piece = &mut pieces.borrow_mut()[place];
                piece.as_mut_slice()[..count].copy_from_slice(&from[range.clone()]);
                stream.upload_part(piece, 0..count, to.at(range))?;
                stream.record()
            },
            |_, _, gone| gone.synchronize(),
        )
    }
}
