//! Ways from one GPU's memory to another's: straight, or through host memory.

use super::{CudaError, Element, Event, Ferry, Gpu, PinnedBuffer, Ptr, Stream, pieces};
use std::sync::Arc;

/// Host memory that a copy passes through is cut into pieces, so that one goes up while the next comes down. (bytes)
const PIECE: usize = 32 << 20;

/// Pieces in use at a time.
const PIECES: usize = 4;

/// How bytes get from one GPU to another.
#[derive(Debug)]
pub enum Way {
    /// The GPUs reach each other's memory.
    Direct,
    /// Through page-locked host memory, both halves of the way at once.
    Pinned(Ring),
    /// Through ordinary host memory, piece by piece; the host waits for each.
    Pageable(Landing),
}

/// One end of a way: a stream of the GPU where the memory is, and the memory.
pub type End<'a, T> = (&'a Stream, Ptr<T>);

impl Way {
    /// A way through page-locked host memory, which is taken now.
    pub fn pinned(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        let piece = || {
            Ok(Piece {
                memory: PinnedBuffer::new(gpu, PIECE)?,
                free: None,
            })
        };
        let pieces = (0..PIECES).map(|_| piece());
        Ok(Self::Pinned(Ring {
            pieces: pieces.collect::<Result<_, CudaError>>()?,
            next: 0,
        }))
    }

    /// A way through ordinary host memory, which is taken and touched now. `gpu` is at one end.
    ///
    /// # Errors
    /// Not enough page-locked memory for what carries to it and from it.
    pub fn pageable(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        Ok(Self::Pageable(Landing {
            memory: vec![1; PIECE],
            ferry: Ferry::new(gpu)?,
        }))
    }

    /// Puts a copy of all of `from` to the start of `to` into the two streams: what was put into either before comes before the copy, and
    /// what is put into either afterwards comes after it.
    ///
    /// # Errors
    /// A destination that is too small, or what the driver refuses.
    pub fn carry<T: Element>(&mut self, from: End<'_, T>, to: End<'_, T>) -> Result<(), CudaError> {
        to.1.check("copy between devices", from.1.len())?;
        let (source, target) = (from.0, to.0);
        let (from, to) = (from.1.cast::<u8>(), to.1.cast::<u8>());
        match self {
            Self::Direct => {
                // The sender writes: writes cross a bus without waiting for answers, reads do not.
                source.wait(&target.record()?)?;
                source.copy_to(target.gpu(), from, to)?;
                target.wait(&source.record()?)
            }
            Self::Pinned(ring) => {
                for at in pieces(from.len(), PIECE) {
                    let piece = ring.take();
                    if let Some(free) = &piece.free {
                        source.wait(free)?;
                    }
                    source.download_pinned(from.at(at.clone()), at.len(), &mut piece.memory)?;
                    target.wait(&source.record()?)?;
                    target.upload_pinned(&piece.memory, at.len(), to.at(at))?;
                    let free = target.record()?;
                    piece.memory.hold_until(free.clone());
                    piece.free = Some(free);
                }
                source.wait(&target.record()?)
            }
            Self::Pageable(Landing { memory, ferry }) => {
                for at in pieces(from.len(), PIECE) {
                    let memory = &mut memory[..at.len()];
                    ferry.download(source, from.at(at.clone()), memory)?;
                    ferry.upload(target, memory, to.at(at))?;
                }
                source.wait(&target.record()?)
            }
        }
    }
}

/// Ordinary host memory, and what carries to it and from it.
#[derive(Debug)]
pub struct Landing {
    memory: Vec<u8>,
    ferry: Ferry<u8>,
}

/// Page-locked pieces, used in turn.
#[derive(Debug)]
pub struct Ring {
    pieces: Vec<Piece>,
    next: usize,
}

#[derive(Debug)]
struct Piece {
    memory: PinnedBuffer<u8>,
    /// The point from which on it may be filled again.
    free: Option<Event>,
}

impl Ring {
    fn take(&mut self) -> &mut Piece {
        let at = self.next;
        self.next = (at + 1) % self.pieces.len();
        &mut self.pieces[at]
    }
}
