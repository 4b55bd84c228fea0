//! One simulation from its resolved description to its numbers.

use crate::bound::Bound;
use crate::course::Course;
use crate::courses::Courses;
use crate::engine::{End, Observe};
use crate::lengths::unit;
use crate::links::{Links, MissingLink};
use crate::memory::{Memory, Overflow};
use crate::service::{ServiceTimes, train_costs};
use crate::spec::{Buckets, Costs, Fault, Hardware, Lengths, Model, Training, Workload};
use crate::stats::WarmUp;
use shared::core::{Action, Core, Event};
use shared::draw::{Seed, Stream};
use shared::id::BucketId;
use shared::metrics::{Detail, Metrics};
use shared::plan::{
    Edges, EdgesError, FormError, FormSpec, Formation, FormationBuilder, MixRule, OrderError,
    OrderSpec, Ordering, Plan,
};
use shared::policy::{Assignment, Policy, PolicyError, Queue, RunFacts};
use shared::time::{Span, Time};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// One point of a scenario: no ranges left, one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Decides everything random.
    pub seed: Seed,
    /// The samples.
    pub workload: Workload,
    /// The user's training parameters.
    pub training: Training,
    /// Sizes of target, drafter and hidden states.
    pub model: Model,
    /// The box.
    pub hardware: Hardware,
    /// What work costs.
    pub costs: Costs,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// How work is dispatched.
    pub policy: Policy,
}

/// Why a point cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// No buckets.
    #[error("workload.buckets: {0}")]
    Edges(#[from] EdgesError),
    /// No microbatches.
    #[error("workload: {0}")]
    Form(#[from] FormError),
    /// No order.
    #[error("policy: {0}")]
    Order(#[from] OrderError),
    /// A policy that cannot work.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A transport that the box does not have.
    #[error(transparent)]
    Link(#[from] MissingLink),
    /// More workers than GPUs.
    #[error(
        "policy.targets: {targets} target + {drafters} drafter workers need {} GPUs, hardware.gpus is {gpus}; lower the split, raise hardware.gpus, or say in hardware.sharing how workers that share a GPU slow each other",
        targets + drafters
    )]
    Gpus {
        /// Target workers.
        targets: u16,
        /// Drafter workers.
        drafters: u16,
        /// GPUs in the box.
        gpus: u16,
    },
    /// A cost table for other buckets.
    #[error("costs.{stage}: {rows} rows for {buckets} buckets; give one row a bucket")]
    Table {
        /// Which stage.
        stage: &'static str,
        /// Rows given.
        rows: usize,
        /// Buckets there are.
        buckets: usize,
    },
    /// A fault on a worker that the split does not have.
    #[error("fault: worker {worker} does not exist in a split of {targets}+{drafters}")]
    Fault {
        /// Who.
        worker: String,
        /// Target workers.
        targets: u16,
        /// Drafter workers.
        drafters: u16,
    },
}

/// The work of a point, the same for all policies: microbatches and what they cost.
#[derive(Clone, Debug)]
pub struct Work {
    /// The microbatches.
    pub formation: Arc<Formation>,
    /// What they cost.
    pub service: Arc<ServiceTimes>,
    /// Expected drafter time of each bucket's largest microbatch. (ns)
    pub train_costs: Arc<Vec<Span>>,
    /// What a check of the policy must know of it.
    pub facts: RunFacts,
    plans: Plans,
    pub(crate) courses: Courses,
}

/// Orders of one formation, so that points whose policies order the work alike share one plan.
#[derive(Clone, Debug, Default)]
struct Plans(Arc<Mutex<HashMap<OrderSpec, Arc<Plan>>>>);

impl Plans {
    /// The plan that `spec` makes of `formation`; which of two threads makes it first changes nothing.
    fn get(&self, formation: &Formation, spec: &OrderSpec) -> Arc<Plan> {
        let known = || self.0.lock().expect("no thread panicked");
        if let Some(plan) = known().get(spec) {
            return Arc::clone(plan);
        }
        let plan = Arc::new(Plan::order(formation, spec));
        Arc::clone(known().entry(spec.clone()).or_insert(plan))
    }
}

/// What a simulation gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Its numbers; their steady part begins where the warm-up ends.
    pub metrics: Metrics,
    /// Where the warm-up ends; `None` for a run of fewer than 50 optimizer steps, whose first tenth is left out instead.
    pub warm_up: Option<WarmUp>,
    /// Standard error of the throughput over the throughput, as far as one run tells it.
    pub relative_error: Option<f64>,
    /// What no policy could exceed.
    pub bound: Bound,
    /// Memory by place at its peak.
    pub memory: Memory,
    /// Places whose memory does not suffice.
    pub overflow: Vec<Overflow>,
}

