//! The CUDA backend: what the CPU backend does, on NVIDIA GPUs.

use super::Ready;
use super::cpu::{Setup, Trained, train_on};
use super::observer::Watchers;
use crate::failure::{Failure, code};
use crate::output::OutputDir;
use crate::terminal::note;
use exec::backend::cpu::AppliedStep;
use exec::backend::cuda::Cuda;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// Bytes of one stored feature: hidden states are bf16 on GPUs.
pub(super) const ELEMENT_BYTES: usize = 2;

/// Data, models and the GPUs' memory for them.
pub(super) struct OnGpus {
    setup: Setup,
    backend: Arc<Cuda>,
    receiver: Receiver<AppliedStep>,
}

impl OnGpus {
    /// Loads what the policy's `[exec]` section names and takes memory for it. Nothing is written.
    pub(super) fn of(ready: &Ready) -> Result<Self, Failure> {
        let setup = Setup::of(ready, ELEMENT_BYTES)?;
        let (sender, receiver) = channel();
        let policy = &ready.case.file.policy;
        let backend = Cuda::new(setup.cpu(ready, sender)?, policy, setup.devices())
            .map_err(|e| Failure::new(code::GPU, format!("--backend cuda: {e}")))?;
        backend.notes().iter().for_each(note);
        for device in backend.memory() {
            note(device.to_string());
        }
        Ok(Self {
            setup,
            backend: Arc::new(backend),
            receiver,
        })
    }

    /// Trains, and writes `checkpoint/`.
    pub(super) fn train(
        self,
        ready: &Ready,
        dir: &OutputDir,
        watchers: Watchers,
    ) -> Result<Trained, Failure> {
        train_on(
            self.backend,
            &self.receiver,
            &self.setup,
            ready,
            dir,
            watchers,
        )
    }
}
