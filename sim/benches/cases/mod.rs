//! The cases that the benchmarks run.
//!
//! `pipeline` is the line that other frameworks simulate (sim/tests/pipeline.rs): six buckets round robin, 5 targets, 3 drafters, nothing
//! travels. `reference` is the reference scenario's shape: hidden states travel, steps end at a barrier.
#![allow(dead_code, unused_imports, reason = "each benchmark uses some of it")]

pub(crate) mod sweep;

use rustix::time::{ClockId, clock_gettime};
use shared::core::{Action, Core, Event};
use shared::draw::{Seed, Stream};
use shared::id::{BucketId, Bytes};
use shared::metrics::{Detail, Meter};
use shared::plan::{Edges, FormationBuilder, MixRule, OrderSpec, Ordering, Plan, Tail};
use shared::policy::{Barrier, Placement, Policy, Release, Transport, preset};
use shared::time::{Span, Time};
use sim::validate::Checksum;
use sim::{Devices, FaultList, Links, Machine, Nobody, Resolved, ServiceTimes, prepare, simulate};
use std::sync::Arc;

/// A case ready to run: only the simulation itself is timed.
pub(crate) struct Case {
    pub(crate) plan: Arc<Plan>,
    policy: Policy,
    service: Arc<ServiceTimes>,
    links: Links,
}

const GRAD_ACCUM: u32 = 4;

impl Case {
    /// What all implementations of the pipeline agree on, up to the `until`-th microbatch trained.
    pub(crate) fn checksum(&self, until: u32) -> Checksum {
        Checksum::of(&mut self.core(), self.machine(), until)
    }

    /// Courses of microbatches that the core keeps at once, at most.
    pub(crate) fn most_kept(&self) -> usize {
        let mut most = 0;
        let mut count = |_: Time, _: &Event, _: &[Action], core: &Core| {
            most = most.max(core.state().lives.kept().count());
        };
        simulate(&mut self.core(), self.machine(), &mut count);
        most
    }

    fn core(&self) -> Core {
        let policy = self.policy.clone();
        Core::new(Arc::clone(&self.plan), policy, GRAD_ACCUM, Seed(0))
    }

    fn machine(&self) -> Machine<'_> {
        Machine {
            service: &self.service,
            links: self.links.clone(),
            devices: Devices::none(),
            faults: FaultList::default(),
        }
    }

    /// Simulates it; returns a number that hangs on the whole run.
    pub(crate) fn run(&self, with_metrics: bool) -> u32 {
        let (mut core, machine) = (self.core(), self.machine());
        if with_metrics {
            let mut meter = Meter::new(&core, Detail::default());
            let mut observe = |at: Time, event: &Event, actions: &[Action], core: &Core| {
                meter.observe(at, event, actions, core);
            };
            simulate(&mut core, machine, &mut observe);
            meter.finish(&core).microbatches
        } else {
            simulate(&mut core, machine, &mut Nobody);
            core.step().0
        }
    }
}

/// The line of the other frameworks, of recorded `(service_ns << 3) | bucket` words.
pub(crate) fn pipeline(words: &[u64]) -> Case {
    line(words.iter().copied(), 5, 3)
}

/// The same line with so many workers, five targets to three drafters, and as many slots for each; drawn work.
pub(crate) fn scaled(workers: u16, microbatches: u64) -> Case {
    const MEANS_MS: [u64; 16] = [
        20, 35, 52, 20, 70, 35, 110, 20, 35, 52, 155, 20, 35, 52, 70, 110,
    ];
    let words = (0..microbatches).map(|i| {
        let bucket = Seed(1).below(Stream::Length, i, 16);
        let mean = MEANS_MS[bucket as usize] * 1_000_000;
        let service = mean / 2 + Seed(1).below(Stream::Forward, i, mean);
        let class = [20, 35, 52, 70, 110, 155]
            .iter()
            .position(|&m| m == MEANS_MS[bucket as usize]);
        (service << 3) | class.expect("a class") as u64
    });
    let targets = u32::from(workers) * 5 / 8;
    line(words, targets as u16, workers - targets as u16)
}

