//! `dflash box`: which GPUs this machine has, whether what they send each other arrives, and how fast everything is.

mod fit;
mod show;

use super::exec::for_libraries;
use crate::cli::BoxArgs;
use crate::failure::{Failure, code};
use crate::output::OutputDir;
use crate::terminal::{note, say};
use exec::cuda::links::{Links, Measured, SumRates, Wires, measure, measure_sums};
use exec::cuda::{CudaError, Gpu};
use shared::id::Bytes;
use std::sync::Arc;

/// Numbers that a probe sends at a time: 64 MiB.
const PROBE: usize = 16 << 20;

/// A GPU, as it is described.
#[derive(Clone, Debug, PartialEq)]
struct Device {
    name: String,
    memory: Bytes,
    bus_id: String,
    /// The host memory it is near to, where the system says.
    numa_node: Option<u32>,
    multiprocessors: u32,
}

/// All that was found.
#[derive(Debug)]
struct Found {
    devices: Vec<Device>,
    host_memory: Bytes,
    links: Links,
    /// The driver's ranks of the ways between GPUs, row by row; 0 is the best.
    ranks: Vec<Option<i32>>,
    measured: Vec<Measured>,
    /// Or why NCCL could not be measured.
    sums: Result<SumRates, String>,
}

pub(crate) fn run(args: &BoxArgs) -> Result<(), Failure> {
    for_libraries()?;
    let found = look().map_err(|error| Failure::new(code::GPU, error))?;
    let hardware = fit::hardware(&found);
    let dir = OutputDir::create(&args.out)?;
    dir.write("box.toml", show::toml(&found, &hardware)?.as_bytes())?;
    dir.write("links.csv", &show::csv(&found))?;
    show::lines(&found).into_iter().for_each(say);
    let ordinals: Vec<usize> = (0..found.devices.len()).collect();
    found.links.complaints(&ordinals).iter().for_each(note);
    say(format!(
        "results in {}; `dflash sim SCENARIO {}` simulates on this machine",
        args.out.display(),
        args.out.join("box.toml").display()
    ));
    Ok(())
}

fn look() -> Result<Found, CudaError> {
    let count = Gpu::count()?;
    if count == 0 {
        return Err(CudaError::NoDevice { ordinal: 0, count });
    }
    let gpus: Vec<Arc<Gpu>> = (0..count).map(Gpu::open).collect::<Result<_, _>>()?;
    let devices = gpus.iter().map(|gpu| device(gpu));
    let devices = devices.collect::<Result<Vec<_>, CudaError>>()?;
    note(format!("probing {count} GPUs"));
    let links = Links::survey(&Wires::new(&gpus, PROBE)?, PROBE);
    let pairs = gpus.iter().flat_map(|a| gpus.iter().map(move |b| (a, b)));
    let ranks = pairs.map(|(a, b)| match a.ordinal() == b.ordinal() {
        true => None,
        // Some drivers give no rank to a way that they do not offer.
        false => a.rank_of_way(b).ok(),
    });
    Ok(Found {
        ranks: ranks.collect(),
        measured: measure(&gpus, &mut |what| note(format!("measuring {what}")))?,
        sums: measure_sums(&gpus).map_err(|error| error.to_string()),
        host_memory: host_memory(),
        devices,
        links,
    })
}

fn device(gpu: &Gpu) -> Result<Device, CudaError> {
    let bus_id = gpu.bus_id()?;
    let file = format!("/sys/bus/pci/devices/{bus_id}/numa_node");
    let node = std::fs::read_to_string(file).ok();
    Ok(Device {
        name: gpu.name().to_owned(),
        memory: gpu.memory()?.1,
        // -1 stands for a machine without nodes.
        numa_node: node.and_then(|text| text.trim().parse().ok()),
        multiprocessors: gpu.multiprocessors(),
        bus_id,
    })
}

/// Memory of the host, as far as the system says; 0 where it does not.
fn host_memory() -> Bytes {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Bytes(kib.unwrap_or(0) * 1024)
}

#[cfg(test)]
mod tests;
