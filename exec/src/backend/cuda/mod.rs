//! Real models on NVIDIA GPUs.
//!
//! Workers of one GPU share the target's frozen weights, and each has a stream and working memory of its own. Hidden states stay in slots
//! that are taken at start, as many as the policy's caps allow at worst; what a step, a copy or a forward needs is taken at start too, so
//! nothing is allocated while the run goes on. A worker says that a piece of work is done when its stream has come that far; the event
//! behind it goes with the hidden states, and whoever reads them has his stream wait for it.
//!
//! Hidden states travel with the stamp of what they were computed from, and are looked at before they are trained on (`checks`).
//!
//! Each drafter has masters, moments and gradients of its own. An optimizer step adds the members' gradients in their order to the first
//! member's, updates it once and copies its weights to the others (`sums`). Drafters that are independent update themselves.
//!
//! Before the first copy between two GPUs, known numbers are sent each way ([`crate::cuda::links`]); pairs that fail go through the host.

mod checks;
mod copier;
mod hidden;
mod memory;
mod placing;
mod sums;
mod workers;

use super::cpu::{AppliedStep, CpuSetup, batches::Batches};
use super::{Backend, Copier, DrafterWorker, TargetWorker, Trainer, WorkError};
use crate::checkpoint::Checkpoint;
use crate::checks::{Stamped, Turns};
use crate::config::DevicesSection;
use crate::cuda::drafter::{AttentionKernels, CudaDrafter, DrafterOptions, Frozen};
use crate::cuda::links::{Links, Wires};
use crate::cuda::target::{
    AttentionChoice, Captures, Kept, TargetOptions, TargetShape, TargetWeights, WeightSource,
};
use crate::cuda::{CudaError, Gpu, Tuning};
use crate::error::WorkerId;
use crate::model::{DrafterConfig, Tensors};
use crate::store::Place;
use checks::Recomputer;
use copier::CudaCopier;
use hidden::{Described, DeviceSlots, HostSlots};
use memory::{Largest, Sizes, SlotCounts, Work};
use placing::Placing;
use shared::id::{DrafterId, TargetId};
use shared::policy::{Barrier, Placement, Policy, Transport};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sums::Sums;
use workers::{CudaTargetWorker, CudaTrainer};

pub use hidden::CudaHidden;
pub use memory::DeviceMemory;

/// The backend.
#[derive(Debug)]
pub struct Cuda {
    shared: Arc<Shared>,
    memory: Vec<DeviceMemory>,
    notes: Vec<String>,
}

/// Numbers that a probe sends each way at a time: 16 MiB.
const PROBE: usize = 4 << 20;

/// What all workers of a run share.
#[derive(Debug)]
struct Shared {
    batches: Batches,
    /// Computes rows again, to compare them with what arrived.
    recomputer: Mutex<Recomputer>,
    /// When it does.
    turns: Mutex<Turns>,
    devices: Vec<Device>,
    placing: Placing,
    host: Option<HostSlots>,
    transport: Transport,
    placement: Placement,
    /// How the GPUs reach each other; none for a single one.
    links: Option<Links>,
    sums: Sums,
    captures: Captures,
    hidden_size: usize,
    largest: Largest,
    drafter_config: DrafterConfig,
    options: DrafterOptions,
    barrier: Barrier,
    /// Masters and moments as the run begins.
    begin: (Tensors, u64),
    /// Each made on its own thread. Locks are never contended: the core lets nobody train while a step is applied.
    drafters: Vec<Mutex<Option<CudaDrafter>>>,
    steps: Mutex<Option<Sender<AppliedStep>>>,
}

/// One GPU and what its workers share.
#[derive(Debug)]
struct Device {
    gpu: Arc<Gpu>,
    weights: Arc<TargetWeights>,
    slots: DeviceSlots,
}

