//! Work, a backend whose every step is scripted, and a recorder, shared by the tests of the driver.
#![allow(dead_code, reason = "each test file uses its part")]

use exec::backend::{
    ApplyJob, Backend, Copier, CopyJob, DrafterWorker, Job, TargetWorker, WorkError,
};
use exec::driver::{Observer, ObserverError};
use exec::error::WorkerId;
use shared::core::{Action, Core, Event, Outcome, check};
use shared::draw::Seed;
use shared::id::{BucketId, Bytes, DrafterId, MicrobatchId, StepId, TargetId};
use shared::plan::{
    Edges, FormationBuilder, MixRule, OrderSpec, Ordering as PlanOrder, Plan, Tail,
};
use shared::policy::{Assignment, Policy, Queue};
use shared::record::{Record, replay};
use shared::time::{Span, Time};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Microbatches a drafter accumulates in one optimizer step.
pub(crate) const GRAD_ACCUM: u32 = 2;
/// Buckets of the work.
pub(crate) const BUCKETS: u8 = 3;

/// A plan of `count` microbatches, spread evenly over the buckets.
pub(crate) fn plan_for(policy: &Policy, count: usize) -> Arc<Plan> {
    let edges = Edges::given(vec![100, 200, 300]).unwrap();
    let mut builder = FormationBuilder::new(edges, Bytes(1_000));
    for row in 0..count {
        let bucket = BucketId((row % usize::from(BUCKETS)) as u8);
        builder
            .push(bucket, 2, 50 + 100 * u32::from(bucket.0))
            .unwrap();
    }
    let composed = policy.queue == Queue::Composed;
    let spec = OrderSpec {
        ordering: if composed {
            PlanOrder::Composed(policy.fill)
        } else {
            PlanOrder::Shuffled
        },
        drafters: policy.drafters,
        grad_accum: GRAD_ACCUM,
        tail: Tail::Short,
        mix: MixRule {
            step_min: policy
                .mix_step_min
                .min(policy.drafters as u8 * GRAD_ACCUM as u8)
                .min(BUCKETS),
            window_min: 0,
        },
        assign: composed && policy.assignment == Assignment::Fixed,
        train_cost: vec![Span::from_ms(1); usize::from(BUCKETS)],
        seed: Seed(5),
    };
    Arc::new(Plan::order(&builder.build().unwrap(), &spec))
}

pub(crate) fn core(plan: &Arc<Plan>, policy: &Policy) -> Core {
    Core::new(Arc::clone(plan), policy.clone(), GRAD_ACCUM, Seed(1))
}

/// Keeps all records, and checks the core's invariants after each.
pub(crate) struct Recorder {
    pub(crate) records: Vec<Record>,
    start: Core,
    pub(crate) last: Core,
}

impl Recorder {
    pub(crate) fn new(core: &Core) -> Self {
        Self {
            records: Vec::new(),
            start: core.clone(),
            last: core.clone(),
        }
    }

    /// How often each microbatch became part of the weights: trained, and not by a drafter that was lost before the step.
    pub(crate) fn committed(&self) -> BTreeMap<MicrobatchId, usize> {
        let mut accumulated: BTreeMap<DrafterId, Vec<MicrobatchId>> = BTreeMap::new();
        let mut committed = BTreeMap::new();
        for record in &self.records {
            match record.event {
                Event::TrainEnded {
                    drafter,
                    microbatch,
                    outcome: Outcome::Done,
                } => {
                    accumulated.entry(drafter).or_default().push(microbatch);
                }
                Event::DrafterLost(drafter) => {
                    accumulated.remove(&drafter);
                }
                Event::StepApplied { .. } => {
                    for id in std::mem::take(&mut accumulated).into_values().flatten() {
                        *committed.entry(id).or_insert(0) += 1;
                    }
                }
                _ => {}
            }
        }
        assert!(
            accumulated.is_empty(),
            "no gradient is left over: {accumulated:?}"
        );
        committed
    }

    /// All microbatches became part of the weights once.
    pub(crate) fn assert_complete(&self) {
        let all =
            (0..self.start.plan().microbatches.len()).map(|id| (MicrobatchId::from_index(id), 1));
        assert_eq!(self.committed(), all.collect());
    }

    /// The events alone cause the same orders again.
    pub(crate) fn assert_replays(&self) {
        let mut core = self.start.clone();
        replay(&mut core, &self.records, |_, _, _| {}).unwrap_or_else(|d| panic!("{d}"));
    }
}

