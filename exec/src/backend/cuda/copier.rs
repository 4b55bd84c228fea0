//! Copies of hidden states between GPUs and the host, on streams of their own.

use super::hidden::{CudaHidden, Slot};
use super::{Shared, fatal};
use crate::backend::{Copier, CopyJob, WorkError};
use crate::cuda::{Stream, Way};
use crate::error::WorkerId;
use shared::policy::{Placement, Transport};
use std::sync::Arc;

/// Copies at one worker's end of the link.
pub(super) struct CudaCopier {
    shared: Arc<Shared>,
    /// One on each GPU.
    streams: Vec<Stream>,
    /// The way through the host between two GPUs: where the policy wants it, or where they do not reach each other.
    through_host: Option<Way>,
}

impl CudaCopier {
    pub(super) fn new(end: WorkerId, shared: Arc<Shared>) -> Result<Self, WorkError> {
        let own = shared.device_of(end);
        let streams = shared.devices.iter().map(|device| Stream::new(&device.gpu));
        let streams = streams.collect::<Result<Vec<_>, _>>().map_err(fatal)?;
        let through_host = match shared.transport {
            // Where hidden states wait in the host, each leg begins or ends there.
            _ if shared.host.is_some() => None,
            Transport::HostPageable => Some(Way::pageable()),
            Transport::HostPinned => Some(pinned(&streams[own])?),
            Transport::P2p | Transport::Local => {
                let is_direct = partners(&shared, end)
                    .all(|at| shared.is_direct(own, at) && shared.is_direct(at, own));
                match is_direct {
                    true => None,
                    false => Some(pinned(&streams[own])?),
                }
            }
        };
        Ok(Self {
            streams,
            through_host,
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
        let (source, target) = (from_gpu.or(to_gpu), to_gpu.or(from_gpu));
        let (Some(source), Some(target)) = (source, target) else {
            return Err(fatal("hidden states are sent from the host to the host"));
        };
        let [stream, last] = [source, target].map(|gpu| &self.streams[gpu]);
        stream.wait(&hidden.ready).map_err(fatal)?;
        let copied = match (&hidden.at, &mut to) {
            (Slot::Device(from), Slot::Device(to)) => {
                let (from, to) = (from.ptr().at(0..n), to.ptr());
                let is_policy = self.shared.transport != Transport::P2p;
                match &mut self.through_host {
                    Some(way) if is_policy || !self.shared.is_direct(source, target) => {
                        way.carry((stream, from), (last, to))
                    }
                    _ => Way::Direct.carry((stream, from), (last, to)),
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
        let ready = last.record().map_err(fatal)?;
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

fn pinned(stream: &Stream) -> Result<Way, WorkError> {
    Way::pinned(stream.gpu()).map_err(fatal)
}

/// The GPUs that copies at `end` begin or end at, beside its own.
fn partners(shared: &Shared, end: WorkerId) -> impl Iterator<Item = usize> {
    let others = match (end, shared.placement) {
        // Hidden states wait at the drafter: targets send.
        (WorkerId::Target(_), Placement::Drafter) => &shared.placing.drafters[..],
        // They wait at the target: drafters fetch.
        (WorkerId::Drafter(_), Placement::Target) => &shared.placing.targets[..],
        _ => &[],
    };
    others.iter().copied()
}
