//! A line of targets, hidden states that wait, and drafters, as queueing theory knows it: run through the real core.

use shared::core::{Action, Core, Event};
use shared::draw::{Seed, Stream};
use shared::id::{BucketId, Bytes};
use shared::metrics::{Detail, Meter, Metrics};
use shared::plan::{Edges, FormationBuilder, MixRule, OrderSpec, Ordering, Plan, Tail};
use shared::policy::{
    Admission, Barrier, Input, Placement, Policy, Queue, Release, Transport, preset,
};
use shared::time::{Span, Time};
use sim::spec::{Costs, Distribution, Formula, StageCost};
use sim::{Bound, FaultList, Links, Machine, ServiceTimes, simulate};
use std::sync::Arc;

/// The law of a stage's service times: means by bucket, in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Law {
    pub(crate) means_ms: Vec<f64>,
    pub(crate) distribution: Distribution,
    pub(crate) spread: f64,
}

impl Law {
    pub(crate) fn exponential(mean_ms: f64) -> Self {
        Self {
            means_ms: vec![mean_ms],
            distribution: Distribution::Exponential,
            spread: 0.0,
        }
    }

    pub(crate) fn constant(mean_ms: f64) -> Self {
        Self {
            means_ms: vec![mean_ms],
            distribution: Distribution::Deterministic,
            spread: 0.0,
        }
    }
}

/// One line. Targets never lack input; nothing travels.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) targets: (u16, Law),
    pub(crate) drafters: (u16, Law),
    /// Slots, or `None` for as many as it takes.
    pub(crate) slots: Option<u32>,
    pub(crate) admission: Admission,
    pub(crate) release: Release,
    /// Share of the microbatches that each bucket has.
    pub(crate) mix: Vec<f64>,
    /// Microbatches a drafter accumulates, whether all wait for one another then, and what a step takes.
    pub(crate) steps: Option<(u32, Barrier, Span)>,
    pub(crate) prefetch: u8,
    pub(crate) queue: Queue,
}

impl Line {
    /// N targets and M drafters with a store of so many slots, which an item leaves when it is taken; no optimizer steps.
    pub(crate) fn new(targets: (u16, Law), slots: Option<u32>, drafters: (u16, Law)) -> Self {
        Self {
            targets,
            drafters,
            slots,
            admission: Admission::Block,
            release: Release::Taken,
            mix: vec![1.0],
            steps: None,
            prefetch: 0,
            queue: Queue::Fifo,
        }
    }

    fn policy(&self, barrier: Barrier) -> Policy {
        Policy {
            targets: self.targets.0,
            drafters: self.drafters.0,
            input: Input::Shared,
            queue: self.queue,
            depth_total: self.slots,
            admission: self.admission,
            release: self.release,
            placement: Placement::Target,
            transport: Transport::Local,
            prefetch: self.prefetch,
            barrier,
            ..preset("bucketed").expect("a preset")
        }
    }
}

/// What a run gave.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) metrics: Metrics,
    /// When the last microbatch was trained.
    pub(crate) trained: Time,
    pub(crate) bound: Bound,
}

impl Run {
    /// Items a millisecond.
    pub(crate) fn throughput(&self) -> f64 {
        f64::from(self.metrics.microbatches) / self.trained.as_ns() as f64 * 1e6
    }
}

/// Runs `items` microbatches through the line.
pub(crate) fn run(line: &Line, items: u32, seed: Seed) -> Run {
    let buckets = line.mix.len() as u32;
    let edges = Edges::given((1..=buckets).collect()).expect("rising edges");
    let mut builder = FormationBuilder::new(edges, Bytes(1));
    for i in 0..items {
        let bucket = bucket_of(&line.mix, seed.draw(Stream::Length, i.into()));
        builder
            .push(BucketId::from_index(bucket), 1, bucket as u32 + 1)
            .expect("fits its bucket");
    }
    let formation = builder.build().expect("work");
    let (grad_accum, barrier, apply) = line.steps.unwrap_or((items, Barrier::None, Span::ZERO));
    let plan = Arc::new(Plan::order(
        &formation,
        &OrderSpec {
            ordering: Ordering::AsFormed,
            drafters: line.drafters.0,
            grad_accum,
            tail: Tail::Short,
            mix: MixRule::default(),
            assign: false,
            train_cost: vec![Span::ZERO; buckets as usize],
            seed,
        },
    ));
    let draw = |law: &Law| ServiceTimes::draw(&costs(law), &formation, seed);
    let forwards = draw(&line.targets.1).forwards(&plan);
    let service = ServiceTimes::given(forwards, draw(&line.drafters.1).trainings(&plan), apply);
    let mut core = Core::new(Arc::clone(&plan), line.policy(barrier), grad_accum, seed);
    let mut meter = Meter::new(&core, Detail::default());
    let mut trained = Time::ZERO;
    let machine = Machine {
        service: &service,
        links: Links::none(),
        devices: sim::Devices::none(),
        faults: FaultList::default(),
    };
    simulate(
        &mut core,
        machine,
        &mut |at: Time, event: &Event, actions: &[Action], core: &Core| {
            meter.observe(at, event, actions, core);
            if matches!(event, Event::TrainEnded { .. }) {
                trained = at;
            }
        },
    );
    let step = grad_accum.saturating_mul(line.drafters.0.into());
    let bound = Bound::of(&plan, &service, line.targets.0, line.drafters.0, step);
    Run {
        metrics: meter.finish(&core),
        trained,
        bound,
    }
}

fn bucket_of(mix: &[f64], word: u64) -> usize {
    let mut left = (word >> 11) as f64 / (1_u64 << 53) as f64;
    let hit = mix.iter().position(|share| {
        left -= share;
        left < 0.0
    });
    hit.unwrap_or(mix.len() - 1)
}

/// Costs of which both stages follow `law`; the caller takes the stage it wants.
fn costs(law: &Law) -> Costs {
    let rows = law.means_ms.iter().map(|&base_ms| Formula {
        base_ms,
        ..Formula::default()
    });
    let stage = if law.means_ms.len() == 1 {
        StageCost::Formula(Formula {
            base_ms: law.means_ms[0],
            ..Formula::default()
        })
    } else {
        StageCost::Table(rows.collect())
    };
    Costs {
        target: stage.clone(),
        drafter: stage,
        step_ms: 0.0,
        all_reduce_ms: 0.0,
        spread: law.spread,
        distribution: law.distribution,
    }
}
