//! What the simulator's links are, by what was measured.
//!
//! A link of the simulator is a device's own where all GPUs at once lose less than a quarter of what one alone carries; else it is one
//! link that all share, with what all carry together.

use super::Found;
use exec::cuda::links::{Busy, Measured, Route};
use shared::load::Rests;
use sim::spec::{ByteSize, Hardware, Link, Rate};

/// What all together keep of what one alone carries, below which they share a link; and of the two directions of a shared link, below which
/// they are one.
const OWN_SHARE: f64 = 0.75;

/// Rates out of targets and into drafters that differ by less than this share are one, and directions that keep all but this slow nothing.
const SAME: f64 = 0.02;

/// The section of a scenario.
pub(super) fn hardware(found: &Found) -> Hardware {
    let count = found.devices.len();
    let name = found.devices.first().map_or("", |device| &device.name);
    let host = |pinned: bool| {
        let out = move |route| matches!(route, Route::Down { pinned: p, .. } if p == pinned);
        let into = move |route| matches!(route, Route::Up { pinned: p, .. } if p == pinned);
        link(&found.measured, count, &out, &into)
    };
    let peer = |route| matches!(route, Route::Peer { .. });
    Hardware {
        description: format!("{count} {name}"),
        gpus: u16::try_from(count).unwrap_or(u16::MAX),
        gpu_memory: ByteSize(found.devices.iter().map(|d| d.memory.0).min().unwrap_or(0)),
        host_memory: ByteSize(found.host_memory.0),
        host_pageable: host(false),
        host_pinned: host(true),
        p2p: link(&found.measured, count, &peer, &peer),
        // Workers of one GPU hand over in place, and how they slow each other down is not a link's business.
        local: None,
        sharing: None,
        rests: Rests::default(),
    }
}

/// The link that carries what `out` picks away from targets and what `into` picks to drafters.
fn link(
    measured: &[Measured],
    gpus: usize,
    out: &dyn Fn(Route) -> bool,
    into: &dyn Fn(Route) -> bool,
) -> Option<Link> {
    let of = |busy: Busy, kind: &dyn Fn(Route) -> bool| {
        let rates = measured.iter().filter(|m| kind(m.route) && m.busy == busy);
        mean(rates.map(|m| m.bytes_per_s))
    };
    let both = |route: Route| out(route) || into(route);
    let alone = of(Busy::Alone, &both)?;
    let together = of(Busy::AllGpus, &both).unwrap_or(alone);
    let both_ways = of(Busy::BothWays, &both).unwrap_or(alone);
    let shared = together < OWN_SHARE * alone;
    let kept = both_ways / alone;
    let duplex = !shared || kept >= OWN_SHARE;
    let rate = |kind: &dyn Fn(Route) -> bool| {
        let each = of(Busy::AllGpus, kind).or_else(|| of(Busy::Alone, kind))?;
        rounded(if shared { each * gpus as f64 } else { each })
    };
    let (bandwidth, bandwidth_in) = (rate(out)?, rate(into)?);
    let ratio = bandwidth_in.bytes_per_s() / bandwidth.bytes_per_s();
    let latencies = measured.iter().filter(|m| both(m.route));
    let latency = mean(latencies.filter_map(|m| m.latency_s)).unwrap_or(0.0);
    Some(Link {
        bandwidth,
        bandwidth_in: ((ratio - 1.0).abs() > SAME).then_some(bandwidth_in),
        compute_rate: None,
        latency_ms: (latency * 1e6).round() / 1e3,
        shared,
        duplex,
        both_ways_rate: (duplex && kept < 1.0 - SAME).then_some((kept * 1e3).round() / 1e3),
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
