//! What the simulator's links are, by what was measured.
//!
//! A link of the simulator has one rate for all devices and both directions. It is a device's own where all GPUs at once lose less than a
//! quarter of what one alone carries; else it is one link that all share, with what all carry together.

use super::Found;
use exec::cuda::links::{Busy, Measured, Route};
use sim::spec::{ByteSize, Hardware, Link, Rate};

/// What all together keep of what one alone carries, below which they share a link; and of the two directions, below which they contend.
const OWN_SHARE: f64 = 0.75;

/// The section of a scenario.
pub(super) fn hardware(found: &Found) -> Hardware {
    let count = found.devices.len();
    let of = |kind: fn(Route) -> bool| link(&found.measured, count, kind);
    let name = found.devices.first().map_or("", |device| &device.name);
    Hardware {
        description: format!("{count} {name}"),
        gpus: u16::try_from(count).unwrap_or(u16::MAX),
        gpu_memory: ByteSize(found.devices.iter().map(|d| d.memory.0).min().unwrap_or(0)),
        host_memory: ByteSize(found.host_memory.0),
        host_pageable: of(|route| {
            matches!(
                route,
                Route::Up { pinned: false, .. } | Route::Down { pinned: false, .. }
            )
        }),
        host_pinned: of(|route| {
            matches!(
                route,
                Route::Up { pinned: true, .. } | Route::Down { pinned: true, .. }
            )
        }),
        p2p: of(|route| matches!(route, Route::Peer { .. })),
        // Workers of one GPU hand over in place.
        local: None,
        sharing: None,
    }
}

fn link(measured: &[Measured], gpus: usize, kind: fn(Route) -> bool) -> Option<Link> {
    let of = |busy: Busy| {
        let rates = measured
            .iter()
            .filter(move |m| kind(m.route) && m.busy == busy);
        mean(rates.map(|m| m.bytes_per_s))
    };
    let alone = of(Busy::Alone)?;
    let together = of(Busy::AllGpus).unwrap_or(alone);
    let both_ways = of(Busy::BothWays).unwrap_or(alone);
    let shared = together < OWN_SHARE * alone;
    let rate = match shared {
        true => together * gpus as f64,
        false => together,
    };
    let latencies = measured.iter().filter(|m| kind(m.route));
    let latency = mean(latencies.filter_map(|m| m.latency_s)).unwrap_or(0.0);
    Some(Link {
        compute_rate: None,
        bandwidth: rounded(rate)?,
        bandwidth_in: None,
        latency_ms: (latency * 1e6).round() / 1e3,
        shared,
        duplex: both_ways >= OWN_SHARE * alone,
    })
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// To 0.01 GB/s, which is finer than rates repeat.
fn rounded(bytes_per_s: f64) -> Option<Rate> {
    Rate::new((bytes_per_s / 1e7).round() * 1e7)
}
