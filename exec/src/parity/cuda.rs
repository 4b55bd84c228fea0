//! The models on a GPU, to be compared.

use std::sync::Arc;

use candle_core::{Device, Tensor};
use half::bf16;
use shared::id::Bytes;

use super::{Case, ParityError, Subject};
use crate::cuda::drafter::{AttentionKernels, CudaDrafter, DrafterLimits, DrafterOptions, Frozen};
use crate::cuda::target::{
    AttentionChoice, Captures, CudaTarget, HiddenPlace, Kept, TargetOptions, TargetShape,
    TargetWeights, TokenRows, WeightSource,
};
use crate::cuda::{Buffer, Gpu, Pool, Stream, Tuning};
use crate::model::{Drafter, HiddenStates, PaddedBatch, Target, Tensors};
use crate::train::{AdamW, BlockPlan, Contribution, Schedule, StepReport, Tally};

/// A few slots at a time, so that the logits of a microbatch take several turns.
const LOGITS_MAX: usize = 20;

/// Target and drafter, as the CUDA backend has them. What the drafter reads is what this target wrote.
#[derive(Debug)]
pub struct CudaSubject {
    target: CudaTarget,
    drafter: CudaDrafter,
    stream: Stream,
    pool: Arc<Pool>,
    /// The same drafter on the host, for its output head alone: a GPU never holds all logits.
    head: Drafter,
    /// Widths of a token's features and of its last hidden state.
    widths: [usize; 2],
}

/// Hidden states that lie on the device.
struct Resident {
    features: Buffer<bf16>,
    last_hidden: Buffer<bf16>,
}

impl CudaSubject {
    /// The case's models on `gpu`.
    ///
    /// # Errors
    /// Files that cannot be read, and what the GPU refuses.
    pub fn load(
        case: &Case,
        gpu: &Arc<Gpu>,
        attention: AttentionKernels,
    ) -> Result<Self, ParityError> {
        let layers = case.json.target_layer_ids.clone();
        let host = Target::load(&case.target_dir(), &layers, &Device::Cpu)?;
        let head = Drafter::load(&case.drafter_dir(), &host)?;
        let hidden = host.config().geometry.hidden_size;
        let widths = [layers.len() * hidden, hidden];

        let shape = TargetShape::of(host.config())?;
        let kept = Kept {
            layers: shape.layers,
            head: true,
        };
        let source = WeightSource::Tensors(host.weights());
        let weights = TargetWeights::new(gpu, &shape, source, kept)?;
        let sizes = Sizes::of(case);
        let target = CudaTarget::new(
            &weights,
            TargetOptions {
                captures: Captures {
                    layers,
                    last_hidden: true,
                },
                tokens_max: sizes.tokens,
                width_max: sizes.width,
                tuning: Tuning::Heuristic,
                attention: AttentionChoice::Fastest,
            },
        )?;
        let stream = Stream::new(gpu)?;
        let frozen = Frozen {
            embed: Arc::clone(weights.embed()),
            lm_head: Arc::clone(weights.head()),
        };
        let options = DrafterOptions {
            limits: DrafterLimits {
                slots_max: sizes.slots,
                context_max: sizes.tokens,
                row_max: sizes.width,
                logits_max: LOGITS_MAX,
            },
            objective: crate::train::Objective::CrossEntropy,
            settings: AdamW::default(),
            schedule: Schedule::constant(case.json.optimizer.lr),
            tuning: Tuning::Heuristic,
            attention,
        };
        let drafter = CudaDrafter::new(&stream, head.config(), head.weights(), frozen, &options)?;
        let elements = sizes.tokens * (widths[0] + widths[1]);
        // Buffers are rounded up; two of them need little more.
        let bytes = Bytes((elements * size_of::<bf16>() + (1 << 16)) as u64);
        Ok(Self {
            pool: Pool::new(gpu, bytes, "hidden states")?,
            target,
            drafter,
            stream,
            head,
            widths,
        })
    }

    fn forward(&mut self, batch: &PaddedBatch) -> Result<Resident, ParityError> {
        let rows = TokenRows::from(batch);
        let tokens = rows.ids.len();
        let out = Resident {
            features: self.pool.buffer(tokens * self.widths[0])?,
            last_hidden: self.pool.buffer(tokens * self.widths[1])?,
        };
        let place = HiddenPlace {
            features: out.features.ptr(),
            last_hidden: Some(out.last_hidden.ptr()),
        };
        self.target.forward(&rows, place)?;
        self.target.stream().synchronize()?;
        Ok(out)
    }

