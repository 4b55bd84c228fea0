//! The CUDA backend: what the CPU backend does, on NVIDIA GPUs.

use super::Ready;
use super::backend::Choice;
use super::cpu::{Trained, train_on};
use super::models::{Made, Models};
use super::observer::Watchers;
use crate::failure::Failure;
use crate::output::OutputDir;
use crate::terminal::note;
use exec::backend::cuda::Cuda;

/// Bytes of one stored feature: hidden states are bf16 on GPUs.
pub(super) const ELEMENT_BYTES: usize = 2;

/// Data, models and the GPUs' memory for them.
pub(super) struct OnGpus {
    models: Models,
    made: Made<Cuda>,
}

impl OnGpus {
    /// Loads what the policy's `[exec]` section names and takes memory for it. Nothing is written.
    pub(super) fn of(ready: &Ready) -> Result<Self, Failure> {
        let models = Models::of(ready, Choice::Cuda)?;
        let made = models.on_gpus(ready, &ready.case.file.policy)?;
        made.0.notes().iter().for_each(note);
        for device in made.0.memory() {
            note(device.to_string());
        }
        Ok(Self { models, made })
    }

    /// Trains, and writes `checkpoint/`.
    pub(super) fn train(
        self,
        ready: &Ready,
        dir: &OutputDir,
        watchers: Watchers,
    ) -> Result<Trained, Failure> {
        let (backend, steps) = self.made;
        train_on(backend, &steps, self.models.setup(), ready, dir, watchers)
    }
}
