//! Microbatches per second through the event loop and the real core, with and without metrics.

mod cases;

use cases::{pipeline, recorded, reference};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn engine(c: &mut Criterion) {
    let mut group = c.benchmark_group("engine");
    group.sample_size(20);
    let cases = [
        ("pipeline", pipeline(&recorded())),
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
