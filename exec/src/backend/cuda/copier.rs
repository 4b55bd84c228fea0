//! Copies of hidden states between GPUs and the host, on streams of their own.
//!
//! They go in [`pieces`], one at a time, so that the few bytes which a step of another worker waits for do not stand behind all of them.

use super::hidden::{CudaHidden, HostSlots, Slot};
use super::{Shared, fatal};
use crate::backend::{Copier, CopyJob, WorkError};
use crate::cuda::{CudaError, Event, Ferry, PinnedBuffer, Ptr, Stream, Way, pieces};
use crate::error::WorkerId;
use half::bf16;
use shared::policy::{Placement, Transport};
use std::sync::Arc;

/// Copies at one worker's end of the link.
pub(super) struct CudaCopier {
    shared: Arc<Shared>,
    /// One on each GPU.
    streams: Vec<Stream>,
    /// The way through the host between two GPUs: where the policy wants it, or where they do not reach each other.
    through_host: Option<Way>,
    /// Carries to ordinary host memory and from it, where hidden states wait there.
    ferry: Option<Ferry<bf16>>,
}

/// Elements of a piece between a GPU and page-locked memory: 8 MiB, a seventh of a millisecond.
const PINNED_PIECE: usize = 4 << 20;

/// Elements of a piece between two GPUs: 64 MiB, as long.
const DEVICE_PIECE: usize = 32 << 20;

impl CudaCopier {
    pub(super) fn new(end: WorkerId, shared: Arc<Shared>) -> Result<Self, WorkError> {
        let own = shared.device_of(end);
        let streams = shared.devices.iter().map(|device| Stream::new(&device.gpu));
        let streams = streams.collect::<Result<Vec<_>, _>>().map_err(fatal)?;
        let through_host = match shared.transport {
            // Where hidden states wait in the host, each leg begins or ends there.
            _ if shared.host.is_some() => None,
            Transport::HostPageable => Some(Way::pageable(streams[own].gpu()).map_err(fatal)?),
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
        let ferry = match &shared.host {
            Some(HostSlots::Pageable(_)) => Some(Ferry::new(streams[own].gpu()).map_err(fatal)?),
            Some(HostSlots::Pinned(_)) | None => None,
        };
        Ok(Self {
            streams,
            through_host,
            ferry,
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
                let ends = ((stream, from.ptr().at(0..n)), (last, to.ptr()));
                let is_policy = self.shared.transport != Transport::P2p;
                match &mut self.through_host {
                    Some(way) if is_policy || !self.shared.is_direct(source, target) => {
                        between_gpus(way, ends)
                    }
                    _ => between_gpus(&mut Way::Direct, ends),
                }
            }
            (Slot::Device(from), Slot::Pinned(to)) => {
                out(stream, from.ptr().at(0..n), to.get_mut())
            }
            (Slot::Pinned(from), Slot::Device(to)) => into(stream, from.get(), to.ptr().at(0..n)),
            (Slot::Device(from), Slot::Pageable(to)) => {
                let to = &mut to.get_mut()[..n];
                ferry(&mut self.ferry)?.download(stream, from.ptr(), to)
            }
            (Slot::Pageable(from), Slot::Device(to)) => {
                ferry(&mut self.ferry)?.upload(stream, &from.get()[..n], to.ptr())
            }
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

/// One end of a copy between GPUs.
type End<'a> = (&'a Stream, Ptr<bf16>);

fn between_gpus(
    way: &mut Way,
    ((source, from), (target, to)): (End<'_>, End<'_>),
) -> Result<(), CudaError> {
    one_by_one(from.len(), DEVICE_PIECE, |range| {
        let to = (target, to.at(range.clone()));
        way.carry((source, from.at(range)), to)?;
        target.record()
    })
}

/// Out to page-locked memory.
fn out(stream: &Stream, from: Ptr<bf16>, to: &mut PinnedBuffer<bf16>) -> Result<(), CudaError> {
    one_by_one(from.len(), PINNED_PIECE, |range| {
        stream.download_part(from.at(range.clone()), to, range)?;
        stream.record()
    })
}

/// In from page-locked memory.
fn into(stream: &Stream, from: &PinnedBuffer<bf16>, to: Ptr<bf16>) -> Result<(), CudaError> {
    one_by_one(to.len(), PINNED_PIECE, |range| {
        stream.upload_part(from, range.clone(), to.at(range))?;
        stream.record()
    })
}

/// Begins a piece when the one before has arrived.
fn one_by_one(
    len: usize,
    piece: usize,
    begin: impl FnMut(std::ops::Range<usize>) -> Result<Event, CudaError>,
) -> Result<(), CudaError> {
    pieces(len, piece)
        .map(begin)
        .try_for_each(|there| there?.synchronize())
}

fn ferry(ferry: &mut Option<Ferry<bf16>>) -> Result<&mut Ferry<bf16>, WorkError> {
    ferry.as_mut().ok_or_else(|| {
        fatal("hidden states are in ordinary host memory, and the policy sets aside none")
    })
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