impl Cuda {
    /// Takes memory for the policy's workers on the GPUs that `devices` names or, if it is empty, on those that are there; loads the
    /// target's weights, and probes the links between the GPUs.
    ///
    /// # Errors
    /// No GPU or driver, sizes that the kernels do not cover, devices that do not fit the policy, or not enough memory; nothing is kept
    /// then.
    pub fn new(
        setup: CpuSetup,
        policy: &Policy,
        devices: &DevicesSection,
    ) -> Result<Self, WorkError> {
        let count = Gpu::count().map_err(fatal)?;
        let placing = Placing::new(policy, count, devices).map_err(WorkError::Fatal)?;
        let gpus: Vec<Arc<Gpu>> = placing
            .ordinals
            .iter()
            .map(|&ordinal| Gpu::open(ordinal))
            .collect::<Result<_, _>>()
            .map_err(fatal)?;
        let target = TargetShape::of(setup.target.config()).map_err(fatal)?;
        let captures = Captures {
            layers: setup.target.captured().to_vec(),
            last_hidden: setup.objective.needs_last_hidden(),
        };
        let largest = Largest::of(&setup.plan);
        let drafter_config = setup.drafter.config().clone();
        let options = DrafterOptions {
            limits: largest.limits(setup.anchors_max, drafter_config.block_size),
            objective: setup.objective,
            settings: *setup.optimizer.settings(),
            schedule: *setup.optimizer.schedule(),
            tuning: Tuning::Heuristic,
            attention: AttentionKernels::Auto,
        };
        let sizes = Sizes {
            target: &target,
            tied: setup.target.config().tie_word_embeddings,
            captures: &captures,
            drafter: &drafter_config,
            largest,
            limits: options.limits,
        };
        let slots =
            SlotCounts::new(policy, &Work::of(&setup.plan), &placing).map_err(WorkError::Fatal)?;
        let memory = counted(&gpus, &sizes, &placing, &slots)?;
        let elements = sizes.slot_elements();
        let devices = gpus
            .iter()
            .enumerate()
            .map(|(at, gpu)| {
                let has_targets = placing.targets.contains(&at);
                let kept = Kept {
                    layers: if has_targets {
                        captures.depth(target.layers)
                    } else {
                        0
                    },
                    head: placing.drafters.contains(&at),
                };
                let source = WeightSource::Tensors(setup.target.weights());
                Ok(Device {
                    weights: TargetWeights::new(gpu, &target, source, kept)?,
                    slots: DeviceSlots::new(gpu, slots.gpus[at], elements)?,
                    gpu: Arc::clone(gpu),
                })
            })
            .collect::<Result<Vec<Device>, CudaError>>()
            .map_err(fatal)?;
        let host = match (slots.host, policy.transport) {
            (0, _) => None,
            (count, Transport::HostPageable) => Some(HostSlots::pageable(count, elements)),
            (count, _) => Some(HostSlots::pinned(&gpus[0], count, elements).map_err(fatal)?),
        };
        let mut notes = vec![placed(&placing)];
        let links = surveyed(&gpus).map_err(fatal)?;
        if let Some(links) = &links {
            notes.extend(links.complaints(&placing.ordinals));
        }
        let mut note = |line| notes.push(line);
        let sums = Sums::new(policy, &placing, &gpus, links.as_ref(), &mut note).map_err(fatal)?;
        let begin = (setup.optimizer.export(), setup.optimizer.step());
        let first = placing.targets[0];
        let recomputer = Recomputer::new(
            &gpus[first],
            first,
            &devices[first].weights,
            target_options(&captures, &largest),
            sizes.rows_again(&placing),
        )
        .map_err(fatal)?;
        Ok(Self {
            memory,
            notes,
            shared: Arc::new(Shared {
                recomputer: Mutex::new(recomputer),
                turns: Mutex::new(Turns::new(setup.recompute_every)),
                devices,
                host,
                transport: policy.transport,
                placement: policy.placement,
                links,
                sums,
                hidden_size: target.hidden,
                captures,
                largest,
                drafter_config,
                options,
                barrier: policy.barrier,
                begin,
                drafters: (0..policy.drafters).map(|_| Mutex::new(None)).collect(),
                placing,
                steps: Mutex::new(setup.steps.clone()),
                batches: Batches::of(setup),
            }),
        })
    }

    /// What the user should know before the run begins: who is where, which links do not work as they should, who sums gradients.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What the run takes of each GPU, and what was free before.
    pub fn memory(&self) -> &[DeviceMemory] {
        &self.memory
    }

