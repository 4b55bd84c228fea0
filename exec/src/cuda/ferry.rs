//! Copies between a GPU and ordinary host memory, through a little page-locked memory of its own.
//!
//! The driver would do the same, but it holds the GPU's context meanwhile: whoever launches a kernel on that GPU then waits, for up to
//! the whole copy. Here threads of this program carry the bytes between the two host memories, several at a time, and nobody else waits.

use super::in_turn::{UNDER_WAY, in_turn, pieces};
use super::{CudaError, Element, Gpu, PinnedBuffer, Ptr, Stream};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

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
        let piece = Carrier::<T>::piece();
        let parts = pieces(to.len(), piece).zip(to.chunks_mut(piece));
        let pieces = parts.map(|(range, to)| (from.at(range), to));
        at_once(&mut self.carriers, pieces, |carrier, pieces| {
            carrier.download(stream, pieces)
        })
    }

    /// Copies `from` to the start of `to`, after what is in `stream`, and waits for it.
    ///
    /// # Errors
    /// A destination that is too small; failures of the device.
    pub fn upload(&mut self, stream: &Stream, from: &[T], to: Ptr<T>) -> Result<(), CudaError> {
        to.check("upload", from.len())?;
        let piece = Carrier::<T>::piece();
        let parts = pieces(from.len(), piece).zip(from.chunks(piece));
        let pieces = parts.map(|(range, from)| (from, to.at(range)));
        at_once(&mut self.carriers, pieces, |carrier, pieces| {
            carrier.upload(stream, pieces)
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

    fn download<'a>(
        &mut self,
        stream: &Stream,
        pieces: impl Iterator<Item = (Ptr<T>, &'a mut [T])>,
    ) -> Result<(), CudaError> {
        let locked = &self.pieces;
        in_turn(
            pieces,
            UNDER_WAY,
            |place, (from, to)| {
                let piece = &mut locked.borrow_mut()[place];
                stream.download_part(*from, piece, 0..to.len())?;
                stream.record()
            },
            |place, (_, to), there| {
                there.synchronize()?;
                to.copy_from_slice(&locked.borrow()[place].as_slice()[..to.len()]);
                Ok(())
            },
        )
    }

    fn upload<'a>(
        &mut self,
        stream: &Stream,
        pieces: impl Iterator<Item = (&'a [T], Ptr<T>)>,
    ) -> Result<(), CudaError> {
        let locked = &self.pieces;
        in_turn(
            pieces,
            UNDER_WAY,
            |place, (from, to)| {
                let piece = &mut locked.borrow_mut()[place];
                piece.as_mut_slice()[..from.len()].copy_from_slice(from);
                stream.upload_part(piece, 0..from.len(), *to)?;
                stream.record()
            },
            |_, _, gone| gone.synchronize(),
        )
    }
}

/// Lets all workers work at once, each on piece after piece of what is left, and waits for all of them: one that comes by little time of
/// a processor carries less, and nobody waits for its share.
///
/// # Errors
/// The first worker's that failed.
fn at_once<W: Send, P: Send, E: Send>(
    workers: &mut [W],
    pieces: impl Iterator<Item = P> + Send,
    work: impl Fn(&mut W, &mut dyn Iterator<Item = P>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let left = Mutex::new(pieces);
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        let (next, work) = (&next, &work);
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| scope.spawn(move || work(worker, &mut std::iter::from_fn(next))))
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
    use std::sync::Barrier;

    #[test]
    fn carriers_share_a_copy_and_the_first_error_is_told() {
        for len in [0, 1, 5, 4096, 4097] {
            let from: Vec<usize> = (0..len).collect();
            let mut to = vec![usize::MAX; len];
            let pieces = from.chunks(64).zip(to.chunks_mut(64));
            let mut carried = [0; CARRIERS];
            let outcome: Result<(), ()> = at_once(&mut carried, pieces, |count, pieces| {
                for (from, to) in pieces {
                    *count += from.len();
                    to.copy_from_slice(from);
                }
                Ok(())
            });
            assert_eq!((outcome, carried.iter().sum()), (Ok(()), len));
            assert_eq!(to, from);
        }
        let mut carriers: Vec<usize> = (0..CARRIERS).collect();
        let outcome = at_once(&mut carriers, 0..8, |carrier, _| match *carrier {
            1 | 3 => Err(*carrier),
            _ => Ok(()),
        });
        assert_eq!(outcome, Err(1));
    }

    #[test]
    fn who_is_held_up_leaves_its_share_to_the_others() {
        let others_are_done = Barrier::new(CARRIERS);
        let mut carriers: Vec<(usize, usize)> = (0..CARRIERS).map(|n| (n, 0)).collect();
        let outcome: Result<(), ()> =
            at_once(&mut carriers, 0..100, |(number, carried), pieces| {
                let is_slow = *number == 0;
                let mine = pieces.next();
                if is_slow {
                    others_are_done.wait();
                }
                *carried = usize::from(mine.is_some()) + pieces.count();
                if !is_slow {
                    others_are_done.wait();
                }
                Ok(())
            });
        assert_eq!(outcome, Ok(()));
        assert!(carriers[0].1 <= 1, "{carriers:?}");
        assert_eq!(carriers.iter().map(|c| c.1).sum::<usize>(), 100);
    }
}
