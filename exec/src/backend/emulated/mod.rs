//! A run without devices: workers wait as long as real ones would work, and real bytes travel through the real queues.
//!
//! Service times are given, one a microbatch, as the simulator drew them; nothing is random here. Every wait ends at an absolute
//! instant, the order's plus the service time, so that late wake-ups of a thread do not add up over a run. The run's clock goes
//! faster than the wall by `speedup`, and the records are in the time that is emulated.
//!
//! Payloads are hidden states scaled down by `byte_scale`, at least one word each. A forward makes one, each copy copies it, and
//! training checks every word: what arrives wrong, or not at all, ends the run.

mod device;
mod link;
mod payload;

use super::{
    ApplyJob, Backend, Copier, CopyJob, DrafterWorker, Job, Leg, Ordered, TargetWorker, WorkError,
};
use crate::error::WorkerId;
use device::{Device, Devices, Work};
use link::{Links, Route};
use shared::id::{Bytes, DrafterId, MicrobatchId, StepId, TargetId};
use shared::time::{Span, Time};
use std::sync::Arc;
use thiserror::Error;

pub use device::DeviceSharing;
pub use payload::Payload;

/// How long each piece of work takes, in the time that is emulated. The vectors have one entry a microbatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTimes {
    /// Target forwards.
    pub forward: Vec<Span>,
    /// Copies to where hidden states wait.
    pub stage: Vec<Span>,
    /// Copies from there to a drafter.
    pub fetch: Vec<Span>,
    /// Forwards and backwards of a drafter.
    pub train: Vec<Span>,
    /// One optimizer step.
    pub apply: Span,
}

/// What an emulated run needs beside its plan and policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Emulation {
    /// How long each piece of work takes.
    pub times: ServiceTimes,
    /// Size of each microbatch's hidden states, in bytes.
    pub bytes: Vec<Bytes>,
    /// Real bytes for each emulated byte, from 0 to 1.
    pub byte_scale: f64,
    /// Emulated seconds in one second on the wall.
    pub speedup: f64,
    /// Which copies share a link.
    pub sharing: LinkSharing,
    /// Speed of copies in one direction while any goes in the other, as a share of their speed without, above 0 and at most 1.
    pub both_ways_rate: f64,
}

/// Which copies share a link, n at a time each at 1/n of its speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkSharing {
    /// Each worker has its own link, on which its copies follow one another.
    Own,
    /// All copies out of targets share one link, all copies into drafters another.
    EachWay,
    /// All copies share one link.
    BothWays,
}

/// Why an emulation cannot be made.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum EmulationError {
    /// A list has another length than the list of bytes.
    #[error("{stage} has {found} service times for {expected} microbatches; give one each")]
    Length {
        /// Which list.
        stage: &'static str,
        /// Its length.
        found: usize,
        /// The number of microbatches.
        expected: usize,
    },
    /// A factor is out of its range.
    #[error("{name} = {value}: give a number above 0 and at most {max}")]
    Factor {
        /// Which.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The largest that is allowed.
        max: f64,
    },
}

/// The backend.
#[derive(Debug)]
pub struct Emulated {
    emulation: Arc<Emulation>,
    /// The links on which copies slow each other; without, a worker's copies follow one another and slow nobody's.
    links: Option<Arc<Links>>,
    devices: Devices,
}

impl Emulated {
    /// A backend whose workers take the times given.
    pub fn new(emulation: Emulation) -> Result<Self, EmulationError> {
        let ServiceTimes {
            forward,
            stage,
            fetch,
            train,
            ..
        } = &emulation.times;
        let expected = emulation.bytes.len();
        let lists = [
            ("forward", forward),
            ("stage", stage),
            ("fetch", fetch),
            ("train", train),
        ];
        for (stage, list) in lists {
            if list.len() != expected {
                let found = list.len();
                return Err(EmulationError::Length {
                    stage,
                    found,
                    expected,
                });
            }
        }
        let factors = [
            ("byte_scale", emulation.byte_scale, 1.0),
            ("speedup", emulation.speedup, SPEEDUP_MAX),
            ("both_ways_rate", emulation.both_ways_rate, 1.0),
        ];
        for (name, value, max) in factors {
            if !(value > 0.0 && value <= max) {
                return Err(EmulationError::Factor { name, value, max });
            }
        }
        let is_apart = emulation.sharing == LinkSharing::Own && emulation.both_ways_rate == 1.0;
        let links = (!is_apart).then(|| Arc::new(Links::new(emulation.both_ways_rate)));
        Ok(Self {
            emulation: Arc::new(emulation),
            links,
            devices: Devices::default(),
        })
    }

    /// The same with workers that share devices and slow each other there.
    #[must_use]
    pub fn on_devices(mut self, sharing: &DeviceSharing) -> Self {
        self.devices = Devices::new(sharing);
        self
    }

    fn stand_in(&self, worker: WorkerId) -> StandIn {
        let (device, id) = match worker {
            WorkerId::Target(id) => (self.devices.of_target(id.index()), id.index()),
            WorkerId::Drafter(id) => (self.devices.of_drafter(id.index()), id.index()),
        };
        StandIn {
            emulation: Arc::clone(&self.emulation),
            links: self.links.clone(),
            device,
            id,
            free_at: Time::ZERO,
        }
    }
}

