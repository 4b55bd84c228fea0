//! Which backend runs a policy, and why another cannot.

use super::Ready;
use crate::cli::BackendArg;
use crate::failure::Failure;

/// The backend that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Waits as long as work would take.
    Emulated,
}

/// The backend asked for, or the best one that can run the policy here.
pub(crate) fn choose(asked: BackendArg, ready: &Ready) -> Result<Choice, Failure> {
    let _ = ready;
    match asked {
        BackendArg::Emulated => Ok(Choice::Emulated),
        BackendArg::Auto | BackendArg::Cpu => Err(Failure::usage("cpu: not built yet")),
    }
}