    /// Adds a microbatch to the drafter's step.
    fn accumulate(&mut self, batch: &PaddedBatch, plan: &BlockPlan) -> Result<(), ParityError> {
        let there = self.forward(batch)?;
        let tokens = batch.padded_tokens();
        self.drafter
            .accumulate(there.features.ptr(), tokens, plan)?;
        // The features are given up.
        Ok(self.stream.synchronize()?)
    }

    fn read(&self, from: &Buffer<bf16>, batch: &PaddedBatch) -> Result<Tensor, ParityError> {
        let values = self.stream.download(from.ptr())?;
        let (rows, tokens) = (batch.input_ids.len(), batch.padded_tokens());
        let width = values.len() / (rows * tokens);
        Ok(wide(values, &[rows, tokens, width])?)
    }
}

/// The largest microbatch of a case.
struct Sizes {
    tokens: usize,
    width: usize,
    slots: usize,
}

impl Sizes {
    fn of(case: &Case) -> Self {
        let mut sizes = Self {
            tokens: 0,
            width: 0,
            slots: 0,
        };
        for microbatch in &case.microbatches {
            let (rows, width) = (microbatch.anchors.len(), microbatch.batch.padded_tokens());
            let anchors = microbatch.anchors.iter().map(Vec::len).max();
            let slots = rows * anchors.unwrap_or(0) * case.blocks.block_size;
            sizes.tokens = sizes.tokens.max(rows * width);
            sizes.width = sizes.width.max(width);
            sizes.slots = sizes.slots.max(slots);
        }
        sizes
    }
}

fn wide(values: Vec<bf16>, shape: &[usize]) -> candle_core::Result<Tensor> {
    let values: Vec<f32> = values.into_iter().map(bf16::to_f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
}

impl Subject for CudaSubject {
    fn states(&mut self, batch: &PaddedBatch) -> Result<HiddenStates, ParityError> {
        let there = self.forward(batch)?;
        Ok(HiddenStates {
            features: self.read(&there.features, batch)?,
            last_hidden: Some(self.read(&there.last_hidden, batch)?),
        })
    }

    fn computed_slots(&self, plan: &BlockPlan) -> Vec<bool> {
        plan.weights().iter().map(|&weight| weight > 0.0).collect()
    }

    fn outputs(
        &mut self,
        batch: &PaddedBatch,
        plan: &BlockPlan,
    ) -> Result<[Tensor; 2], ParityError> {
        let there = self.forward(batch)?;
        let tokens = batch.padded_tokens();
        let given = self
            .drafter
            .hidden_of_supervised(there.features.ptr(), tokens, plan)?;
        let hidden = self.widths[1];
        let mut all = Vec::with_capacity(plan.weights().len() * hidden);
        let mut rows = given.chunks(hidden);
        for is_computed in self.computed_slots(plan) {
            match is_computed.then(|| rows.next()).flatten() {
                Some(row) => all.extend_from_slice(row),
                None => all.extend(std::iter::repeat_n(bf16::ZERO, hidden)),
            }
        }
        let (rows, blocks, slots) = plan.shape();
        let hidden = wide(all, &[rows, blocks, slots, hidden])?;
        let logits = self.head.logits(&hidden)?;
        Ok([hidden, logits])
    }

    fn contribution(
        &mut self,
        batch: &PaddedBatch,
        plan: &BlockPlan,
    ) -> Result<Contribution, ParityError> {
        self.accumulate(batch, plan)?;
        let part = Contribution {
            gradients: self.drafter.gradients()?,
            loss_sum: self.drafter.loss_sum()?,
            weight_sum: self.drafter.sums().weight_sum,
            // Hits stay on the device until the step's end, whose report tells them.
            tally: Tally::default(),
        };
        self.drafter.discard()?;
        Ok(part)
    }

    fn step(&mut self, work: &[(PaddedBatch, BlockPlan)]) -> Result<StepReport, ParityError> {
        for (batch, plan) in work {
            self.accumulate(batch, plan)?;
        }
        Ok(self.drafter.apply()?)
    }

    fn weights(&mut self) -> Result<Tensors, ParityError> {
        Ok(self.drafter.weights()?)
    }
}
