//! Copies of hidden states between GPUs and the host, on streams of their own.

use super::hidden::{CudaHidden, Slot};
use super::{Shared, fatal};
use crate::backend::{Copier, CopyJob, WorkError};
use crate::cuda::{Gpu, PinnedBuffer, Pool, Stream};
use crate::error::WorkerId;
use half::bf16;
use shared::id::Bytes;
use shared::policy::Transport;
use std::sync::Arc;

/// Copies at one worker's end of the link.
pub(super) struct CudaCopier {
    shared: Arc<Shared>,
    device: usize,
    stream: Stream,
    /// Host memory on the way between two GPUs, where the policy does not let them reach each other.
    bounce: Option<PinnedBuffer<bf16>>,
}

impl CudaCopier {
    pub(super) fn new(end: WorkerId, shared: Arc<Shared>) -> Result<Self, WorkError> {
        let device = shared.device_of(end);
        let gpu = &shared.devices[device].gpu;
        let through_host = matches!(
            shared.transport,
            Transport::HostPinned | Transport::HostPageable
        );
        let elements = shared.largest.tokens * shared.per_token();
        let bounce = (through_host && shared.host.is_none())
            .then(|| PinnedBuffer::new(gpu, elements))
            .transpose()
            .map_err(fatal)?;
        Ok(Self {
            stream: Stream::new(gpu).map_err(fatal)?,
            bounce,
            device,
            shared,
        })
    }

    /// A slot where the job ends.
    fn destination(&self, job: CopyJob) -> Result<(Slot, Option<usize>), WorkError> {
        match self.shared.gpu_at(job.to) {
            Some(gpu) => Ok((self.shared.devices[gpu].slots.take()?, Some(gpu))),
            None => {
                let host = self.shared.host.as_ref().ok_or_else(|| {
                    fatal("hidden states are sent to the host, and the policy sets aside no memory there")
                })?;
                Ok((host.take()?, None))
            }
        }
    }
}

impl Copier<CudaHidden> for CudaCopier {
    fn copy(&mut self, job: CopyJob, hidden: &CudaHidden) -> Result<CudaHidden, WorkError> {
        let n = hidden.elements;
        let (mut to, to_gpu) = self.destination(job)?;
        let from_gpu = self.shared.gpu_at(job.from);
        let stream = &self.stream;
        stream.wait(&hidden.ready).map_err(fatal)?;
        let copied = match (&hidden.at, &mut to) {
            (Slot::Device(from), Slot::Device(to)) => {
                let (from, to) = (from.ptr().at(0..n), to.ptr());
                match &mut self.bounce {
                    Some(bounce) => stream
                        .download_pinned(from, n, bounce)
                        .and_then(|()| stream.upload_pinned(bounce, n, to)),
                    None => {
                        let source = from_gpu.unwrap_or(self.device);
                        let target = to_gpu.unwrap_or(self.device);
                        let source = &self.shared.devices[source].gpu;
                        let stream_of_target = target == self.device;
                        match stream_of_target {
                            true => stream.copy_from(source, from, to),
                            false => stream.copy_to(&self.shared.devices[target].gpu, from, to),
                        }
                    }
                }
            }
            (Slot::Device(from), Slot::Pinned(to)) => {
                stream.download_pinned(from.ptr(), n, to.get_mut())
            }
            (Slot::Device(from), Slot::Pageable(to)) => {
                stream.download_into(from.ptr(), &mut to.get_mut()[..n])
            }
            (Slot::Pinned(from), Slot::Device(to)) => stream.upload_pinned(from.get(), n, to.ptr()),
            (Slot::Pageable(from), Slot::Device(to)) => stream.upload(&from.get()[..n], to.ptr()),
            (Slot::Pinned(_) | Slot::Pageable(_), Slot::Pinned(_) | Slot::Pageable(_)) => {
                return Err(fatal("hidden states are sent from the host to the host"));
            }
        };
        copied.map_err(fatal)?;
        let ready = stream.record().map_err(fatal)?;
        // The source's slot is free when this returns.
        ready.synchronize().map_err(fatal)?;
        Ok(CudaHidden {
            at: to,
            elements: n,
            ready,
            said: Arc::clone(&hidden.said),
        })
    }
}

/// Numbers that a probe sends each way.
const PROBE: usize = 1 << 20;

/// Lets all GPUs reach each other, and checks with a copy each way that what arrives is what was sent.
///
/// # Errors
/// GPUs that cannot reach each other, or a copy that comes out wrong.
pub(super) fn connect(gpus: &[Arc<Gpu>]) -> Result<(), WorkError> {
    for a in gpus {
        for b in gpus.iter().filter(|b| b.ordinal() != a.ordinal()) {
            let (here, there) = (a.ordinal(), b.ordinal());
            if !a.can_reach(b).map_err(fatal)? {
                return Err(WorkError::Fatal(format!(
                    "GPU {here} cannot reach the memory of GPU {there}; set policy.transport = \"host-pinned\""
                )));
            }
            a.reach(b).map_err(fatal)?;
        }
    }
    for a in gpus {
        for b in gpus.iter().filter(|b| b.ordinal() != a.ordinal()) {
            probe(a, b)?;
        }
    }
    Ok(())
}

fn probe(from: &Arc<Gpu>, to: &Arc<Gpu>) -> Result<(), WorkError> {
    let (here, there) = (from.ordinal(), to.ordinal());
    let sent: Vec<u32> = (0..PROBE as u32)
        .map(|i| i.wrapping_mul(2_654_435_769) ^ (here as u32) << 8 ^ there as u32)
        .collect();
    let run = || -> Result<Vec<u32>, crate::cuda::CudaError> {
        let size = Bytes(4 * PROBE as u64);
        let (source, target) = (
            Pool::new(from, size, "a probe")?,
            Pool::new(to, size, "a probe")?,
        );
        let (a, b) = (source.buffer::<u32>(PROBE)?, target.buffer::<u32>(PROBE)?);
        let (first, second) = (Stream::new(from)?, Stream::new(to)?);
        first.upload(&sent, a.ptr())?;
        second.wait(&first.record()?)?;
        second.copy_from(from, a.ptr(), b.ptr())?;
        second.download(b.ptr())
    };
    match run().map_err(fatal)? == sent {
        true => Ok(()),
        false => Err(WorkError::Fatal(format!(
            "a copy from GPU {here} to GPU {there} came out wrong; set policy.transport = \"host-pinned\" and check the machine's IOMMU and ACS settings"
        ))),
    }
}
