//! Microbatches per second through the event loop and the real core, with and without metrics.
//!
//! `pipeline` is the line that other frameworks simulate (sim/tests/pipeline.rs): six buckets round robin, 5 targets, 3 drafters, nothing
//! travels. `reference` is the reference scenario's shape: hidden states travel, steps end at a barrier.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use shared::core::{Action, Core, Event};
use shared::draw::Seed;
use shared::id::{BucketId, Bytes};
use shared::metrics::{Detail, Meter};
use shared::plan::{Edges, FormationBuilder, MixRule, OrderSpec, Ordering, Plan, Tail};
use shared::policy::{Barrier, Placement, Policy, Release, Transport, preset};
use shared::time::{Span, Time};
use sim::spec::{Hardware, Model, Training, Workload};
use sim::{FaultList, Links, Machine, Nobody, Resolved, ServiceTimes, Work, prepare, simulate};
use std::sync::Arc;

/// A case ready to run: only the simulation itself is timed.
struct Case {
    plan: Arc<Plan>,
    policy: Policy,
    service: Arc<ServiceTimes>,
    links: Links,
}

const GRAD_ACCUM: u32 = 4;

impl Case {
    fn run(&self, with_metrics: bool) -> u32 {
        let policy = self.policy.clone();
        let mut core = Core::new(Arc::clone(&self.plan), policy, GRAD_ACCUM, Seed(0));
        let machine = Machine {
            service: &self.service,
            links: self.links.clone(),
            devices: sim::Devices::none(),
            faults: FaultList::default(),
        };
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

fn pipeline() -> Case {
    let words: Vec<u64> = include_bytes!("../tests/data/pipeline.bin")
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let edges = Edges::given(vec![1, 2, 3, 4, 5, 6]).expect("rising edges");
    let mut builder = FormationBuilder::new(edges, Bytes(1));
    for word in &words {
        let bucket = (word & 7) as u8;
        builder
            .push(BucketId(bucket), 1, u32::from(bucket) + 1)
            .expect("fits its bucket");
    }
    let formation = builder.build().expect("work");
    let spec = OrderSpec {
        ordering: Ordering::AsFormed,
        drafters: 3,
        grad_accum: GRAD_ACCUM,
        tail: Tail::Short,
        mix: MixRule::default(),
        assign: false,
        train_cost: vec![Span::ZERO; 6],
        seed: Seed(0),
    };
    let forward = words.iter().map(|word| Span::from_ns(word >> 3)).collect();
    let train = vec![Span::from_ms(32); words.len()];
    Case {
        plan: Arc::new(Plan::order(&formation, &spec)),
        policy: Policy {
            depth_total: Some(12),
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
fn reference(name: &str) -> Case {
    let table: toml::Table =
        toml::from_str(include_str!("../../scenarios/reference.toml")).expect("a scenario");
    fn section<T: serde::de::DeserializeOwned>(table: &toml::Table, key: &str) -> T {
        table[key].clone().try_into().expect("a section")
    }
    let workload: Workload = section(&table, "workload");
    let training: Training = section(&table, "training");
    let model: Model = section(&table, "model");
    let hardware: Hardware = section(&table, "hardware");
    let point = Resolved {
        seed: Seed(1),
        workload,
        training,
        model,
        hardware,
        costs: section(&table, "costs"),
        faults: Vec::new(),
        policy: preset(name).expect("a preset"),
    };
    let lengths = sim::draw_lengths(&point.workload, point.seed).expect("drawn lengths");
    let work: Work = prepare(&point, &lengths).expect("work");
    Case {
        plan: sim::plan(&point, &work).expect("a plan"),
        links: Links::new(&point.hardware, &point.policy).expect("a link"),
        policy: point.policy,
        service: work.service,
    }
}

fn engine(c: &mut Criterion) {
    let mut group = c.benchmark_group("engine");
    group.sample_size(20);
    let cases = [
        ("pipeline", pipeline()),
        ("composed", reference("composed")),
        ("bucketed", reference("bucketed")),
        ("staged-fifo", reference("staged-fifo")),
    ];
    for (name, case) in cases {
        group.throughput(Throughput::Elements(case.plan.microbatches.len() as u64));
        group.bench_function(format!("{name}/bare"), |b| b.iter(|| case.run(false)));
        group.bench_function(format!("{name}/metrics"), |b| b.iter(|| case.run(true)));
    }
    group.finish();
}

criterion_group!(benches, engine);
criterion_main!(benches);
