//! Why a run ended without an orderly end.

use shared::id::{DrafterId, MicrobatchId, StepId, TargetId};
use std::fmt;
use std::time::Duration;
use thiserror::Error;

/// A worker of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkerId {
    /// Runs the target model.
    Target(TargetId),
    /// Trains the drafter model.
    Drafter(DrafterId),
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(id) => write!(f, "target {id}"),
            Self::Drafter(id) => write!(f, "drafter {id}"),
        }
    }
}

/// Where a worker was when something happened: who, and on which microbatch if it was on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Who.
    pub worker: WorkerId,
    /// On what; `None` while it was starting or applying an optimizer step.
    pub microbatch: Option<MicrobatchId>,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.microbatch {
            Some(microbatch) => write!(f, "{} on microbatch {microbatch}", self.worker),
            None => self.worker.fmt(f),
        }
    }
}

/// Why a run ended early. Whatever the reason, threads are joined and hidden states freed before it is returned.
#[derive(Debug, Error)]
pub enum DriverError {
    /// A worker could not be made.
    #[error("{worker} could not start: {message}")]
    Start {
        /// Who.
        worker: WorkerId,
        /// Why.
        message: String,
    },
    /// The watchdog's thread could not be made.
    #[error("no thread could be made for the watchdog: {0}")]
    Thread(#[source] std::io::Error),
    /// Work remains and nothing is in flight.
    #[error("the run is stalled: {0}; try a larger depth or a looser mixing rule")]
    Stalled(String),
    /// Workers panicked and too few are left to go on; this is the last one.
    #[error(
        "{site} panicked: {message}; nobody is left to do its work, resume from the last checkpoint"
    )]
    WorkerPanicked {
        /// Where.
        site: Site,
        /// What the panic said.
        message: String,
    },
    /// A worker reported an error it cannot work past.
    #[error("{site} failed: {message}")]
    WorkerFailed {
        /// Where.
        site: Site,
        /// Why.
        message: String,
    },
    /// A piece of work passed the watchdog's deadline. The thread that hangs cannot be joined; it ends with the process.
    #[error(
        "{site} hangs: no answer within {} s; resume from the last checkpoint or raise the deadline",
        deadline.as_secs_f64()
    )]
    Hung {
        /// Where.
        site: Site,
        /// The deadline.
        deadline: Duration,
    },
    /// A loss, gradient or weight stopped being finite. The step was not applied.
    #[error(
        "training diverged in optimizer step {step}: {message}; its microbatches are {}; lower the learning rate or look at their data",
        listed(microbatches)
    )]
    Diverged {
        /// The step that was not applied.
        step: StepId,
        /// What was not finite.
        message: String,
        /// What the step was trained on, in the order of training.
        microbatches: Vec<MicrobatchId>,
    },
    /// An observer could not keep its record.
    #[error("the record of the run could not be kept: {0}")]
    Observer(#[source] Box<dyn std::error::Error + Send + Sync>),
}

fn listed(microbatches: &[MicrobatchId]) -> String {
    let names: Vec<String> = microbatches.iter().map(ToString::to_string).collect();
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_worker_and_microbatch() {
        let error = DriverError::WorkerFailed {
            site: Site {
                worker: WorkerId::Target(TargetId(2)),
                microbatch: Some(MicrobatchId(7)),
            },
            message: "out of memory".into(),
        };
        assert_eq!(
            error.to_string(),
            "target t2 on microbatch m7 failed: out of memory"
        );
        let error = DriverError::Diverged {
            step: StepId(3),
            message: "the loss is NaN".into(),
            microbatches: vec![MicrobatchId(9), MicrobatchId(4)],
        };
        assert_eq!(
            error.to_string(),
            "training diverged in optimizer step s3: the loss is NaN; its microbatches are m9 m4; lower the learning rate or \
             look at their data"
        );
    }
}