/// Beyond this a late wake-up of 100 microseconds is 100 emulated seconds, and nothing is learnt.
const SPEEDUP_MAX: f64 = 1e6;

impl Backend for Emulated {
    type Hidden = Payload;

    fn name(&self) -> &'static str {
        "emulated"
    }

    fn speedup(&self) -> f64 {
        self.emulation.speedup
    }

    fn target(&self, id: TargetId) -> Result<Box<dyn TargetWorker<Payload>>, WorkError> {
        Ok(Box::new(self.stand_in(WorkerId::Target(id))))
    }

    fn drafter(&self, id: DrafterId) -> Result<Box<dyn DrafterWorker<Payload>>, WorkError> {
        Ok(Box::new(self.stand_in(WorkerId::Drafter(id))))
    }

    fn copier(&self, end: WorkerId) -> Result<Box<dyn Copier<Payload>>, WorkError> {
        Ok(Box::new(self.stand_in(end)))
    }
}

/// Does the waiting of any worker.
struct StandIn {
    emulation: Arc<Emulation>,
    links: Option<Arc<Links>>,
    /// The device that it shares with others.
    device: Option<Arc<Device>>,
    /// Which worker of its kind it is.
    id: usize,
    /// When its last copy on a link of its own ends.
    free_at: Time,
}

impl StandIn {
    fn bytes(&self, id: MicrobatchId) -> Bytes {
        let bytes = self.emulation.bytes[id.index()].0 as f64 * self.emulation.byte_scale;
        Bytes(bytes as u64)
    }

    /// The link of a copy: the first is that of both directions or of copies out, the second that of copies in, or each worker has one.
    fn route(&self, leg: Leg) -> Route {
        let way = leg as usize;
        let link = match self.emulation.sharing {
            LinkSharing::BothWays => 0,
            LinkSharing::EachWay => way,
            LinkSharing::Own => 2 * self.id + way,
        };
        Route { link, leg }
    }

    fn work(&self, work: Work, ordered: Ordered, alone: Span) {
        match &self.device {
            Some(device) => device.work(work, alone, ordered),
            None => ordered.clock.wait_until(ordered.at + alone),
        }
    }
}

impl TargetWorker<Payload> for StandIn {
    fn forward(&mut self, job: Job) -> Result<Payload, WorkError> {
        let payload = Payload::make(job.microbatch, self.bytes(job.microbatch));
        let alone = self.emulation.times.forward[job.microbatch.index()];
        self.work(Work::Forward, job.ordered, alone);
        Ok(payload)
    }
}

impl Copier<Payload> for StandIn {
    fn copy(&mut self, job: CopyJob, hidden: &Payload) -> Result<Payload, WorkError> {
        let copy = hidden.copied();
        let times = &self.emulation.times;
        let service = match job.leg {
            Leg::Stage => times.stage[job.microbatch.index()],
            Leg::Fetch => times.fetch[job.microbatch.index()],
        };
        let device = self.device.clone();
        let route = self.route(job.leg);
        let mut transfer = || match &self.links {
            Some(links) => links.transfer(route, service, job.ordered),
            None => {
                self.free_at = job.ordered.at.max(self.free_at) + service;
                job.ordered.clock.wait_until(self.free_at);
            }
        };
        match device {
            Some(device) => device.beside(job.ordered, &mut transfer),
            None => transfer(),
        }
        Ok(copy)
    }
}

impl DrafterWorker<Payload> for StandIn {
    fn train(&mut self, job: Job, _: StepId, hidden: &Payload) -> Result<(), WorkError> {
        hidden.verify(job.microbatch, self.bytes(job.microbatch))?;
        let alone = self.emulation.times.train[job.microbatch.index()];
        self.work(Work::Train, job.ordered, alone);
        Ok(())
    }

    fn apply(&mut self, job: ApplyJob, _: &[DrafterId]) -> Result<(), WorkError> {
        self.work(Work::Apply, job.ordered, self.emulation.times.apply);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emulation() -> Emulation {
        let one = vec![Span::from_ms(1)];
        Emulation {
            times: ServiceTimes {
                forward: one.clone(),
                stage: one.clone(),
                fetch: one.clone(),
                train: one,
                apply: Span::ZERO,
            },
            bytes: vec![Bytes(8)],
            byte_scale: 1.0,
            speedup: 100.0,
            sharing: LinkSharing::Own,
            both_ways_rate: 1.0,
        }
    }

    #[test]
    fn bad_settings_are_named() {
        let mut short = emulation();
        short.times.fetch.clear();
        let error = Emulated::new(short).unwrap_err().to_string();
        assert_eq!(
            error,
            "fetch has 0 service times for 1 microbatches; give one each"
        );
        let mut still = emulation();
        still.speedup = f64::NAN;
        let error = Emulated::new(still).unwrap_err().to_string();
        assert_eq!(
            error,
            "speedup = NaN: give a number above 0 and at most 1000000"
        );
        assert!(Emulated::new(emulation()).is_ok());
    }
}
