//! The links of a box: which one a copy uses, and what its end means.

use crate::link::FairLink;
use crate::spec::{Hardware, Link};
use shared::core::{Event, Outcome};
use shared::id::{Bytes, DrafterId, MicrobatchId, TargetId};
use shared::policy::{Policy, Transport};
use shared::time::Time;
use std::ops::Range;

/// All links of a run.
///
/// A link marked `shared` is one for the whole box and direction; else each device has its own. One that is not `duplex` carries both
/// directions, so copies out of targets contend with copies into drafters; with `both_ways_rate` each direction has its links and all of
/// one go slower while any copy goes in the other.
#[derive(Clone, Debug)]
pub struct Links {
    links: Vec<FairLink<Transfer>>,
    /// First link of copies into drafters.
    fetches: usize,
    shared: bool,
    /// The pace of one direction while the other carries something.
    both_ways_rate: f64,
    /// Copies under way out of targets and into drafters, where they slow each other.
    under_way: [u32; 2],
}

/// A copy under way.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    microbatch: MicrobatchId,
    /// Who takes it, for a fetch.
    drafter: Option<DrafterId>,
}

impl Transfer {
    /// 0 out of a target, 1 into a drafter.
    fn way(&self) -> usize {
        usize::from(self.drafter.is_some())
    }

    /// What the core is told of its end.
    fn ended(self, outcome: Outcome) -> Event {
        let Self {
            microbatch,
            drafter,
        } = self;
        match drafter {
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
            both_ways_rate: 1.0,
            under_way: [0; 2],
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
            both_ways_rate: spec.both_ways_rate.unwrap_or(1.0),
            under_way: [0; 2],
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.links.len()
    }

    /// The links whose next end may be another than before, after a copy on `link` has begun or ended.
    #[inline]
    pub(crate) fn changed_with(&self, link: usize) -> Range<usize> {
        if self.ways_interfere() {
            0..self.links.len()
        } else {
            link..link + 1
        }
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
        let transfer = Transfer {
            microbatch,
            drafter: None,
        };
        self.begin(now, link, transfer, bytes)
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
        };
        self.begin(now, link, transfer, bytes)
    }

    #[inline(always)]
    fn begin(&mut self, now: Time, link: usize, transfer: Transfer, bytes: Bytes) -> usize {
        self.links[link].begin(now, transfer, bytes.0);
        if self.ways_interfere() {
            let way = transfer.way();
            self.under_way[way] += 1;
            if self.under_way[way] == 1 {
                self.pace_others(way, now, self.both_ways_rate);
            }
        }
        link
    }

    /// Whether copies of one direction slow those of the other.
    #[inline]
    fn ways_interfere(&self) -> bool {
        self.both_ways_rate != 1.0
    }

    /// Sets the pace of the links of the other direction.
    #[inline(never)]
    fn pace_others(&mut self, way: usize, now: Time, pace: f64) {
        let (outward, inward) = self.links.split_at_mut(self.fetches);
        for link in if way == 0 { inward } else { outward } {
            link.set_pace(now, pace);
        }
    }

    /// The end of the copy that is done on `link` at `now`.
    pub(crate) fn finish(&mut self, link: usize, now: Time) -> Event {
        let transfer = self.links[link].finish(now);
        self.leaves(transfer, now);
        transfer.ended(Outcome::Done)
    }

    /// Takes out one copy of the hidden states that `is_hit` names and reports it as failed.
    pub(crate) fn take_out(
        &mut self,
        now: Time,
        is_hit: impl Fn(MicrobatchId) -> bool,
    ) -> Option<Event> {
        let mut links = self.links.iter_mut();
        let transfer = links.find_map(|link| link.remove(now, |t| is_hit(t.microbatch)))?;
        self.leaves(transfer, now);
        Some(transfer.ended(Outcome::Failed))
    }

    #[inline]
    fn leaves(&mut self, transfer: Transfer, now: Time) {
        if self.ways_interfere() {
            let way = transfer.way();
            self.under_way[way] -= 1;
            if self.under_way[way] == 0 {
                self.pace_others(way, now, 1.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::policy::preset;

    #[test]
    fn copies_of_one_direction_slow_those_of_the_other() {
        let spec: Link =
            toml::from_str("bandwidth = '1 GB/s'\nshared = true\nboth_ways_rate = 0.5").unwrap();
        let policy = preset("staged-fifo").unwrap();
        let mut links = Links::of(&spec, &policy);
        let at = Time::from_ns;
        let out = links.stage(at(0), TargetId(0), MicrobatchId(0), Bytes(1_000));
        assert_eq!(links.next(out), Some(at(1_000)));
        let into = links.fetch(at(600), DrafterId(0), MicrobatchId(1), Bytes(1_000));
        assert_eq!(links.changed_with(into), 0..2);
        // 400 B of the first are left, at half the speed.
        assert_eq!(links.next(out), Some(at(1_400)));
        assert_eq!(links.next(into), Some(at(2_600)));
        links.finish(out, at(1_400));
        // Of the second 600 B are left, at full speed again.
        assert_eq!(links.next(into), Some(at(2_000)));
        let failed = links.take_out(at(1_500), |id| id == MicrobatchId(1));
        assert!(failed.is_some());
        assert_eq!((links.next(out), links.next(into)), (None, None));
    }
}