    /// Puts hidden states that were computed elsewhere into a slot of drafter `id`'s GPU, rounded to bf16. They are looked at like any
    /// others before they are trained on.
    ///
    /// # Errors
    /// States larger than a slot; no slot free; failures of the device.
    pub fn receive(&self, id: DrafterId, stamped: &Stamped) -> Result<CudaHidden, WorkError> {
        let device = self.shared.device_of(WorkerId::Drafter(id));
        let Stamped { states, stamp } = stamped;
        let (rows, tokens, features) = states.features.dims3().map_err(fatal)?;
        let last = match &states.last_hidden {
            Some(last) => last.dim(2).map_err(fatal)?,
            None => 0,
        };
        let mut values: Vec<half::bf16> = Vec::new();
        for tensor in [Some(&states.features), states.last_hidden.as_ref()]
            .into_iter()
            .flatten()
        {
            let narrow = tensor.to_dtype(candle_core::DType::BF16).map_err(fatal)?;
            let part: Vec<half::bf16> = narrow
                .flatten_all()
                .and_then(|t| t.to_vec1())
                .map_err(fatal)?;
            values.extend(part);
        }
        let at = self.shared.devices[device].slots.take()?;
        let stream = crate::cuda::Stream::new(&self.shared.devices[device].gpu).map_err(fatal)?;
        stream
            .upload(&values, workers::on_device(&at)?)
            .map_err(fatal)?;
        let ready = stream.record().map_err(fatal)?;
        ready.synchronize().map_err(fatal)?;
        Ok(CudaHidden {
            at,
            elements: values.len(),
            ready,
            said: Arc::new(Described {
                rows,
                tokens,
                widths: [features, last],
                stamp: stamp.clone(),
            }),
        })
    }
}

/// Which workers are on which GPU, in words.
fn placed(placing: &Placing) -> String {
    let on = |(at, ordinal): (usize, &usize)| {
        let (targets, drafters) = (placing.targets_on(at), placing.drafters_on(at));
        let of = |count: usize, what: &str| match count {
            0 => None,
            1 => Some(format!("1 {what}")),
            count => Some(format!("{count} {what}s")),
        };
        let workers: Vec<String> = [of(targets, "target"), of(drafters, "drafter")]
            .into_iter()
            .flatten()
            .collect();
        format!("GPU {ordinal}: {}", workers.join(" and "))
    };
    let all: Vec<String> = placing.ordinals.iter().enumerate().map(on).collect();
    all.join("; ")
}

/// How several GPUs reach each other.
fn surveyed(gpus: &[Arc<Gpu>]) -> Result<Option<Links>, CudaError> {
    if gpus.len() < 2 {
        return Ok(None);
    }
    let wires = Wires::new(gpus, PROBE)?;
    Ok(Some(Links::survey(&wires, PROBE)))
}

/// What each GPU needs.
///
/// # Errors
/// A GPU that has less.
fn counted(
    gpus: &[Arc<Gpu>],
    sizes: &Sizes<'_>,
    placing: &Placing,
    slots: &SlotCounts,
) -> Result<Vec<DeviceMemory>, WorkError> {
    let of = |(at, gpu): (usize, &Arc<Gpu>)| -> Result<DeviceMemory, CudaError> {
        Ok(DeviceMemory {
            gpu: gpu.ordinal(),
            name: gpu.name().to_owned(),
            free: gpu.memory()?.0,
            parts: sizes.parts(at, placing, slots)?,
        })
    };
    let memory: Vec<DeviceMemory> = gpus
        .iter()
        .enumerate()
        .map(of)
        .collect::<Result<_, _>>()
        .map_err(fatal)?;
    match memory.iter().find(|m| m.needed() > m.free) {
        Some(short) => Err(WorkError::Fatal(format!(
            "not enough memory: {short}; set a smaller token budget, fewer slots (policy.depth_total) or fewer workers"
        ))),
        None => Ok(memory),
    }
}

impl Shared {
    fn device_of(&self, worker: WorkerId) -> usize {
        match worker {
            WorkerId::Target(id) => self.placing.targets[id.index()],
            WorkerId::Drafter(id) => self.placing.drafters[id.index()],
        }
    }

    /// The GPU of a place; `None` for the host.
    fn gpu_at(&self, place: Place) -> Option<usize> {
        match place {
            Place::Target(id) => Some(self.placing.targets[id.index()]),
            Place::Drafter(id) => Some(self.placing.drafters[id.index()]),
            Place::Host => None,
        }
    }

    /// Whether copies from one GPU to the other may go straight.
    fn is_direct(&self, from: usize, to: usize) -> bool {
        let Some(links) = &self.links else {
            return true;
        };
        links.is_direct(from, to)
    }

    fn per_token(&self) -> usize {
        self.captures.elements_per_token(self.hidden_size)
    }

