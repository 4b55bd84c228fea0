//! What was found, as lines, as a table for programs and as a section for scenarios.

use super::Found;
use crate::failure::Failure;
use exec::cuda::links::{Busy, Measured, Route, Standing};
use serde::Serialize;
use sim::spec::Hardware;

/// For people.
pub(super) fn lines(found: &Found) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, device) in found.devices.iter().enumerate() {
        let node = match device.numa_node {
            Some(node) => format!(", NUMA node {node}"),
            None => String::new(),
        };
        lines.push(format!(
            "GPU {at}: {}, {}, {} multiprocessors, bus {}{node}",
            device.name, device.memory, device.multiprocessors, device.bus_id
        ));
    }
    lines.push(format!(
        "{:<28} {:>8} {:>9} {:>8} {:>9}  GB/s a GPU and direction",
        "link", "alone", "both ways", "all GPUs", "all, both"
    ));
    let mut routes: Vec<Route> = found.measured.iter().map(|m| m.route).collect();
    routes.sort_unstable();
    routes.dedup();
    lines.extend(routes.into_iter().map(|route| line(found, route)));
    lines.push(match &found.sums {
        Ok(rates) => format!(
            "NCCL {}: sums over all GPUs at {:.1} GB/s of the vector, copies to all at {:.1}",
            version(rates.version),
            rates.sum_bytes_per_s / 1e9,
            rates.spread_bytes_per_s / 1e9
        ),
        Err(why) => format!("NCCL was not measured: {why}"),
    });
    lines
}

fn line(found: &Found, route: Route) -> String {
    let of = |busy: Busy| {
        let same = |m: &&Measured| m.route == route && m.busy == busy;
        found.measured.iter().find(same)
    };
    let rate = |busy| match of(busy) {
        Some(m) => format!("{:.1}", m.bytes_per_s / 1e9),
        None => "–".to_owned(),
    };
    let latency = of(Busy::Alone).and_then(|m| m.latency_s);
    let latency = latency.map_or_else(String::new, |s| format!("{:.1} µs for 4 KiB", s * 1e6));
    let standing = match route {
        Route::Peer { from, to } => standing(found, from, to),
        _ => String::new(),
    };
    let line = format!(
        "{:<28} {:>8} {:>9} {:>8} {:>9}  {latency}{standing}",
        name(route),
        rate(Busy::Alone),
        rate(Busy::BothWays),
        rate(Busy::AllGpus),
        rate(Busy::AllGpusBothWays)
    );
    line.trim_end().to_owned()
}

fn standing(found: &Found, from: usize, to: usize) -> String {
    let rank = found.ranks.get(from * found.devices.len() + to);
    let rank = rank.copied().flatten();
    let rank = rank.map_or_else(String::new, |rank| format!(", the driver's rank {rank}"));
    match found.links.standing(from, to) {
        Some(Standing::Direct) => format!(", direct, probe right{rank}"),
        Some(other) => format!(
            ", through the host: {}{rank}",
            other.why().unwrap_or_default()
        ),
        None => String::new(),
    }
}

fn name(route: Route) -> String {
    let host = |pinned| if pinned { "pinned" } else { "pageable" };
    match route {
        Route::Local { gpu } => format!("inside GPU {gpu}"),
        Route::Peer { from, to } => format!("GPU {from} to GPU {to}"),
        Route::Down { gpu, pinned } => format!("GPU {gpu} to {} host", host(pinned)),
        Route::Up { gpu, pinned } => format!("{} host to GPU {gpu}", host(pinned)),
    }
}

const fn word(busy: Busy) -> &'static str {
    match busy {
        Busy::Alone => "alone",
        Busy::BothWays => "both-ways",
        Busy::AllGpus => "all-gpus",
        Busy::AllGpusBothWays => "all-gpus-both-ways",
    }
}

fn version(version: i32) -> String {
    format!(
        "{}.{}.{}",
        version / 10_000,
        version / 100 % 100,
        version % 100
    )
}

/// One row a measurement.
pub(super) fn csv(found: &Found) -> Vec<u8> {
    let mut text = String::from("link,busy,bytes_per_s,latency_s,standing\n");
    for m in &found.measured {
        let latency = m.latency_s.map_or_else(String::new, |s| format!("{s:.3e}"));
        let standing = match m.route {
            Route::Peer { from, to } => match found.links.is_direct(from, to) {
                true => "direct",
                false => "through-host",
            },
            _ => "",
        };
        text.push_str(&format!(
            "{},{},{:.0},{latency},{standing}\n",
            name(m.route),
            word(m.busy),
            m.bytes_per_s
        ));
    }
    if let Ok(rates) = &found.sums {
        text.push_str(&format!(
            "NCCL sum,all-gpus,{:.0},,\nNCCL copy to all,all-gpus,{:.0},,\n",
            rates.sum_bytes_per_s, rates.spread_bytes_per_s
        ));
    }
    text.into_bytes()
}

/// The section that scenarios merge.
#[derive(Serialize)]
struct Section<'a> {
    hardware: &'a Hardware,
}

/// A file that a scenario is followed by: `dflash sim SCENARIO box.toml`.
pub(super) fn toml(found: &Found, hardware: &Hardware) -> Result<String, Failure> {
    let section = toml::to_string(&Section { hardware }).map_err(|error| {
        Failure::new(
            crate::output::OutputError::CODE,
            format!("box.toml cannot be written: {error}"),
        )
    })?;
    let measured = lines(found);
    let comments: Vec<String> = measured.iter().map(|line| format!("# {line}\n")).collect();
    Ok(format!(
        "# Measured by `dflash box`. Name this file behind a scenario: `dflash sim SCENARIO box.toml`.\n{}\n{section}",
        comments.concat()
    ))
}
