//! Real models on the CPU.
//!
//! Targets share one set of frozen weights. Each drafter has a replica of the drafter model and adds up the contributions of its
//! microbatches in the order in which it trains on them. An optimizer step adds the drafters' sums in drafter order, updates the
//! masters once and hands them to all replicas. So where the core fixes who trains on what, and in which order, two runs give the
//! same weights to the last bit, whatever their threads do.
//!
//! Drafters that are independent each have their own masters.
//!
//! Hidden states travel with the stamp of the target that computed them, and a drafter looks at them
//! before it trains on them ([`crate::checks`]).

pub(super) mod batches;
mod replica;

use super::{Backend, Copier, CopyJob, DrafterWorker, Job, TargetWorker, Trainer, WorkError};
use crate::checkpoint::Checkpoint;
use crate::checks::{Stamp, Stamped, Turns};
use crate::data::Dataset;
use crate::error::WorkerId;
use crate::model::{Drafter, HiddenStates, Target};
use crate::train::{BlockSpec, Objective, Optimizer, StepReport};
use batches::Batches;
use replica::{CpuDrafter, Replica};
use shared::core::Group;
use shared::id::{DrafterId, StepId, TargetId};
use shared::plan::Plan;
use shared::policy::{Barrier, Policy};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a run on the CPU works with.
#[derive(Debug)]
pub struct CpuSetup {
    /// The work; its sample ids are indices into `data`.
    pub plan: Arc<Plan>,
    /// The samples.
    pub data: Arc<Dataset>,
    /// The frozen target, capturing the layers that the drafter reads.
    pub target: Target,
    /// The drafter as it begins; its weights are the optimizer's masters.
    pub drafter: Drafter,
    /// Masters and moments, fresh or imported from a checkpoint.
    pub optimizer: Optimizer,
    /// How blocks are cut and weighted.
    pub blocks: BlockSpec,
    /// What is minimised. The target captures its last hidden state if that needs it.
    pub objective: Objective,
    /// One row of so many microbatches is computed again before it is trained on; 0: only the first
    /// microbatch of each bucket.
    pub recompute_every: u32,
    /// Anchors of a sample, at most.
    pub anchors_max: usize,
    /// Decides the anchors of each sample in each epoch.
    pub seed: u64,
    /// Hears of every optimizer step, before the core does.
    pub steps: Option<Sender<AppliedStep>>,
}

/// An optimizer step that was applied.
#[derive(Clone, Debug, PartialEq)]
pub struct AppliedStep {
    /// Which, as the core counts them.
    pub step: StepId,
    /// To whom.
    pub group: Group,
    /// What it did.
    pub report: StepReport,
}

/// The backend.
#[derive(Debug)]
pub struct Cpu {
    shared: Arc<Shared>,
}

/// What all drafters of a run share. Locks are never contended: the core lets nobody train while a step is applied.
#[derive(Debug)]
struct Shared {
    batches: Batches,
    replicas: Vec<Mutex<Replica>>,
    /// One for all drafters, or one each.
    optimizers: Vec<Mutex<Optimizer>>,
    steps: Mutex<Option<Sender<AppliedStep>>>,
    objective: Objective,
    target: Target,
    turns: Mutex<Turns>,
}

