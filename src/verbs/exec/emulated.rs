//! The emulated backend: the simulator's service times, waited for by real threads.

use super::Ready;
use crate::failure::Failure;
use exec::backend::emulated::{DeviceSharing, Emulated, Emulation, LinkSharing, ServiceTimes};
use shared::policy::{DeviceMap, Transport};
use shared::time::Span;
use sim::spec::{Link, Sharing};

/// What a mean forward should take on the wall: long against the timer's slack, short for who waits.
const FORWARD_ON_THE_WALL_S: f64 = 0.04;

/// Bytes that all slots together take here, unless the user says otherwise: enough to show that none is lost, too few to cost time.
const BYTES_HERE_MAX: f64 = 16e6;

/// A backend that takes the times which the policy's costs give.
pub(crate) fn backend(
    ready: &Ready,
    speedup: Option<f64>,
    byte_scale: Option<f64>,
) -> Result<Emulated, Failure> {
    let plan = &ready.plan;
    let file = &ready.case.file;
    let forward = ready.work.service.forwards(plan);
    let mean_s = seconds(forward.iter().copied().sum()) / forward.len().max(1) as f64;
    let alive = file.policy.depth_total.unwrap_or(64) as f64 * plan.bytes_max().0 as f64;
    let sharing = match link(ready) {
        Some(link) if link.shared && !link.duplex => LinkSharing::BothWays,
        Some(link) if link.shared => LinkSharing::EachWay,
        Some(_) | None => LinkSharing::Own,
    };
    let emulated = Emulated::new(Emulation {
        times: ServiceTimes {
            forward,
            stage: copies(ready, false),
            fetch: copies(ready, true),
            train: ready.work.service.trainings(plan),
            apply: ready.work.service.apply(),
        },
        bytes: plan.microbatches.iter().map(|m| m.bytes).collect(),
        byte_scale: byte_scale.unwrap_or_else(|| (BYTES_HERE_MAX / alive.max(1.0)).min(1.0)),
        speedup: speedup.unwrap_or_else(|| (mean_s / FORWARD_ON_THE_WALL_S).max(1.0)),
        sharing,
        both_ways_rate: link(ready)
            .and_then(|link| link.both_ways_rate)
            .unwrap_or(1.0),
    })
    .map_err(|e| Failure::usage(format!("--backend emulated: {e}")))?;
    Ok(match devices(ready) {
        Some(sharing) => emulated.on_devices(&sharing),
        None => emulated,
    })
}

/// The devices whose speed changes, as the simulator places workers on them.
fn devices(ready: &Ready) -> Option<DeviceSharing> {
    let file = &ready.case.file;
    let hardware = &file.hardware;
    let (sharing, map) = match &hardware.sharing {
        Some(sharing) => {
            let map = DeviceMap::of(&file.policy, usize::from(hardware.gpus));
            (sharing.clone(), map)
        }
        None if hardware.rests.is_none() => return None,
        None => (Sharing::default(), DeviceMap::apart(&file.policy)),
    };
    let row = |forwards| {
        let trains = 0..=file.policy.drafters;
        trains
            .map(|trains| sharing.rates(forwards, trains))
            .collect()
    };
    Some(DeviceSharing {
        kernel_ratio: sharing.kernel_ratio,
        step_rate: sharing.step_rate,
        rests: hardware.rests,
        beside_copy: match &hardware.sharing {
            Some(_) => link(ready).and_then(|link| link.compute_rate),
            None => None,
        }
        .unwrap_or(1.0),
        speeds: (0..=file.policy.targets).map(row).collect(),
        targets: map.targets,
        drafters: map.drafters,
    })
}

fn link(ready: &Ready) -> Option<Link> {
    let hardware = &ready.case.file.hardware;
    match ready.case.file.policy.transport {
        Transport::HostPageable => hardware.host_pageable.clone(),
        Transport::HostPinned => hardware.host_pinned.clone(),
        Transport::P2p => hardware.p2p.clone(),
        Transport::Local => None,
    }
}

/// What each microbatch's copy takes alone on its link, out of a target or into a drafter.
fn copies(ready: &Ready, inward: bool) -> Vec<Span> {
    let link = link(ready);
    let span = |bytes: u64| {
        link.as_ref().map_or(Span::ZERO, |link| {
            let other = link.bandwidth_in.filter(|_| inward);
            let speed = other.unwrap_or(link.bandwidth).bytes_per_s();
            let s = bytes as f64 / speed + link.latency_ms / 1e3;
            Span::from_ns((s * 1e9).round() as u64)
        })
    };
    ready
        .plan
        .microbatches
        .iter()
        .map(|m| span(m.bytes.0))
        .collect()
}

fn seconds(span: Span) -> f64 {
    span.as_ns() as f64 / 1e9
}
