//! What a small change of the box would buy: finite differences on common random numbers.
//!
//! The changed box trains the same samples with the same noise, so that the difference, not each throughput, carries the interval.

use crate::paired::{Outcomes, Unpaired, gain};
use crate::run::{Resolved, RunError, Work};
use crate::spec::{Link, Rate};
use crate::stats::Estimate;
use shared::id::Bytes;
use shared::policy::{Policy, Transport};

/// One step in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// One more GPU, and a target on it.
    Target,
    /// One more GPU, and a drafter on it: optimizer steps grow by `grad_accum` microbatches.
    Drafter,
    /// One HS slot more, with room for the largest microbatch where bytes are capped.
    Slot,
    /// 1 GB/s more on the link that carries hidden states, each way.
    Link,
    /// A drafter's GPU for one more target.
    ToTargets,
    /// A target's GPU for one more drafter.
    ToDrafters,
}

/// Bandwidth that [`Change::Link`] adds. (bytes/s)
const LINK_STEP: f64 = 1e9;

/// Changes of throughput below this share count as none, however sure.
pub const INDIFFERENT: f64 = 0.001;

impl Change {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 6] = [
        Self::Target,
        Self::Drafter,
        Self::Slot,
        Self::Link,
        Self::ToTargets,
        Self::ToDrafters,
    ];

    /// The changed point; `None` where there is nothing to change, such as a link where nothing travels.
    pub fn of(self, point: &Resolved, work: &Work) -> Option<Resolved> {
        let mut point = point.clone();
        let policy = &mut point.policy;
        match self {
            Self::Target => {
                policy.targets = policy.targets.checked_add(1)?;
                point.hardware.gpus = point.hardware.gpus.checked_add(1)?;
            }
            Self::Drafter => {
                policy.drafters = policy.drafters.checked_add(1)?;
                point.hardware.gpus = point.hardware.gpus.checked_add(1)?;
            }
            Self::Slot => {
                let bytes = work.formation.microbatches.iter().map(|m| m.bytes).max()?;
                add_slot(policy, bytes)?;
            }
            Self::Link => {
                let link = link_of(&mut point)?;
                let more = |speed: Rate| Rate::new(speed.bytes_per_s() + LINK_STEP);
                link.bandwidth = more(link.bandwidth)?;
                link.bandwidth_in = link.bandwidth_in.and_then(more);
            }
            Self::ToTargets => {
                policy.drafters = policy.drafters.checked_sub(1).filter(|&left| left > 0)?;
                policy.targets = policy.targets.checked_add(1)?;
            }
            Self::ToDrafters => {
                policy.targets = policy.targets.checked_sub(1).filter(|&left| left > 0)?;
                policy.drafters = policy.drafters.checked_add(1)?;
            }
        }
        Some(point)
    }
}

/// Raises the widest cap there is by one slot, and the cap in bytes beside it; `None` where nothing is capped.
fn add_slot(policy: &mut Policy, largest: Bytes) -> Option<()> {
    let levels = [
        (&mut policy.depth_total, &mut policy.bytes_total),
        (&mut policy.depth_per_drafter, &mut policy.bytes_per_drafter),
        (&mut policy.depth_per_bucket, &mut policy.bytes_per_bucket),
    ];
    let (depth, bytes) = levels
        .into_iter()
        .find(|(depth, bytes)| depth.is_some() || bytes.is_some())?;
    if let Some(depth) = depth {
        *depth = depth.checked_add(1)?;
    }
    if let Some(bytes) = bytes {
        bytes.0 = bytes.0.checked_add(largest.0)?;
    }
    Some(())
}

/// The link that a point's hidden states travel on.
fn link_of(point: &mut Resolved) -> Option<&mut Link> {
    let hardware = &mut point.hardware;
    match point.policy.transport {
        Transport::HostPageable => hardware.host_pageable.as_mut(),
        Transport::HostPinned => hardware.host_pinned.as_mut(),
        Transport::P2p => hardware.p2p.as_mut(),
        Transport::Local => None,
    }
}

/// What a change does.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// The change.
    pub change: Change,
    /// By how much it raises throughput, as a share of what it was; or why it cannot be made. (1)
    pub gain: Result<Estimate, Unpaired>,
}

impl Effect {
    /// The effect of a change, from the replications without and with it.
    pub fn of(change: Change, base: &[crate::Outcome], changed: &Outcomes) -> Self {
        let gain = match changed {
            Ok(changed) => Ok(gain(base, changed)),
            Err(reason) => Err(reason.clone()),
        };
        Self { change, gain }
    }

    /// Whether the policy itself, not memory, forbids the change.
    pub fn is_refused(&self) -> bool {
        matches!(self.gain, Err(Unpaired::Refused(RunError::Policy(_))))
    }
}

/// Whether a difference cannot be told from none: its interval holds zero, or it is below [`INDIFFERENT`].
pub fn is_tie(difference: &Estimate) -> bool {
    (difference.low() <= 0.0 && difference.high() >= 0.0) || difference.mean.abs() < INDIFFERENT
}
