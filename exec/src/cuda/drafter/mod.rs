//! The DFlash drafter's training step: bf16 products, f32 masters, sums and gradients.
//!
//! A [`CudaDrafter`] holds weights, optimizer state, gradients and the activations of one microbatch in memory taken once. Each
//! [`CudaDrafter::accumulate`] puts a forward and a backward pass into the stream and returns; [`CudaDrafter::apply`] ends the step and
//! waits for it.
//!
//! Invariant: on one kind of device the same microbatches in the same order give the same bits. Every sum over rows has a fixed order; no
//! kernel adds floats atomically.

mod attention;
mod devices;
mod exchange;
mod layout;
mod memory;
mod ops;
mod pass;
mod plan;
mod shape;
mod step;

use std::ops::Range;
use std::sync::Arc;

use half::bf16;
use shared::id::Bytes;

use self::attention::Attention;
use self::layout::Layout;
use self::memory::{Activations, Memory};
use self::ops::{Ops, Vectors};
use self::plan::{List, Plan};
use self::shape::Shape;
use self::step::Outcome;
use super::{Buffer, CudaError, Event, Gemm, PinnedBuffer, Ptr, Stream, Tuning};
use crate::model::{DrafterConfig, Tensors};
use crate::train::{AdamW, BlockPlan, Objective, Schedule, TrainError};

pub use attention::AttentionKernels;
pub use devices::{Landing, StepVectors};
pub use memory::DrafterLimits;
pub use step::{StepSums, StepUnderWay};

/// Plans that may be on their way to the device at once.
const PLANS: usize = 2;

/// Why a drafter's step failed.
#[derive(Debug, thiserror::Error)]
pub enum DrafterError {
    /// The device refused.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The step is not one to apply; weights are as before it.
    #[error(transparent)]
    Train(#[from] TrainError),
}

/// The target's embedding and head [V, H], shared and never changed.
#[derive(Debug, Clone)]
pub struct Frozen {
    /// Rows of the embedding.
    pub embed: Arc<Buffer<bf16>>,
    /// Rows of the head; the embedding again where they are tied.
    pub lm_head: Arc<Buffer<bf16>>,
}

/// How a drafter computes and learns.
#[derive(Debug, Clone, Copy)]
pub struct DrafterOptions {
    /// The largest microbatch.
    pub limits: DrafterLimits,
    /// What is minimised.
    pub objective: Objective,
    /// Clipping and AdamW.
    pub settings: AdamW,
    /// Learning rates.
    pub schedule: Schedule,
    /// How kernels of matrix products are chosen.
    pub tuning: Tuning,
    /// Which attention.
    pub attention: AttentionKernels,
}

/// What a target hands over for one microbatch; ready on the drafter's stream, and as it is until that has come past it.
#[derive(Debug, Clone, Copy)]
pub struct Given {
    /// Outputs of the captured layers [B, S, K·H].
    pub features: Ptr<bf16>,
    /// The last hidden state [B, S, H], for objectives that need it.
    pub last_hidden: Option<Ptr<bf16>>,
    /// Tokens a row (S).
    pub tokens: usize,
}

/// A drafter on one stream of one GPU.
#[derive(Debug)]
pub struct CudaDrafter {
    shape: Shape,
    layout: Layout,
    limits: DrafterLimits,
    objective: Objective,
    settings: AdamW,
    schedule: Schedule,
    frozen: Frozen,
    stream: Stream,
    ops: Ops,
    attention: Attention,
    gemm: Gemm,
    memory: Memory,
    bytes: Bytes,
    /// Plans on their way, used in turn.
    uploads: Vec<Upload>,
    next_upload: usize,
    step: u64,
    sums: StepSums,
    outcome: Outcome,
}

/// Host memory for the words of one plan.
#[derive(Debug)]
struct Upload {
    words: PinnedBuffer<u32>,
    done: Option<Event>,
}

impl CudaDrafter {
    /// Device memory that a drafter takes, embedding and head not counted.
    ///
    /// # Errors
    /// A geometry that the kernels do not cover.
    pub fn bytes_needed(
        config: &DrafterConfig,
        limits: &DrafterLimits,
    ) -> Result<Bytes, CudaError> {
        let shape = Shape::of(config)?;
        Memory::bytes(&shape, &Layout::new(&shape), limits)
    }

    /// The texts of all kernels for a geometry, by file, for a compiler without a device.
    ///
    /// # Errors
    /// A geometry that the kernels do not cover.
    pub fn kernel_texts(config: &DrafterConfig) -> Result<Vec<(&'static str, String)>, CudaError> {
        let shape = Shape::of(config)?;
        let mut texts = ops::sources(&shape);
        for window in [0, shape.window]
            .into_iter()
            .take(1 + usize::from(shape.window > 0))
        {
            texts.extend(
                [true, false].map(|hopper| attention::attention_source(&shape, hopper, window)),
            );
        }
        Ok(texts)
    }

