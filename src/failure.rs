//! Why the process ends with another code than 0.

use crate::config::ConfigErrors;
use crate::output::OutputError;
use std::fmt;

/// Exit codes, as the README lists them.
pub(crate) mod code {
    /// The answer is no: traces diverge, out of tolerance, infeasible.
    pub(crate) const NO: u8 = 1;
    /// Usage or configuration.
    pub(crate) const USAGE: u8 = 2;
    /// Input data.
    pub(crate) const DATA: u8 = 3;
    /// GPU or driver.
    pub(crate) const GPU: u8 = 5;
    /// A worker died or hung.
    pub(crate) const WORKER: u8 = 6;
    /// Training diverged.
    pub(crate) const DIVERGED: u8 = 7;
    /// Interrupted after an orderly stop.
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// A message of one or more lines, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: u8,
    /// One line an error.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl fmt::Display) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }

    /// Usage or configuration.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(code::USAGE, message)
    }

    /// Input data.
    pub(crate) fn data(message: impl fmt::Display) -> Self {
        Self::new(code::DATA, message)
    }

    /// The answer is no.
    pub(crate) fn no(message: impl fmt::Display) -> Self {
        Self::new(code::NO, message)
    }
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        Self::new(errors.code(), &errors)
    }
}

impl From<OutputError> for Failure {
    fn from(error: OutputError) -> Self {
        Self::new(OutputError::CODE, error)
    }
}

impl From<anyhow::Error> for Failure {
    /// Errors with context come from writing figures and reports: disk and output.
    fn from(error: anyhow::Error) -> Self {
        Self::new(OutputError::CODE, format!("{error:#}"))
    }
}