/// Forms the microbatches of a point and draws what they cost.
pub fn prepare(point: &Resolved, lengths: &[u32]) -> Result<Work, RunError> {
    let formation = form(point, lengths)?;
    for (stage, cost) in [
        ("target", &point.costs.target),
        ("drafter", &point.costs.drafter),
    ] {
        let buckets = formation.edges.len();
        if let crate::spec::StageCost::Table(rows) = cost
            && rows.len() != buckets
        {
            return Err(RunError::Table {
                stage,
                rows: rows.len(),
                buckets,
            });
        }
    }
    let service = ServiceTimes::draw(&point.costs, &formation, point.seed);
    let train_costs = train_costs(&point.costs, &formation);
    let facts = RunFacts::of(&formation.microbatches, point.training.grad_accum);
    Ok(Work {
        facts,
        formation: Arc::new(formation),
        service: Arc::new(service),
        train_costs: Arc::new(train_costs),
        plans: Plans::default(),
        courses: Courses::default(),
    })
}

/// The edges of a workload's buckets.
pub fn edges(buckets: &Buckets, lengths: &[u32]) -> Result<Edges, EdgesError> {
    match buckets {
        Buckets::Edges(edges) => Edges::given(edges.clone()),
        Buckets::Quantile(count) => Edges::quantile(lengths, usize::from(*count)),
        Buckets::Optimal(count) => Edges::optimal(lengths, usize::from(*count)),
    }
}

fn form(point: &Resolved, lengths: &[u32]) -> Result<Formation, RunError> {
    let edges = edges(&point.workload.buckets, lengths)?;
    let bytes_per_token = point.model.bytes_per_token();
    if let Lengths::Microbatches {
        count,
        samples_each,
        mix,
        tokens,
    } = &point.workload.lengths
    {
        let mut builder = FormationBuilder::new(edges, bytes_per_token);
        for epoch in 0..point.workload.epochs {
            if epoch > 0 {
                builder.next_epoch()?;
            }
            for i in 0..u64::from(*count) {
                let mut left = unit(point.seed.derive(epoch.into()).draw(Stream::Length, i));
                let hit = mix.iter().position(|share| {
                    left -= share;
                    left < 0.0
                });
                let bucket = hit.unwrap_or(mix.len() - 1);
                builder.push(BucketId::from_index(bucket), *samples_each, tokens[bucket])?;
            }
        }
        return Ok(builder.build()?);
    }
    Ok(Formation::form(
        lengths,
        &FormSpec {
            edges,
            limits: point.training.limits(),
            over_long: point.workload.over_long,
            epochs: point.workload.epochs,
            bytes_per_token,
            seed: point.seed,
        },
    )?)
}

/// The order in which a point's policy wants its work.
pub fn order_spec(point: &Resolved, train_costs: &[Span]) -> OrderSpec {
    let policy = &point.policy;
    let composed = policy.queue == Queue::Composed;
    OrderSpec {
        ordering: if composed {
            Ordering::Composed(policy.fill)
        } else {
            Ordering::Shuffled
        },
        drafters: policy.drafters,
        grad_accum: point.training.grad_accum,
        tail: policy.tail,
        mix: if composed {
            MixRule {
                step_min: policy.mix_step_min,
                window_min: policy.mix_window_min,
            }
        } else {
            MixRule::default()
        },
        assign: composed && policy.assignment == Assignment::Fixed,
        train_cost: train_costs.to_vec(),
        seed: point.seed,
    }
}

/// The plan of a point, checked against its policy and its box.
pub fn plan(point: &Resolved, work: &Work) -> Result<Arc<Plan>, RunError> {
    let policy = &point.policy;
    let (targets, drafters) = (policy.targets, policy.drafters);
    let spec = order_spec(point, &work.train_costs);
    policy.ensure(&work.facts)?;
    let is_apart = point.hardware.sharing.is_none();
    if is_apart && u32::from(targets) + u32::from(drafters) > u32::from(point.hardware.gpus) {
        return Err(RunError::Gpus {
            targets,
            drafters,
            gpus: point.hardware.gpus,
        });
    }
    for fault in &point.faults {
        let exists = match fault.worker {
            crate::spec::Worker::Target(t) => t.0 < targets,
            crate::spec::Worker::Drafter(d) => d.0 < drafters,
        };
        if !exists {
            let worker = fault.worker.to_string();
            return Err(RunError::Fault {
                worker,
                targets,
                drafters,
            });
        }
    }
    spec.check(work.formation.edges.len())?;
    Ok(work.plans.get(&work.formation, &spec))
}

/// Simulates a point; `observer` sees every record.
pub fn run(
    point: &Resolved,
    work: &Work,
    detail: Detail,
    observer: &mut impl Observe,
) -> Result<Outcome, RunError> {
    let plan = plan(point, work)?;
    let links = Links::new(&point.hardware, &point.policy)?;
    let course = Course::simulate(point, work, (&plan, links), detail, observer);
    Ok(course.conclude(point, work, &plan))
}

/// An observer that keeps nothing.
pub struct Nobody;

impl Observe for Nobody {
    fn record(&mut self, _at: Time, _event: &Event, _actions: &[Action], _core: &Core) {}
}