impl Cpu {
    /// A backend for the policy's workers.
    ///
    /// # Errors
    /// When the optimizer's masters do not fit the drafter, or the plan has samples that the data have not.
    pub fn new(setup: CpuSetup, policy: &Policy) -> Result<Self, WorkError> {
        let CpuSetup {
            plan,
            data,
            target,
            mut drafter,
            optimizer,
            ..
        } = setup;
        let missing = plan.samples.iter().find(|id| id.index() >= data.len());
        if let Some(id) = missing {
            let held = data.len();
            return Err(WorkError::Fatal(format!(
                "sample {id} is planned, the data hold {held}; plan from these data"
            )));
        }
        drafter.set_weights(optimizer.weights()).map_err(fatal)?;
        let masters = match policy.barrier {
            Barrier::All => 1,
            Barrier::None => policy.drafters.into(),
        };
        let replica = |_| Mutex::new(Replica::new(drafter.clone()));
        let shared = Shared {
            batches: Batches {
                plan,
                data,
                blocks: setup.blocks,
                anchors_max: setup.anchors_max,
                seed: setup.seed,
            },
            replicas: (0..policy.drafters).map(replica).collect(),
            optimizers: (0..masters)
                .map(|_| Mutex::new(optimizer.clone()))
                .collect(),
            steps: Mutex::new(setup.steps),
            target: target.with_last_hidden(setup.objective.needs_last_hidden()),
            objective: setup.objective,
            turns: Mutex::new(Turns::new(setup.recompute_every)),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }
}

impl Shared {
    fn optimizer(&self, drafter: DrafterId) -> MutexGuard<'_, Optimizer> {
        // One for all is everybody's.
        let own = self
            .optimizers
            .get(drafter.index())
            .filter(|_| self.optimizers.len() > 1);
        lock(own.unwrap_or(&self.optimizers[0]))
    }

    fn is_one_for_all(&self) -> bool {
        self.optimizers.len() == 1
    }
}

/// Whoever panicked with a lock held is lost, and what it left behind is not used any more.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fatal(error: impl std::fmt::Display) -> WorkError {
    WorkError::Fatal(error.to_string())
}

impl Trainer for Cpu {
    fn checkpoint(&self, drafter: DrafterId, run: String) -> Result<Checkpoint, WorkError> {
        let optimizer = self.shared.optimizer(drafter);
        Ok(Checkpoint {
            step: optimizer.step(),
            config: lock(&self.shared.replicas[drafter.index()])
                .config()
                .clone(),
            trainer: optimizer.export(),
            run,
        })
    }

    fn steps(&self, drafter: DrafterId) -> u64 {
        self.shared.optimizer(drafter).step()
    }
}

impl Backend for Cpu {
    type Hidden = Stamped;

    fn name(&self) -> &'static str {
        "cpu"
    }

    fn target(&self, _: TargetId) -> Result<Box<dyn TargetWorker<Stamped>>, WorkError> {
        Ok(Box::new(CpuTarget {
            shared: Arc::clone(&self.shared),
        }))
    }

    fn drafter(&self, id: DrafterId) -> Result<Box<dyn DrafterWorker<Stamped>>, WorkError> {
        Ok(Box::new(CpuDrafter::new(id, Arc::clone(&self.shared))))
    }

    fn copier(&self, _: WorkerId) -> Result<Box<dyn Copier<Stamped>>, WorkError> {
        Ok(Box::new(CpuCopier))
    }
}

struct CpuTarget {
    shared: Arc<Shared>,
}

impl TargetWorker<Stamped> for CpuTarget {
    fn forward(&mut self, job: Job) -> Result<Stamped, WorkError> {
        let batch = self.shared.batches.batch(job.microbatch).map_err(fatal)?;
        let target = &self.shared.target;
        Ok(Stamped {
            states: target.forward(&batch).map_err(fatal)?,
            stamp: Stamp::of(target, &batch),
        })
    }
}

/// Copies for real: places of a CPU run are all in host memory, and hold their own bytes all the same.
struct CpuCopier;

impl Copier<Stamped> for CpuCopier {
    fn copy(&mut self, _: CopyJob, hidden: &Stamped) -> Result<Stamped, WorkError> {
        let Stamped { states, stamp } = hidden;
        let last_hidden = states.last_hidden.as_ref().map(|tensor| tensor.copy());
        Ok(Stamped {
            states: HiddenStates {
                features: states.features.copy().map_err(fatal)?,
                last_hidden: last_hidden.transpose().map_err(fatal)?,
            },
            stamp: stamp.clone(),
        })
    }
}