/// Targets that block after service, a store of six buckets and 12 slots for each 8 workers, drafters on their own.
fn line(words: impl Iterator<Item = u64>, targets: u16, drafters: u16) -> Case {
    let edges = Edges::given(vec![1, 2, 3, 4, 5, 6]).expect("rising edges");
    let mut builder = FormationBuilder::new(edges, Bytes(1));
    let mut forward = Vec::new();
    for word in words {
        let bucket = (word & 7) as u8;
        builder
            .push(BucketId(bucket), 1, u32::from(bucket) + 1)
            .expect("fits its bucket");
        forward.push(Span::from_ns(word >> 3));
    }
    let formation = builder.build().expect("work");
    let spec = OrderSpec {
        ordering: Ordering::AsFormed,
        drafters,
        grad_accum: GRAD_ACCUM,
        tail: Tail::Short,
        mix: MixRule::default(),
        assign: false,
        train_cost: vec![Span::ZERO; 6],
        seed: Seed(0),
    };
    let train = vec![Span::from_ms(32); forward.len()];
    Case {
        plan: Arc::new(Plan::order(&formation, &spec)),
        policy: Policy {
            targets,
            drafters,
            depth_total: Some(u32::from(targets + drafters) * 12 / 8),
            release: Release::Taken,
            placement: Placement::Target,
            transport: Transport::Local,
            barrier: Barrier::None,
            prefetch: 0,
            ..preset("bucketed").expect("a preset")
        },
        service: Arc::new(ServiceTimes::given(forward, train, Span::from_ms(8))),
        links: Links::none(),
    }
}

/// The reference scenario under one of its policies.
pub(crate) fn reference(name: &str) -> Case {
    let point = reference_point(name);
    let lengths = sim::draw_lengths(&point.workload, point.seed).expect("drawn lengths");
    let work = prepare(&point, &lengths).expect("work");
    Case {
        plan: sim::plan(&point, &work).expect("a plan"),
        links: Links::new(&point.hardware, &point.policy).expect("a link"),
        policy: point.policy,
        service: work.service,
    }
}

/// The same, not prepared yet.
pub(crate) fn reference_point(name: &str) -> Resolved {
    let table: toml::Table =
        toml::from_str(include_str!("../../../scenarios/reference.toml")).expect("a scenario");
    fn section<T: serde::de::DeserializeOwned>(table: &toml::Table, key: &str) -> T {
        table[key].clone().try_into().expect("a section")
    }
    Resolved {
        seed: Seed(1),
        workload: section(&table, "workload"),
        training: section(&table, "training"),
        model: section(&table, "model"),
        hardware: section(&table, "hardware"),
        costs: section(&table, "costs"),
        faults: Vec::new(),
        policy: preset(name).expect("a preset"),
    }
}

/// The recorded work of the pipeline: 20,000 microbatches.
pub(crate) fn recorded() -> Vec<u64> {
    words(include_bytes!("../../tests/data/pipeline.bin"))
}

/// Little-endian words.
pub(crate) fn words(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect()
}

/// Processor time of this thread so far. (s) The kernel reckons it when asked: files of /proc are as old as the last tick, up to 10 ms.
pub(crate) fn cpu_seconds() -> f64 {
    seconds_of(ClockId::ThreadCPUTime)
}

/// Processor time of all threads so far. (s)
pub(crate) fn cpu_seconds_of_all() -> f64 {
    seconds_of(ClockId::ProcessCPUTime)
}

fn seconds_of(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Resident memory of this process, now and at its peak. (MiB)
pub(crate) fn resident_mib() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux's status");
    let kib = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|n| n.parse::<f64>().ok()).expect("KiB")
    };
    (kib("VmRSS:") / 1024.0, kib("VmHWM:") / 1024.0)
}

/// Lets the peak of resident memory begin anew.
pub(crate) fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").expect("Linux's clear_refs");
}

/// The median; sorts.
pub(crate) fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