    /// Takes all memory and copies the weights, named as in released files, to it.
    ///
    /// # Errors
    /// A geometry that the kernels do not cover, weights of other names or shapes, too little memory, kernels that do not compile.
    pub fn new(
        stream: &Stream,
        config: &DrafterConfig,
        weights: &Tensors,
        frozen: Frozen,
        options: &DrafterOptions,
    ) -> Result<Self, DrafterError> {
        let gpu = stream.gpu();
        let (shape, limits) = (Shape::of(config)?, options.limits);
        let rows = shape.vocab * shape.hidden;
        frozen.embed.ptr().check("embedding", rows)?;
        frozen.lm_head.ptr().check("head", rows)?;
        let layout = Layout::new(&shape);
        let (memory, pool) = Memory::new(gpu, &shape, &layout, &limits)?;
        let words = memory::words_max(&shape, &limits);
        let slides = config
            .sliding
            .as_ref()
            .map_or_else(Vec::new, |sliding| sliding.layers.clone());
        let upload = || {
            Ok(Upload {
                words: PinnedBuffer::new(gpu, words)?,
                done: None,
            })
        };
        let mut drafter = Self {
            ops: Ops::new(gpu, stream, &shape)?,
            attention: Attention::new(gpu, stream, &shape, slides, options.attention)?,
            gemm: Gemm::new(&pool, options.tuning)?,
            bytes: pool.size(),
            uploads: (0..PLANS)
                .map(|_| upload())
                .collect::<Result<_, CudaError>>()?,
            next_upload: 0,
            objective: options.objective,
            settings: options.settings,
            schedule: options.schedule,
            stream: stream.clone(),
            step: 0,
            sums: StepSums::default(),
            outcome: Outcome {
                loss: PinnedBuffer::new(gpu, 1)?,
                squares: PinnedBuffer::new(gpu, 1)?,
                counts: PinnedBuffer::new(gpu, shape.slots)?,
            },
            shape,
            layout,
            limits,
            frozen,
            memory,
        };
        drafter.upload_turns()?;
        drafter.clear()?;
        drafter.set_weights(weights)?;
        Ok(drafter)
    }

    /// The stream that its work is put into.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Device memory taken, embedding and head not counted.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// [`CudaDrafter::learn`] from features alone.
    ///
    /// # Errors
    /// As there; an objective that needs the last hidden state.
    pub fn accumulate(
        &mut self,
        features: Ptr<bf16>,
        tokens: usize,
        plan: &BlockPlan,
    ) -> Result<(), DrafterError> {
        let given = Given {
            features,
            last_hidden: None,
            tokens,
        };
        self.learn(given, plan)
    }

    /// Puts the forward and backward pass of a microbatch into the stream; its gradients, loss and hits are added to those of the step.
    ///
    /// # Errors
    /// A microbatch over the limits, features that do not fit the plan, or no last hidden state where the objective needs it.
    pub fn learn(&mut self, given: Given, plan: &BlockPlan) -> Result<(), DrafterError> {
        let Given {
            features, tokens, ..
        } = given;
        self.check_plan(features, tokens, plan)?;
        self.check_teacher(&given, plan)?;
        let sums = StepSums::of(plan, &self.objective);
        if sums.weight_sum > 0.0 {
            let plan = Plan::new(plan, tokens, &self.shape, self.attention.units());
            self.upload(&plan)?;
            self.pass(given, &plan)?;
            self.sums.holds_gradients = true;
        }
        self.sums.add(&sums);
        Ok(())
    }

