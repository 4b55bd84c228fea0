//! Copies between a GPU and ordinary host memory, through a little page-locked memory of its own.
//!
//! The driver would do the same, but it holds the GPU's context meanwhile: whoever launches a kernel on that GPU then waits, for up to
//! the whole copy. Here threads of this program carry the bytes between the two host memories, several at a time, and nobody else waits.
//!
//! One piece at a time crosses to the GPU or from it. A copy engine that always finds another piece waiting stays with this copy for
//! milliseconds, and threads that all call the driver get in each other's way: pieces of 2 MiB that crossed as they came took twice as
//! long where a GPU copied both ways (H200, 16 cores).

use super::past_caches::copy_past_caches;
use super::{CudaError, Element, Gpu, PinnedBuffer, Ptr, Stream, pieces};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Threads that carry a copy: one reads 6 to 8 GB/s of ordinary memory.
const CARRIERS: usize = 8;

/// Bytes that one carries at a time: a sixth of a millisecond on the link, beside which what passes between two pieces is little.
const PIECE_BYTES: usize = 8 << 20;

/// The page-locked memory, a piece for each who carries.
#[derive(Debug)]
pub struct Ferry<T> {
    carriers: Vec<PinnedBuffer<T>>,
}

impl<T: Element> Ferry<T> {
    /// Takes 64 MiB of page-locked memory.
    ///
    /// # Errors
    /// Not enough memory that can be locked.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        let carriers = (0..CARRIERS).map(|_| PinnedBuffer::new(gpu, Self::piece()));
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
        let piece = Self::piece();
        let parts = pieces(to.len(), piece).zip(to.chunks_mut(piece));
        let crossing = Crossing::default();
        at_once(&mut self.carriers, parts, |locked, parts| {
            for (range, to) in parts {
                let turn = crossing.turn();
                stream.download_part(from.at(range), locked, 0..to.len())?;
                stream.record()?.synchronize()?;
                drop(turn);
                copy_past_caches(&locked.as_slice()[..to.len()], to);
            }
            Ok(())
        })
    }

    /// Copies `from` to the start of `to`, after what is in `stream`, and waits for it.
    ///
    /// # Errors
    /// A destination that is too small; failures of the device.
    pub fn upload(&mut self, stream: &Stream, from: &[T], to: Ptr<T>) -> Result<(), CudaError> {
        to.check("upload", from.len())?;
        let piece = Self::piece();
        let parts = pieces(from.len(), piece).zip(from.chunks(piece));
        let crossing = Crossing::default();
        at_once(&mut self.carriers, parts, |locked, parts| {
            for (range, from) in parts {
                locked.as_mut_slice()[..from.len()].copy_from_slice(from);
                let _turn = crossing.turn();
                stream.upload_part(locked, 0..from.len(), to.at(range))?;
                stream.record()?.synchronize()?;
            }
            Ok(())
        })
    }

    /// Elements of a piece.
    fn piece() -> usize {
        PIECE_BYTES / T::BYTES
    }
}

/// Where pieces cross, one at a time.
#[derive(Debug, Default)]
struct Crossing {
    next: Mutex<()>,
    link: Mutex<()>,
}

impl Crossing {
    /// Waits for one's turn, which lasts until it is dropped. Of those who wait one stands ready, since being woken can take half as long
    /// as a piece; the others sleep.
    fn turn(&self) -> MutexGuard<'_, ()> {
        let _next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match self.link.try_lock() {
                Ok(turn) => return turn,
                Err(TryLockError::Poisoned(turn)) => return turn.into_inner(),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
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
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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
    fn one_crosses_at_a_time_and_a_turn_outlives_a_panic() {
        let crossing = Crossing::default();
        let (there, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut carriers = [0; CARRIERS];
        let outcome: Result<(), ()> = at_once(&mut carriers, 0..200, |count, pieces| {
            for _ in pieces {
                let turn = crossing.turn();
                most.fetch_max(there.fetch_add(1, Relaxed) + 1, Relaxed);
                std::thread::yield_now();
                there.fetch_sub(1, Relaxed);
                drop(turn);
                *count += 1;
            }
            Ok(())
        });
        assert_eq!((outcome, most.into_inner()), (Ok(()), 1));
        assert_eq!(carriers.iter().sum::<usize>(), 200);
        let panicked = std::thread::scope(|scope| {
            let panics = || {
                let _turn = crossing.turn();
                panic!("a carrier's");
            };
            scope.spawn(panics).join()
        });
        assert!(panicked.is_err());
        drop(crossing.turn());
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
