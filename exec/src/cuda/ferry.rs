//! Copies between a GPU and ordinary host memory, through a little page-locked memory of its own.
//!
//! The driver would do the same, but it holds the GPU's context meanwhile: whoever launches a kernel on that GPU then waits, for up to
//! the whole copy. Here threads of this program carry the bytes between the two host memories, several at a time, and nobody else waits.

use super::in_turn::{UNDER_WAY, in_turn};
use super::{CudaError, Element, Gpu, PinnedBuffer, Ptr, Stream};
use std::cell::RefCell;
use std::sync::Arc;

/// Threads that carry a copy: one alone moves a few gigabytes a second.
const CARRIERS: usize = 4;

/// Bytes that one carries at a time: small enough to stay in a processor's cache.
const PIECE_BYTES: usize = 2 << 20;

/// The page-locked memory, by whoever carries through it.
#[derive(Debug)]
pub struct Ferry<T> {
    carriers: Vec<Carrier<T>>,
}

/// What one thread carries through.
#[derive(Debug)]
struct Carrier<T> {
    pieces: RefCell<Vec<PinnedBuffer<T>>>,
}

impl<T: Element> Ferry<T> {
    /// Takes 24 MiB of page-locked memory.
    ///
    /// # Errors
    /// Not enough memory that can be locked.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        let carriers = (0..CARRIERS).map(|_| Carrier::new(gpu));
        Ok(Self {
            carriers: carriers.collect::<Result<_, _>>()?,
        })
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
        let share = share(to.len());
        let parts = to.chunks_mut(share).enumerate();
        let tasks = parts.map(|(n, part)| (from.at(n * share..n * share + part.len()), part));
        at_once(&mut self.carriers, tasks, |carrier, (from, to)| {
            carrier.download(stream, from, to)
        })
    }

    /// Copies `from` to the start of `to`, after what is in `stream`, and waits for it.
    ///
    /// # Errors
    /// A destination that is too small; failures of the device.
    pub fn upload(&mut self, stream: &Stream, from: &[T], to: Ptr<T>) -> Result<(), CudaError> {
        to.check("upload", from.len())?;
        let share = share(from.len());
        let parts = from.chunks(share).enumerate();
        let tasks = parts.map(|(n, part)| (part, to.at(n * share..n * share + part.len())));
        at_once(&mut self.carriers, tasks, |carrier, (from, to)| {
            carrier.upload(stream, from, to)
        })
    }
}

impl<T: Element> Carrier<T> {
    fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
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

    fn download(&mut self, stream: &Stream, from: Ptr<T>, to: &mut [T]) -> Result<(), CudaError> {
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

    fn upload(&mut self, stream: &Stream, from: &[T], to: Ptr<T>) -> Result<(), CudaError> {
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

/// Elements of each carrier's part of `len`.
fn share(len: usize) -> usize {
    len.div_ceil(CARRIERS).max(1)
}

/// Gives each worker one task, all at once, and waits for all of them.
///
/// # Errors
/// The first worker's that failed.
fn at_once<W: Send, J: Send, E: Send>(
    workers: &mut [W],
    tasks: impl Iterator<Item = J>,
    work: impl Fn(&mut W, J) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let work = &work;
    std::thread::scope(|scope| {
        let pairs = workers.iter_mut().zip(tasks);
        let threads: Vec<_> = pairs
            .map(|(worker, task)| scope.spawn(move || work(worker, task)))
            .collect();
        // All are waited for, whatever the first of them says.
        let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        let of = |outcome| match outcome {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        outcomes.into_iter().try_for_each(of)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carriers_share_a_copy_and_the_first_error_is_told() {
        for len in [0, 1, 5, 4096, 4097] {
            let from: Vec<usize> = (0..len).collect();
            let mut to = vec![usize::MAX; len];
            let share = share(len);
            let tasks = from.chunks(share).zip(to.chunks_mut(share));
            let mut carried = [0; CARRIERS];
            let outcome: Result<(), ()> = at_once(&mut carried, tasks, |count, (from, to)| {
                *count += from.len();
                to.copy_from_slice(from);
                Ok(())
            });
            assert_eq!((outcome, carried.iter().sum()), (Ok(()), len));
            assert_eq!(to, from);
        }
        let outcome = at_once(&mut [(); CARRIERS], 0..CARRIERS, |(), n| match n {
            1 | 3 => Err(n),
            _ => Ok(()),
        });
        assert_eq!(outcome, Err(1));
    }
}
