//! How fast the links are, alone and together.

use crate::clock::Clock;
use crate::cuda::{Buffer, CudaError, Event, Ferry, Gpu, PinnedBuffer, Pool, Stream};
use shared::id::Bytes;
use std::sync::{Arc, Barrier};

/// Bytes of a timed copy.
const SIZE: usize = 256 << 20;

/// Bytes of a copy that is all latency.
const SMALL: usize = 4096;

/// Timed copies in a row; one more goes before them.
const REPEATS: usize = 8;

/// Timed pageable copies in a row, which are slow.
const PAGEABLE_REPEATS: usize = 3;

/// From where to where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route {
    /// Inside a GPU's memory.
    Local {
        /// Which.
        gpu: usize,
    },
    /// From one GPU's memory to another's.
    Peer {
        /// From which.
        from: usize,
        /// To which.
        to: usize,
    },
    /// From a GPU to host memory.
    Down {
        /// Which.
        gpu: usize,
        /// Page-locked or ordinary.
        pinned: bool,
    },
    /// From host memory to a GPU.
    Up {
        /// Which.
        gpu: usize,
        /// Page-locked or ordinary.
        pinned: bool,
    },
}

/// What else was going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Busy {
    /// Nothing.
    Alone,
    /// The same copy the other way.
    BothWays,
    /// The same copy on every GPU; between GPUs, each sends to the next.
    AllGpus,
    /// Both on every GPU.
    AllGpusBothWays,
}

/// One measured rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// From where to where.
    pub route: Route,
    /// What else was going on.
    pub busy: Busy,
    /// Data carried. (bytes/s)
    pub bytes_per_s: f64,
    /// Time of a copy of almost nothing, where it was measured. (s)
    pub latency_s: Option<f64>,
}

/// Measures everything. `tell` hears what is measured next.
///
/// Rates are of copies of 256 MiB in a row, after one that is not counted, timed by the GPU's own clock; those of ordinary host memory,
/// which occupy the host, by the host's. Peer copies are measured as the driver makes them, whether GPUs reach each other or not.
pub fn measure(gpus: &[Arc<Gpu>], tell: &mut dyn FnMut(&str)) -> Result<Vec<Measured>, CudaError> {
    tell("taking memory");
    let mut ends = gpus.iter().map(End::new).collect::<Result<Vec<_>, _>>()?;
    let mut all = Vec::new();
    let n = ends.len();
    tell("copies inside each GPU");
    for gpu in 0..n {
        all.extend(timed(&mut ends, &[Route::Local { gpu }], Busy::Alone)?);
    }
    tell("copies between GPUs");
    for from in 0..n {
        for to in (0..n).filter(|&to| to != from) {
            all.extend(timed(&mut ends, &[Route::Peer { from, to }], Busy::Alone)?);
        }
    }
    for from in 0..n {
        for to in from + 1..n {
            let both = [Route::Peer { from, to }, Route::Peer { from: to, to: from }];
            all.extend(timed(&mut ends, &both, Busy::BothWays)?);
        }
    }
    if n > 2 {
        let next = |from: usize| Route::Peer {
            from,
            to: (from + 1) % n,
        };
        let ring: Vec<Route> = (0..n).map(next).collect();
        all.extend(timed(&mut ends, &ring, Busy::AllGpus)?);
    }
    tell("copies from and to pinned host memory");
    let (up, down) = (
        |gpu| Route::Up { gpu, pinned: true },
        |gpu| Route::Down { gpu, pinned: true },
    );
    for gpu in 0..n {
        all.extend(timed(&mut ends, &[up(gpu)], Busy::Alone)?);
        all.extend(timed(&mut ends, &[down(gpu)], Busy::Alone)?);
        all.extend(timed(&mut ends, &[up(gpu), down(gpu)], Busy::BothWays)?);
    }
    let (ups, downs): (Vec<_>, Vec<_>) = ((0..n).map(up).collect(), (0..n).map(down).collect());
    if n > 1 {
        all.extend(timed(&mut ends, &ups, Busy::AllGpus)?);
        all.extend(timed(&mut ends, &downs, Busy::AllGpus)?);
        let both: Vec<_> = ups.into_iter().chain(downs).collect();
        all.extend(timed(&mut ends, &both, Busy::AllGpusBothWays)?);
    }
    tell("copies from and to ordinary host memory");
    for gpu in 0..n {
        for is_up in [true, false] {
            all.extend(pageable(&mut ends[gpu..=gpu], gpu, is_up, Busy::Alone)?);
        }
    }
    if n > 1 {
        for is_up in [true, false] {
            all.extend(pageable(&mut ends, 0, is_up, Busy::AllGpus)?);
        }
    }
    Ok(all)
}

/// A GPU with memory to copy from and to.
struct End {
    gpu: Arc<Gpu>,
    out: Buffer<u8>,
    into: Buffer<u8>,
    /// Read by copies up, and filled by copies down.
    host_out: PinnedBuffer<u8>,
    host_into: PinnedBuffer<u8>,
    pageable: Vec<u8>,
    /// Carries to `pageable` and from it, as in a run.
    ferry: Ferry<u8>,
    /// One a direction.
    streams: [Stream; 2],
}

