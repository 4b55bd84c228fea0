use super::*;
use exec::cuda::links::{Busy, Route, Side, Wiring};
use sim::spec::Hardware;

/// Two GPUs that reach each other; `broken` garbles what the second sends.
struct Two {
    broken: bool,
}

impl Wiring for Two {
    fn count(&self) -> usize {
        2
    }

    fn can_reach(&self, _: usize, _: usize) -> Result<bool, CudaError> {
        Ok(true)
    }

    fn reach(&self, _: usize, _: usize) -> Result<(), CudaError> {
        Ok(())
    }

    fn send(&self, from: usize, _: usize, _: Side, sent: &[u32]) -> Result<Vec<u32>, CudaError> {
        let garbled = u32::from(self.broken && from == 1);
        Ok(sent.iter().map(|number| number ^ garbled).collect())
    }
}

fn rate(route: Route, busy: Busy, gb_per_s: f64) -> Measured {
    Measured {
        route,
        busy,
        bytes_per_s: gb_per_s * 1e9,
        latency_s: (busy == Busy::Alone).then_some(8e-6),
    }
}

/// Pinned copies of 50 GB/s alone and `together` when both GPUs copy; 6 GB/s of pageable ones, which share.
fn found(together: f64, broken: bool) -> Found {
    let device = |at: u32| Device {
        name: "NVIDIA H200".into(),
        memory: Bytes(150 << 30),
        bus_id: format!("0000:0{at}:00.0"),
        numa_node: (at == 1).then_some(0),
        multiprocessors: 132,
    };
    let (up, down) = (
        |gpu, pinned| Route::Up { gpu, pinned },
        |gpu, pinned| Route::Down { gpu, pinned },
    );
    let mut measured = Vec::new();
    for gpu in 0..2 {
        for route in [up(gpu, true), down(gpu, true)] {
            measured.push(rate(route, Busy::Alone, 50.0));
            measured.push(rate(route, Busy::BothWays, 48.0));
            measured.push(rate(route, Busy::AllGpus, together));
        }
        for route in [up(gpu, false), down(gpu, false)] {
            measured.push(rate(route, Busy::Alone, 6.0));
            measured.push(rate(route, Busy::AllGpus, 4.0));
        }
        let peer = Route::Peer {
            from: gpu,
            to: 1 - gpu,
        };
        measured.push(rate(peer, Busy::Alone, 400.0));
        measured.push(rate(peer, Busy::BothWays, 200.0));
    }
    Found {
        devices: vec![device(0), device(1)],
        host_memory: Bytes(256 << 30),
        links: Links::survey(&Two { broken }, 16),
        ranks: vec![None, Some(0), Some(0), None],
        measured,
        sums: Err("libnccl.so was not found".into()),
    }
}

fn parsed(text: &str) -> Hardware {
    let table: toml::Table = text.parse().unwrap();
    table["hardware"].clone().try_into().unwrap()
}

#[test]
fn the_section_reads_back_and_says_what_was_measured() {
    let found = found(49.0, false);
    let hardware = fit::hardware(&found);
    let text = show::toml(&found, &hardware).unwrap();
    let read = parsed(&text);
    assert_eq!(read, hardware);
    assert_eq!(read.validate("hardware"), []);
    let pinned = read.host_pinned.unwrap();
    assert_eq!(pinned.bandwidth.bytes_per_s(), 49e9);
    assert!(!pinned.shared && pinned.duplex);
    assert_eq!(pinned.latency_ms, 0.008);
    let pageable = read.host_pageable.unwrap();
    // Two thirds of what one alone carries: one link of 8 GB/s.
    assert!(pageable.shared);
    assert_eq!(pageable.bandwidth.bytes_per_s(), 8e9);
    let p2p = read.p2p.unwrap();
    // Both ways at once each carries half: links of their own that slow each other.
    assert!(p2p.duplex && !p2p.shared);
    assert_eq!(p2p.both_ways_rate, Some(0.5));
    assert_eq!(p2p.bandwidth.bytes_per_s(), 400e9);
}

#[test]
fn gpus_that_slow_each_other_down_share_a_link() {
    let pinned = fit::hardware(&found(26.0, false)).host_pinned.unwrap();
    assert!(pinned.shared);
    assert_eq!(pinned.bandwidth.bytes_per_s(), 52e9);
}

#[test]
fn every_link_has_a_line_and_a_broken_one_says_so() {
    let lines = show::lines(&found(49.0, true));
    assert!(
        lines[1].ends_with("bus 0000:01:00.0, NUMA node 0"),
        "{}",
        lines[1]
    );
    let of = |start: &str| {
        let mut all = lines.iter().filter(|line| line.starts_with(start));
        let line = all.next().unwrap();
        assert_eq!(all.next(), None);
        line
    };
    assert!(of("GPU 0 to GPU 1 ").contains("direct, probe right"));
    assert!(of("GPU 1 to GPU 0 ").contains("through the host: a direct copy came out wrong"));
    let pinned: Vec<&str> = of("pinned host to GPU 1 ").split_whitespace().collect();
    assert_eq!(pinned[5..9], ["50.0", "48.0", "49.0", "–"]);
    assert!(of("NCCL").ends_with("libnccl.so was not found"));
    let csv = String::from_utf8(show::csv(&found(49.0, true))).unwrap();
    assert!(
        csv.contains("\nGPU 1 to GPU 0,both-ways,200000000000,,through-host\n"),
        "{csv}"
    );
}