impl Observer for Recorder {
    fn on_record(
        &mut self,
        at: Time,
        event: &Event,
        actions: &[Action],
        core: &Core,
    ) -> Result<(), ObserverError> {
        check(core)?;
        self.records.push(Record {
            at,
            event: *event,
            actions: actions.to_vec(),
        });
        self.last = core.clone();
        Ok(())
    }
}

/// What a step of a scripted backend does, given who does it and on what.
pub(crate) type Step<Who> = Box<dyn Fn(Who, MicrobatchId) -> Result<(), WorkError> + Send + Sync>;

/// What an optimizer step does, given who leads it, which it is, and its members.
pub(crate) type Apply =
    Box<dyn Fn(DrafterId, StepId, &[DrafterId]) -> Result<(), WorkError> + Send + Sync>;

/// A backend whose every step is a closure, and that counts hidden states and threads alive.
pub(crate) struct Scripted {
    pub(crate) forward: Step<TargetId>,
    pub(crate) copy: Step<WorkerId>,
    pub(crate) train: Step<DrafterId>,
    pub(crate) apply: Apply,
    pub(crate) start: Box<dyn Fn(WorkerId) -> Result<(), WorkError> + Send + Sync>,
    pub(crate) alive: Arc<AtomicUsize>,
    pub(crate) workers: Arc<AtomicUsize>,
}

impl Default for Scripted {
    fn default() -> Self {
        Self {
            forward: Box::new(|_, _| Ok(())),
            copy: Box::new(|_, _| Ok(())),
            train: Box::new(|_, _| Ok(())),
            apply: Box::new(|_, _, _| Ok(())),
            start: Box::new(|_| Ok(())),
            alive: Arc::default(),
            workers: Arc::default(),
        }
    }
}

/// Counts itself while it lives.
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Hand {
    script: Arc<Scripted>,
    worker: WorkerId,
    _alive: Counted,
}

/// The backend as the driver takes it.
pub(crate) struct Stage(pub(crate) Arc<Scripted>);

impl Stage {
    fn hand(&self, worker: WorkerId) -> Result<Box<Hand>, WorkError> {
        (self.0.start)(worker)?;
        Ok(Box::new(Hand {
            script: Arc::clone(&self.0),
            worker,
            _alive: Counted::new(&self.0.workers),
        }))
    }
}

impl Backend for Stage {
    type Hidden = Counted;

    fn name(&self) -> &'static str {
        "scripted"
    }

    /// Nothing takes any time but the polls that some policies ask for.
    fn speedup(&self) -> f64 {
        1_000.0
    }

    fn target(&self, id: TargetId) -> Result<Box<dyn TargetWorker<Counted>>, WorkError> {
        Ok(self.hand(WorkerId::Target(id))?)
    }

    fn drafter(&self, id: DrafterId) -> Result<Box<dyn DrafterWorker<Counted>>, WorkError> {
        Ok(self.hand(WorkerId::Drafter(id))?)
    }

    fn copier(&self, end: WorkerId) -> Result<Box<dyn Copier<Counted>>, WorkError> {
        Ok(self.hand(end)?)
    }
}

impl TargetWorker<Counted> for Hand {
    fn forward(&mut self, job: Job) -> Result<Counted, WorkError> {
        let WorkerId::Target(id) = self.worker else {
            panic!("forwards are run by targets")
        };
        (self.script.forward)(id, job.microbatch)?;
        Ok(Counted::new(&self.script.alive))
    }
}

impl Copier<Counted> for Hand {
    fn copy(&mut self, job: CopyJob, _: &Counted) -> Result<Counted, WorkError> {
        (self.script.copy)(self.worker, job.microbatch)?;
        Ok(Counted::new(&self.script.alive))
    }
}

impl DrafterWorker<Counted> for Hand {
    fn train(&mut self, job: Job, _: StepId, _: &Counted) -> Result<(), WorkError> {
        let WorkerId::Drafter(id) = self.worker else {
            panic!("training is done by drafters")
        };
        (self.script.train)(id, job.microbatch)
    }

    fn apply(&mut self, job: ApplyJob, members: &[DrafterId]) -> Result<(), WorkError> {
        let WorkerId::Drafter(id) = self.worker else {
            panic!("optimizer steps are led by drafters")
        };
        (self.script.apply)(id, job.step, members)
    }
}