impl End {
    fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        let pool = Pool::new(gpu, Bytes(2 * SIZE as u64), "copies to be timed")?;
        let mut end = Self {
            out: pool.buffer(SIZE)?,
            into: pool.buffer(SIZE)?,
            host_out: PinnedBuffer::new(gpu, SIZE)?,
            host_into: PinnedBuffer::new(gpu, SIZE)?,
            pageable: noise(SIZE),
            ferry: Ferry::new(gpu)?,
            streams: [Stream::new(gpu)?, Stream::new(gpu)?],
            gpu: Arc::clone(gpu),
        };
        // What is moved is not all zeros: links that compress would look faster than they are.
        end.host_out.as_mut_slice().copy_from_slice(&end.pageable);
        end.streams[0].upload(&end.pageable, end.out.ptr())?;
        end.streams[0].synchronize()?;
        Ok(end)
    }
}

/// Bytes without a pattern that anybody would compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = vec![0; len];
    for eight in bytes.chunks_exact_mut(8) {
        // Xorshift (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        eight.copy_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// Copies on all routes at the same time, each timed on its own stream.
fn timed(ends: &mut [End], routes: &[Route], busy: Busy) -> Result<Vec<Measured>, CudaError> {
    let latency = match busy {
        Busy::Alone => Some(run(ends, routes, SMALL)?[0] / REPEATS as f64),
        _ => None,
    };
    let seconds = run(ends, routes, SIZE)?;
    let rate = |(route, seconds): (&Route, f64)| Measured {
        route: *route,
        busy,
        bytes_per_s: (REPEATS * SIZE) as f64 / seconds,
        latency_s: latency,
    };
    Ok(routes.iter().zip(seconds).map(rate).collect())
}

/// Seconds that [`REPEATS`] copies of `bytes` take on each route.
fn run(ends: &mut [End], routes: &[Route], bytes: usize) -> Result<Vec<f64>, CudaError> {
    for route in routes {
        copy(ends, *route, bytes)?;
    }
    for end in ends.iter() {
        end.gpu.synchronize()?;
    }
    let mut marks: Vec<[Event; 2]> = Vec::new();
    let starts = routes
        .iter()
        .map(|route| stream(ends, *route).record_timed())
        .collect::<Result<Vec<_>, _>>()?;
    // In turn, so that all are under way together from the first on.
    for _ in 0..REPEATS {
        for route in routes {
            copy(ends, *route, bytes)?;
        }
    }
    for (route, start) in routes.iter().zip(starts) {
        marks.push([start, stream(ends, *route).record_timed()?]);
    }
    marks
        .iter()
        .map(|[start, end]| Ok(f64::from(start.elapsed_ms(end)?) / 1e3))
        .collect()
}

/// The stream that a route's copies are put into.
fn stream(ends: &[End], route: Route) -> Stream {
    match route {
        Route::Local { gpu } | Route::Up { gpu, .. } => ends[gpu].streams[0].clone(),
        Route::Down { gpu, .. } => ends[gpu].streams[1].clone(),
        Route::Peer { from, .. } => ends[from].streams[0].clone(),
    }
}

fn copy(ends: &mut [End], route: Route, bytes: usize) -> Result<(), CudaError> {
    let stream = stream(ends, route);
    match route {
        Route::Local { gpu } => {
            let end = &ends[gpu];
            stream.copy(end.out.ptr().at(0..bytes), end.into.ptr())
        }
        Route::Peer { from, to } => {
            let (out, into) = (ends[from].out.ptr().at(0..bytes), ends[to].into.ptr());
            stream.copy_to(&ends[to].gpu, out, into)
        }
        Route::Up { gpu, .. } => {
            let end = &ends[gpu];
            stream.upload_pinned(&end.host_out, bytes, end.into.ptr())
        }
        Route::Down { gpu, .. } => {
            let end = &mut ends[gpu];
            stream.download_pinned(end.out.ptr(), bytes, &mut end.host_into)
        }
    }
}

/// Copies from or to ordinary memory on all of `ends` at once, each on a thread of its own; the first is GPU `first`.
fn pageable(
    ends: &mut [End],
    first: usize,
    is_up: bool,
    busy: Busy,
) -> Result<Vec<Measured>, CudaError> {
    let together = Barrier::new(ends.len());
    let one = |end: &mut End| -> Result<f64, CudaError> {
        let stream = &end.streams[0];
        let mut once = || match is_up {
            true => end.ferry.upload(stream, &end.pageable, end.into.ptr()),
            false => end.ferry.download(stream, end.out.ptr(), &mut end.pageable),
        };
        let warm = once();
        // Everybody comes here, or the others would wait for ever.
        together.wait();
        warm?;
        let clock = Clock::start();
        for _ in 0..PAGEABLE_REPEATS {
            once()?;
        }
        Ok(clock.wall().as_secs_f64())
    };
    let seconds: Vec<Result<f64, CudaError>> = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = ends
            .iter_mut()
            .map(|end| scope.spawn(move || one(end)))
            .collect();
        let lost = || CudaError::Shape("a thread that timed copies panicked".to_owned());
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(lost())))
            .collect()
    });
    let rate = |(at, seconds): (usize, Result<f64, CudaError>)| {
        let gpu = first + at;
        let route = match is_up {
            true => Route::Up { gpu, pinned: false },
            false => Route::Down { gpu, pinned: false },
        };
        Ok(Measured {
            route,
            busy,
            bytes_per_s: (PAGEABLE_REPEATS * SIZE) as f64 / seconds?,
            latency_s: None,
        })
    };
    seconds.into_iter().enumerate().map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_all_bytes_about_equally_often() {
        let bytes = noise(1 << 16);
        let mut counts = [0; 256];
        bytes
            .iter()
            .for_each(|&byte| counts[usize::from(byte)] += 1);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*least > 150 && *most < 370, "{least} {most}");
    }
}