    fn target_options(&self) -> TargetOptions {
        target_options(&self.captures, &self.largest)
    }

    /// The drafter whose masters are the run's: the first of all, or each its own.
    fn with_drafter<T>(
        &self,
        drafter: DrafterId,
        work: impl FnOnce(&CudaDrafter) -> Result<T, WorkError>,
    ) -> Option<Result<T, WorkError>> {
        let first = match self.barrier {
            Barrier::All => 0,
            Barrier::None => drafter.index(),
        };
        lock(&self.drafters[first]).as_ref().map(work)
    }
}

fn target_options(captures: &Captures, largest: &Largest) -> TargetOptions {
    TargetOptions {
        captures: captures.clone(),
        tokens_max: largest.tokens,
        width_max: largest.width,
        tuning: Tuning::Timed,
        attention: AttentionChoice::Fastest,
    }
}

/// Whoever panicked with a lock held is lost, and what it left behind is not used any more.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fatal(error: impl std::fmt::Display) -> WorkError {
    WorkError::Fatal(error.to_string())
}

impl Backend for Cuda {
    type Hidden = CudaHidden;

    fn name(&self) -> &'static str {
        "cuda"
    }

    fn target(&self, id: TargetId) -> Result<Box<dyn TargetWorker<CudaHidden>>, WorkError> {
        Ok(Box::new(CudaTargetWorker::new(
            id,
            Arc::clone(&self.shared),
        )?))
    }

    fn drafter(&self, id: DrafterId) -> Result<Box<dyn DrafterWorker<CudaHidden>>, WorkError> {
        Ok(Box::new(CudaTrainer::new(id, Arc::clone(&self.shared))?))
    }

    fn copier(&self, end: WorkerId) -> Result<Box<dyn Copier<CudaHidden>>, WorkError> {
        Ok(Box::new(CudaCopier::new(end, Arc::clone(&self.shared))?))
    }
}

impl Trainer for Cuda {
    fn checkpoint(&self, drafter: DrafterId, run: String) -> Result<Checkpoint, WorkError> {
        let exported = self.shared.with_drafter(drafter, |drafter| {
            let state = drafter.export().map_err(fatal)?;
            Ok((state, drafter.step()))
        });
        // Before its thread has made it, a drafter is as the run began.
        let (trainer, step) = exported.unwrap_or_else(|| Ok(self.shared.begin.clone()))?;
        Ok(Checkpoint {
            step,
            config: self.shared.drafter_config.clone(),
            trainer,
            run,
        })
    }

    fn steps(&self, drafter: DrafterId) -> u64 {
        let step = self
            .shared
            .with_drafter(drafter, |drafter| Ok(drafter.step()));
        match step {
            Some(Ok(step)) => step,
            Some(Err(_)) | None => self.shared.begin.1,
        }
    }
}

/// The embedding and head that drafters on a device share with its targets.
fn frozen(device: &Device) -> Frozen {
    Frozen {
        embed: Arc::clone(device.weights.embed()),
        lm_head: Arc::clone(device.weights.head()),
    }
}

/// A drafter as the run begins.
fn make_drafter(shared: &Shared, id: DrafterId) -> Result<CudaDrafter, WorkError> {
    let device = &shared.devices[shared.device_of(WorkerId::Drafter(id))];
    let stream = crate::cuda::Stream::new(&device.gpu).map_err(fatal)?;
    let (state, step) = &shared.begin;
    let weights = state
        .iter()
        .filter_map(|(name, t)| Some((name.strip_prefix("weight.")?.to_owned(), t.clone())));
    let weights: Tensors = weights.collect();
    let frozen = frozen(device);
    let config = &shared.drafter_config;
    let mut drafter =
        CudaDrafter::new(&stream, config, &weights, frozen, &shared.options).map_err(fatal)?;
    drafter.import(state, *step).map_err(fatal)?;
    Ok(drafter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_in_words() {
        let policy = Policy {
            targets: 2,
            drafters: 1,
            transport: Transport::P2p,
            ..shared::policy::preset("composed").unwrap()
        };
        let told = |gpus| placed(&Placing::spread(&policy, gpus));
        assert_eq!(told(1), "GPU 0: 2 targets and 1 drafter");
        assert_eq!(told(2), "GPU 0: 2 targets; GPU 1: 1 drafter");
    }
}
