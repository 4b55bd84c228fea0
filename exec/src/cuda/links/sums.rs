//! How fast NCCL sums and spreads over all GPUs.

use crate::cuda::nccl::Comms;
use crate::cuda::{Buffer, CudaError, Gpu, Pool, Ptr, Stream};
use shared::id::Bytes;
use std::sync::Arc;

/// Numbers in a timed sum: 1 GiB.
const NUMBERS: usize = 256 << 20;

/// Timed sums in a row; one more goes before them.
const REPEATS: usize = 5;

/// Rates of sums and broadcasts of f32 vectors over all GPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct SumRates {
    /// NCCL's version, such as 22803.
    pub version: i32,
    /// Bytes of the vector over the time of a sum to the first GPU. (bytes/s)
    pub sum_bytes_per_s: f64,
    /// Bytes of the vector over the time of a copy from the first to all. (bytes/s)
    pub spread_bytes_per_s: f64,
}

/// Measures sums over `gpus`; the time is the first GPU's.
///
/// # Errors
/// NCCL is not there or refuses, or not enough memory.
pub fn measure_sums(gpus: &[Arc<Gpu>]) -> Result<SumRates, CudaError> {
    let mut comms = Comms::new(gpus)?;
    let take = |gpu: &Arc<Gpu>| -> Result<(Stream, Buffer<f32>), CudaError> {
        let pool = Pool::new(gpu, Bytes(4 * NUMBERS as u64), "sums to be timed")?;
        let (stream, buffer) = (Stream::new(gpu)?, pool.buffer(NUMBERS)?);
        stream.zero(buffer.ptr())?;
        Ok((stream, buffer))
    };
    let ends = gpus.iter().map(take).collect::<Result<Vec<_>, _>>()?;
    let parts: Vec<(&Stream, Ptr<f32>)> = ends.iter().map(|(s, b)| (s, b.ptr())).collect();
    let first = parts[0].0;
    let mut timed = |spread: bool| -> Result<f64, CudaError> {
        let mut once = || match spread {
            true => comms.spread_first(&parts),
            false => comms.sum_to_first(&parts),
        };
        once()?;
        let start = first.record_timed()?;
        for _ in 0..REPEATS {
            once()?;
        }
        let end = first.record_timed()?;
        for (stream, _) in &parts {
            stream.synchronize()?;
        }
        let seconds = f64::from(start.elapsed_ms(&end)?) / 1e3;
        Ok((REPEATS * 4 * NUMBERS) as f64 / seconds)
    };
    let (sum_bytes_per_s, spread_bytes_per_s) = (timed(false)?, timed(true)?);
    Ok(SumRates {
        version: comms.version()?,
        sum_bytes_per_s,
        spread_bytes_per_s,
    })
}
