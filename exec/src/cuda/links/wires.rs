//! The real machine, for the survey.

use super::{Side, Wiring};
use crate::cuda::{Buffer, CudaError, Gpu, Pool, Stream};
use shared::id::Bytes;
use std::sync::Arc;

/// The GPUs with memory and a stream each, for probes of a size.
#[derive(Debug)]
pub struct Wires {
    ends: Vec<End>,
}

#[derive(Debug)]
struct End {
    stream: Stream,
    /// What is sent, and what arrives.
    out: Buffer<u32>,
    back: Buffer<u32>,
}

impl Wires {
    /// Takes memory for probes of `numbers` numbers on each GPU.
    pub fn new(gpus: &[Arc<Gpu>], numbers: usize) -> Result<Self, CudaError> {
        let end = |gpu: &Arc<Gpu>| {
            let bytes = 2 * crate::cuda::piece_bytes(4 * numbers);
            let pool = Pool::new(gpu, Bytes(bytes as u64), "probes")?;
            Ok(End {
                stream: Stream::new(gpu)?,
                out: pool.buffer(numbers)?,
                back: pool.buffer(numbers)?,
            })
        };
        let ends = gpus.iter().map(end).collect::<Result<_, CudaError>>()?;
        Ok(Self { ends })
    }
}

impl Wiring for Wires {
    fn count(&self) -> usize {
        self.ends.len()
    }

    fn can_reach(&self, from: usize, to: usize) -> Result<bool, CudaError> {
        let [from, to] = [from, to].map(|at| self.ends[at].stream.gpu());
        from.can_reach(to)
    }

    fn reach(&self, from: usize, to: usize) -> Result<(), CudaError> {
        let [from, to] = [from, to].map(|at| self.ends[at].stream.gpu());
        from.reach(to)
    }

    fn send(
        &self,
        from: usize,
        to: usize,
        side: Side,
        sent: &[u32],
    ) -> Result<Vec<u32>, CudaError> {
        let (source, target) = (&self.ends[from], &self.ends[to]);
        source.stream.upload(sent, source.out.ptr())?;
        target.stream.zero(target.back.ptr())?;
        let here = source.out.ptr().at(0..sent.len());
        let there = target.back.ptr().at(0..sent.len());
        match side {
            Side::Source => {
                source.stream.wait(&target.stream.record()?)?;
                let gpu = target.stream.gpu();
                source.stream.copy_to(gpu, here, there)?;
                target.stream.wait(&source.stream.record()?)?;
            }
            Side::Target => {
                target.stream.wait(&source.stream.record()?)?;
                let gpu = source.stream.gpu();
                target.stream.copy_from(gpu, here, there)?;
            }
        }
        target.stream.download(there)
    }
}
