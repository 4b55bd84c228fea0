//! Data and models, loaded once for several backends.

use super::Ready;
use super::backend::Choice;
use super::cpu::{self, Setup};
use super::cuda;
use crate::failure::{Failure, code};
use exec::backend::cpu::{AppliedStep, Cpu};
use exec::backend::cuda::Cuda;
use shared::policy::Policy;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// What the `[exec]` section names, in memory.
pub(crate) struct Models {
    setup: Setup,
}

/// A backend, and what tells of its optimizer steps.
pub(crate) type Made<B> = (Arc<B>, Receiver<AppliedStep>);

impl Models {
    /// Loads what the policy's `[exec]` section names, for the backend chosen.
    pub(crate) fn of(ready: &Ready, choice: Choice) -> Result<Self, Failure> {
        let element_bytes = match choice {
            Choice::Cuda => cuda::ELEMENT_BYTES,
            Choice::Cpu | Choice::Emulated => cpu::ELEMENT_BYTES,
        };
        let setup = Setup::of(ready, element_bytes)?;
        Ok(Self { setup })
    }

    /// What was loaded.
    pub(super) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The CPU, for the plan of `ready` and the workers of `policy`.
    pub(crate) fn on_cpu(&self, ready: &Ready, policy: &Policy) -> Result<Made<Cpu>, Failure> {
        let (sender, steps) = channel();
        let backend = Cpu::new(self.setup.cpu(ready, sender)?, policy)
            .map_err(|e| Failure::usage(format!("--backend cpu: {e}")))?;
        Ok((Arc::new(backend), steps))
    }

    /// The GPUs, likewise.
    pub(crate) fn on_gpus(&self, ready: &Ready, policy: &Policy) -> Result<Made<Cuda>, Failure> {
        let (sender, steps) = channel();
        let setup = self.setup.cpu(ready, sender)?;
        let backend = Cuda::new(setup, policy, self.setup.devices())
            .map_err(|e| Failure::new(code::GPU, format!("--backend cuda: {e}")))?;
        Ok((Arc::new(backend), steps))
    }
}
