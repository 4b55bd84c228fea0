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
use std::sync::mpsc::channel;

/// Bytes of one stored feature: hidden states are bf16 on GPUs.
pub(super) const ELEMENT_BYTES: usize = 2;

/// Trains what was loaded for `ready` on the GPUs and writes `checkpoint/`.
pub(super) fn train_with(
    setup: &Setup,
    ready: &Ready,
    dir: &OutputDir,
    watchers: Watchers,
) -> Result<Trained, Failure> {
    let (sender, receiver) = channel::<AppliedStep>();
    let backend = Cuda::new(setup.cpu(ready, sender)?, &ready.case.file.policy)
        .map_err(|e| Failure::new(code::GPU, format!("--backend cuda: {e}")))?;
    for device in backend.memory() {
        note(device.to_string());
    }
    train_on(Arc::new(backend), &receiver, setup, ready, dir, watchers)
}
