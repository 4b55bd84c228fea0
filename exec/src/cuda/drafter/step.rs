//! The optimizer step over what was accumulated.

use super::ops::Rates;
use super::{CudaDrafter, CudaError, DrafterError};
use crate::cuda::{Event, PinnedBuffer};
use crate::train::{BlockPlan, Objective, StepReport, Tally, TrainError};

/// What the host knows of a step before its end; loss and hits are on the device until then.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepSums {
    /// What the step's sums are divided by, see [`Objective`]: Σ weight over supervised slots, or blocks.
    pub weight_sum: f64,
    /// Supervised slots, for slots 1 … T−1.
    pub supervised: Vec<u64>,
    /// Blocks with any supervised slot.
    pub blocks: u64,
    /// Whether the gradients hold this step's sums; else they are leftovers.
    pub(super) holds_gradients: bool,
}

impl StepSums {
    pub(super) fn of(plan: &BlockPlan, objective: &Objective) -> Self {
        let (_, _, slots) = plan.shape();
        let mut sums = Self {
            weight_sum: match objective {
                Objective::DPace { .. } => plan.supervised_blocks() as f64,
                Objective::CrossEntropy | Objective::Distillation { .. } => plan.weight_sum(),
            },
            supervised: vec![0; slots.saturating_sub(1)],
            ..Self::default()
        };
        for block in plan.weights().chunks(slots) {
            let asked = || block[1..].iter().map(|&w| w > 0.0);
            for (sum, asked) in sums.supervised.iter_mut().zip(asked()) {
                *sum += u64::from(asked);
            }
            sums.blocks += u64::from(asked().any(|asked| asked));
        }
        sums
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.weight_sum += other.weight_sum;
        self.blocks += other.blocks;
        let slots = self.supervised.len().max(other.supervised.len());
        self.supervised.resize(slots, 0);
        self.supervised
            .iter_mut()
            .zip(&other.supervised)
            .for_each(|(sum, add)| *sum += add);
    }
}

/// Where the numbers of a step arrive on the host.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) loss: PinnedBuffer<f64>,
    pub(super) squares: PinnedBuffer<f64>,
    pub(super) counts: PinnedBuffer<u64>,
}

/// A step whose end is in the stream.
#[derive(Debug)]
pub struct StepUnderWay {
    step: u64,
    lr: f64,
    sums: StepSums,
    done: Event,
}

impl CudaDrafter {
    /// Ends the step: divides by its total weight, clips, updates the weights, and waits for all of it.
    ///
    /// # Errors
    /// Nothing supervised, a loss or gradient that is not finite: weights and moments are as before, and the step's sums are dropped. Failures
    /// of the device.
    pub fn apply(&mut self) -> Result<StepReport, DrafterError> {
        let step = self.begin_apply()?;
        self.end_apply(step)
    }

    /// Puts the end of the step into the stream and returns; microbatches of the next step may follow at once. One step at a time is under
    /// way: end it before the next one begins.
    ///
    /// # Errors
    /// Nothing supervised; failures of the device.
    pub fn begin_apply(&mut self) -> Result<StepUnderWay, DrafterError> {
        let step = self.step + 1;
        let sums = std::mem::take(&mut self.sums);
        if sums.weight_sum == 0.0 {
            return Err(TrainError::NothingSupervised { step }.into());
        }
        let lr = self.schedule.rate(step);
        let state = &self.memory.state;
        let (loss, squares, counts) = (state.loss.ptr(), state.squares.ptr(), state.counts.ptr());
        let parts = self.memory.activations.square_parts.ptr();
        let rates = self.rates(step, lr, sums.weight_sum);
        self.ops
            .step(&self.vectors(), parts, squares, loss, &rates)?;
        let outcome = &mut self.outcome;
        self.stream.download_pinned(loss, 1, &mut outcome.loss)?;
        self.stream
            .download_pinned(squares, 1, &mut outcome.squares)?;
        self.stream
            .download_pinned(counts, counts.len(), &mut outcome.counts)?;
        let done = self.stream.record()?;
        self.clear_sums()?;
        self.step = step;
        Ok(StepUnderWay {
            step,
            lr,
            sums,
            done,
        })
    }

    /// Waits for the end of the step and says what it did.
    ///
    /// # Errors
    /// A loss or gradient that is not finite: weights and moments are as before the step, and it does not count. Failures of the device.
    pub fn end_apply(&mut self, under_way: StepUnderWay) -> Result<StepReport, DrafterError> {
        let StepUnderWay {
            step,
            lr,
            sums,
            done,
        } = under_way;
        done.synchronize()?;
        let (loss, square) = (
            self.outcome.loss.as_slice()[0],
            self.outcome.squares.as_slice()[0],
        );
        let norm = square.sqrt() / sums.weight_sum;
        if !loss.is_finite() || !norm.is_finite() {
            self.step = step - 1;
        }
        if !loss.is_finite() {
            return Err(TrainError::LossNotFinite { step, loss }.into());
        }
        if !norm.is_finite() {
            return Err(TrainError::GradientNotFinite { step, norm }.into());
        }
        let counts = self.outcome.counts.as_slice();
        let tally = Tally {
            supervised: sums.supervised,
            right: counts[1..].to_vec(),
            leading_run: counts[0],
            blocks: sums.blocks,
        };
        Ok(StepReport {
            step,
            loss: loss / sums.weight_sum,
            grad_norm: norm,
            lr,
            accuracy: tally.accuracy(),
            accuracy_per_slot: tally.accuracy_per_slot(),
            expected_accepted_length: tally.expected_accepted_length(),
            mean_leading_run: tally.mean_leading_run(),
        })
    }

    fn rates(&self, step: u64, lr: f64, weight_sum: f64) -> Rates {
        let s = &self.settings;
        let correction = |beta: f64| 1.0 - beta.powi(step.min(i32::MAX as u64) as i32);
        let decay = 1.0 - lr * s.weight_decay;
        let (stride, spread) = (lr / correction(s.beta1), 1.0 / correction(s.beta2).sqrt());
        Rates {
            factors: [s.beta1, s.beta2, s.eps, decay, stride, spread].map(|factor| factor as f32),
            weight_sum,
            norm_max: s.norm_max,
        }
    }

    /// What the step under way holds so far.
    pub fn sums(&self) -> &StepSums {
        &self.sums
    }

    /// Steps applied.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Loss so far of the step under way, the objective's sum; waits for the stream.
    ///
    /// # Errors
    /// Failures of the device.
    pub fn loss_sum(&self) -> Result<f64, CudaError> {
        let mut loss = [0.0];
        self.stream
            .download_into(self.memory.state.loss.ptr(), &mut loss)?;
        Ok(loss[0])
    }

    /// Gives up the step under way: what was accumulated since the last one is forgotten.
    ///
    /// # Errors
    /// Failures of the device.
    pub fn discard(&mut self) -> Result<(), CudaError> {
        self.clear_sums()
    }

    /// Forgets what the step under way holds.
    pub(super) fn clear_sums(&mut self) -> Result<(), CudaError> {
        self.sums = StepSums::default();
        self.stream.zero(self.memory.state.loss.ptr())?;
        self.stream.zero(self.memory.state.counts.ptr())
    }

    /// Sets moments, gradients and sums to zero.
    pub(super) fn clear(&mut self) -> Result<(), CudaError> {
        let state = &self.memory.state;
        for vector in [
            &state.weights,
            &state.first_moments,
            &state.second_moments,
            &state.gradients,
        ] {
            self.stream.zero(vector.ptr())?;
        }
        self.clear_sums()
    }
}
