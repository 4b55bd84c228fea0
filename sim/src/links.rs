//! The links of a box: which one a copy uses, and what its end means.

use crate::link::FairLink;
use crate::spec::{Hardware, Link};
use shared::core::{Event, Outcome};
use shared::id::{Bytes, DrafterId, MicrobatchId, TargetId};
use shared::policy::{Policy, Transport};

use shared::time::Time;

/// All links of a run.
///
/// A link marked `shared` is one for the whole box and direction; else each device has its own. One that is not `duplex` carries both
/// directions, so copies out of targets contend with copies into drafters.
#[derive(Clone, Debug)]
pub struct Links {
    links: Vec<FairLink>,
    /// First link of copies into drafters.
    fetches: usize,
    shared: bool,
    /// What each transfer is; `TransferId` is the row.
    transfers: Vec<Transfer>,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Transfer {
    microbatch: MicrobatchId,
    /// Who takes it, for a fetch.
    drafter: Option<DrafterId>,
    link: usize,
    is_open: bool,
}

/// A transport without a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "hardware.{key}: missing, and policy \"{policy}\" moves hidden states by it; describe the link, or choose another policy.transport"
)]
pub struct MissingLink {
    /// The key of the link in the scenario.
    pub key: &'static str,
    /// The policy that needs it.
    pub policy: String,
}

impl Links {
    /// The links that `policy` needs on `hardware`.
    pub fn new(hardware: &Hardware, policy: &Policy) -> Result<Self, MissingLink> {
        let (key, spec) = match policy.transport {
            Transport::HostPageable => ("host_pageable", &hardware.host_pageable),
            Transport::HostPinned => ("host_pinned", &hardware.host_pinned),
            Transport::P2p => ("p2p", &hardware.p2p),
            Transport::Local => return Ok(Self::none()),
        };
        let spec = spec.as_ref();
        let missing = || MissingLink {
            key,
            policy: policy.name.clone(),
        };
        Ok(Self::of(spec.ok_or_else(missing)?, policy))
    }

    /// No link at all: nothing travels.
    pub fn none() -> Self {
        Self {
            links: Vec::new(),
            fetches: 0,
            shared: false,
            transfers: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Links of this kind, as many as `policy` needs.
    pub(crate) fn of(spec: &Link, policy: &Policy) -> Self {
        let outward = if spec.shared {
            1
        } else {
            usize::from(policy.targets)
        };
        let inward = if spec.shared {
            1
        } else {
            usize::from(policy.drafters)
        };
        let merged = spec.shared && !spec.duplex;
        let count = if merged { 1 } else { outward + inward };
        let fetches = if merged { 0 } else { outward };
        let link = |row: usize| {
            let inward = spec.bandwidth_in.filter(|_| row >= outward);
            let speed = inward.unwrap_or(spec.bandwidth);
            FairLink::new(speed.bytes_per_s(), spec.latency_ms)
        };
        Self {
            links: (0..count).map(link).collect(),
            fetches,
            shared: spec.shared,
            transfers: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.links.len()
    }

    #[inline]
    pub(crate) fn next(&self, link: usize) -> Option<Time> {
        self.links[link].next()
    }

    /// Begins a copy out of a target; returns its link.
    #[inline]
    pub(crate) fn stage(
        &mut self,
        now: Time,
        target: TargetId,
        microbatch: MicrobatchId,
        bytes: Bytes,
    ) -> usize {
        let link = if self.shared { 0 } else { target.index() };
        self.begin(
            now,
            Transfer {
                microbatch,
                drafter: None,
                link,
                is_open: true,
            },
            bytes,
        )
    }

    /// Begins a copy into a drafter; returns its link.
    #[inline]
    pub(crate) fn fetch(
        &mut self,
        now: Time,
        drafter: DrafterId,
        microbatch: MicrobatchId,
        bytes: Bytes,
    ) -> usize {
        let link = self.fetches + if self.shared { 0 } else { drafter.index() };
        let transfer = Transfer {
            microbatch,
            drafter: Some(drafter),
            link,
            is_open: true,
        };
        self.begin(now, transfer, bytes)
    }

    fn begin(&mut self, now: Time, transfer: Transfer, bytes: Bytes) -> usize {
        let row = self.free.pop().unwrap_or_else(|| {
            self.transfers.push(transfer);
            self.transfers.len() as u32 - 1
        });
        self.transfers[row as usize] = transfer;
        self.links[transfer.link].begin(now, row, bytes.0);
        transfer.link
    }

    /// The end of the copy that is done on `link` at `now`.
    pub(crate) fn finish(&mut self, link: usize, now: Time) -> Event {
        let row = self.links[link].finish(now);
        self.close(row, Outcome::Done)
    }

    /// Takes out one copy of the hidden states that `is_hit` names and reports it as failed.
    pub(crate) fn take_out(
        &mut self,
        now: Time,
        is_hit: impl Fn(MicrobatchId) -> bool,
    ) -> Option<Event> {
        let row = self
            .transfers
            .iter()
            .position(|t| t.is_open && is_hit(t.microbatch))? as u32;
        self.links[self.transfers[row as usize].link].remove(now, row);
        Some(self.close(row, Outcome::Failed))
    }

    fn close(&mut self, row: u32, outcome: Outcome) -> Event {
        let transfer = &mut self.transfers[row as usize];
        transfer.is_open = false;
        self.free.push(row);
        let microbatch = transfer.microbatch;
        match transfer.drafter {
            Some(drafter) => Event::FetchEnded {
                drafter,
                microbatch,
                outcome,
            },
            None => Event::StageEnded {
                microbatch,
                outcome,
            },
        }
    }
}