    /// Refuses to distil without a teacher's state for every slot.
    fn check_teacher(&self, given: &Given, plan: &BlockPlan) -> Result<(), CudaError> {
        if !self.objective.needs_last_hidden() {
            return Ok(());
        }
        let Some(last_hidden) = given.last_hidden else {
            return Err(CudaError::Shape(
                "distillation reads the target's last hidden state, which was not handed over; have the target capture it".to_owned(),
            ));
        };
        let (rows, _, _) = plan.shape();
        last_hidden.check("last hidden state", rows * given.tokens * self.shape.hidden)?;
        let asked = plan.weights().iter().zip(plan.positions());
        let needed = asked.filter(|(weight, _)| **weight > 0.0).map(|(_, &p)| p);
        match needed.max().map(|position| position as usize) {
            Some(position) if position > given.tokens => Err(CudaError::Shape(format!(
                "last hidden states of {} tokens, a slot at {position} needs {position}",
                given.tokens
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Hidden states after the final norm of the plan's supervised slots [slots, H], in order; a forward pass alone, for checks and evaluation.
    /// Waits for the stream.
    ///
    /// # Errors
    /// As [`CudaDrafter::accumulate`].
    pub fn hidden_of_supervised(
        &mut self,
        features: Ptr<bf16>,
        tokens: usize,
        plan: &BlockPlan,
    ) -> Result<Vec<bf16>, DrafterError> {
        self.check_plan(features, tokens, plan)?;
        let plan = Plan::new(plan, tokens, &self.shape, self.attention.units());
        if plan.supervised == 0 {
            return Ok(Vec::new());
        }
        self.upload(&plan)?;
        let hidden = self.final_hidden(features, &plan)?;
        let values = self
            .stream
            .download(hidden.at(0..plan.supervised * self.shape.hidden))?;
        Ok(values)
    }

    fn check_plan(
        &self,
        features: Ptr<bf16>,
        tokens: usize,
        plan: &BlockPlan,
    ) -> Result<(), CudaError> {
        let (rows, blocks, slots) = plan.shape();
        features.check("features", rows * tokens * self.shape.features)?;
        let limits = &self.limits;
        for (what, value, limit) in [
            ("slots", rows * blocks * slots, limits.slots_max),
            ("context tokens", rows * tokens, limits.context_max),
            ("tokens a row", tokens, limits.row_max),
            ("tokens before the last anchor", plan.reach(), tokens),
        ] {
            if value > limit {
                return Err(CudaError::Shape(format!(
                    "a microbatch of {value} {what}, the limit is {limit}"
                )));
            }
        }
        let vocab = self.shape.vocab;
        let foreign = plan
            .tokens()
            .iter()
            .chain(plan.labels())
            .find(|&&token| token as usize >= vocab);
        match (slots == self.shape.slots, foreign) {
            (false, _) => Err(CudaError::Shape(format!(
                "blocks of {slots} slots for a drafter of {}",
                self.shape.slots
            ))),
            (true, Some(token)) => Err(CudaError::Shape(format!(
                "token {token} in a microbatch, the vocabulary has {vocab}"
            ))),
            (true, None) => Ok(()),
        }
    }

    /// Sends the plan's lists to the device. Waits only for a copy made [`PLANS`] microbatches ago.
    fn upload(&mut self, plan: &Plan) -> Result<(), CudaError> {
        let slot = self.next_upload;
        self.next_upload = (slot + 1) % PLANS;
        let upload = &mut self.uploads[slot];
        if let Some(done) = upload.done.take() {
            done.synchronize()?;
        }
        let (held, needed) = (upload.words.len(), plan.words.len());
        let Some(room) = upload.words.as_mut_slice().get_mut(..needed) else {
            return Err(CudaError::Shape(format!(
                "a plan of {needed} words, there is room for {held}"
            )));
        };
        room.copy_from_slice(&plan.words);
        let to = self.memory.activations.words.ptr();
        self.stream.upload_pinned(&upload.words, needed, to)?;
        let done = self.stream.record()?;
        upload.words.hold_until(done.clone());
        upload.done = Some(done);
        Ok(())
    }

    /// Cosine and sine of all positions; angles are formed in f64 and rounded once.
    fn upload_turns(&self) -> Result<(), CudaError> {
        let (half, d) = (self.shape.head_dim / 2, self.shape.head_dim as f64);
        let rates: Vec<f64> = (0..half)
            .map(|i| self.shape.theta.powf(-2.0 * i as f64 / d))
            .collect();
        let turns: Vec<f32> = (0..self.limits.row_max + self.shape.slots)
            .flat_map(|position| {
                rates
                    .iter()
                    .map(move |rate| (position as f64 * rate).sin_cos())
            })
            .flat_map(|(sin, cos)| [cos as f32, sin as f32])
            .collect();
        self.stream
            .upload(&turns, self.memory.activations.turns.ptr())
    }

    fn activations(&self) -> &Activations {
        &self.memory.activations
    }

    fn list(&self, list: List) -> Ptr<u32> {
        self.memory
            .activations
            .words
            .ptr()
            .at(list.start..list.start + list.len)
    }

    fn weight(&self, range: &Range<usize>) -> Ptr<f32> {
        self.memory.state.weights.ptr().at(range.clone())
    }

    fn narrow(&self, range: &Range<usize>) -> Ptr<bf16> {
        self.memory.state.narrow.ptr().at(range.clone())
    }

    fn gradient(&self, range: &Range<usize>) -> Ptr<f32> {
        self.memory.state.gradients.ptr().at(range.clone())
    }

    /// What gradients are multiplied with before a microbatch's are added: 0 for the first of a step.
    fn keep(&self) -> f32 {
        if self.sums.holds_gradients { 1.0 } else { 0.0 }
    }

    fn vectors(&self) -> Vectors {
        let state = &self.memory.state;
        Vectors {
            weights: state.weights.ptr(),
            first: state.first_moments.ptr(),
            second: state.second_moments.ptr(),
            gradients: state.gradients.ptr(),
            narrow: state.narrow.ptr(),
        }
    }
}
