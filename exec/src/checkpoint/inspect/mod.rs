//! Would vLLM and SGLang load this drafter, and if not, why not?
//!
//! Every key of `config.json` and every tensor is compared with what the loaders of the two engines read; nothing is computed with
//! the weights. SGLang skips tensors that it does not know without a word and leaves those that are missing as they are, so what
//! would load and draft nothing counts as refused here.

mod attention;
mod config;
mod foreign;
mod locate;
mod target_layers;
mod tensors;
#[cfg(test)]
mod tests;
mod values;
mod weight_files;

use std::path::{Path, PathBuf};

use super::read;
pub use config::TargetFacts;

/// A serving engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
}

impl Engine {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Vllm, Self::Sglang];

    /// Its name as it writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
        }
    }
}

const BOTH: &[Engine] = &Engine::ALL;
const VLLM: &[Engine] = &[Engine::Vllm];
const SGLANG: &[Engine] = &[Engine::Sglang];

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// As it should be.
    Passed,
    /// It loads, and may not do what was meant.
    Warning,
    /// It does not load, or loads and cannot draft.
    Refused,
}

impl Severity {
    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Warning => "warning",
            Self::Refused => "refused",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// How it came out.
    pub severity: Severity,
    /// For whom.
    pub engines: &'static [Engine],
    /// The key, tensor or file.
    pub subject: String,
    /// What was found, and the limit where there is one.
    pub finding: String,
    /// What to do about it; empty where all is well.
    pub way_out: String,
}

/// All checks of one drafter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The folder that holds `config.json`.
    pub dir: PathBuf,
    /// In the order in which they were made.
    pub checks: Vec<Check>,
}

impl Inspection {
    /// Whether this engine loads it.
    pub fn loads(&self, engine: Engine) -> bool {
        self.of(engine)
            .all(|check| check.severity != Severity::Refused)
    }

    /// The checks that concern an engine.
    pub fn of(&self, engine: Engine) -> impl Iterator<Item = &Check> {
        let concerns = move |check: &&Check| check.engines.contains(&engine);
        self.checks.iter().filter(concerns)
    }
}

/// Why there is nothing to inspect.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// No such folder.
    #[error("{}: no such folder; name the folder that holds config.json", path.display())]
    NoFolder {
        /// The path.
        path: PathBuf,
    },
    /// No drafter below it.
    #[error(
        "{}: holds neither config.json nor checkpoints (step-N); name the folder of a drafter or of a run",
        path.display()
    )]
    NoDrafter {
        /// The path.
        path: PathBuf,
    },
    /// The target's config cannot be used.
    #[error("{}: {problem}; name the target's folder or its config.json", path.display())]
    Target {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// Looks at the drafter in `dir`: a plain model folder, a checkpoint's `step-N`, or a run's folder, whose newest checkpoint is taken.
/// With `target`, also whether it fits that target. `progress` hears how many bytes of weights were read, and of how many.
///
/// # Errors
/// When there is no drafter there at all. A damaged one is no error: its checks say so.
pub fn inspect(
    dir: &Path,
    target: Option<&TargetFacts>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Inspection, InspectError> {
    let mut notes = Notes::default();
    let dir = locate::drafter_in(dir, &mut notes)?;
    if let Some(json) = config::read(&dir, &mut notes).map(foreign::native) {
        let layout = config::check(&json, target, &mut notes);
        if let Some(entries) = weight_files::entries(&dir, &mut notes) {
            foreign::check(&json, &entries, &mut notes);
            tensors::check(layout.as_ref(), &json, &entries, &mut notes);
            values::check(&entries, progress, &mut notes);
        }
    }
    Ok(Inspection {
        dir,
        checks: notes.0,
    })
}

/// Checks being made.
#[derive(Debug, Default)]
struct Notes(Vec<Check>);

impl Notes {
    fn pass(&mut self, subject: impl Into<String>, finding: impl Into<String>) {
        self.add(Severity::Passed, BOTH, subject.into(), finding.into(), "");
    }

    fn warn(
        &mut self,
        engines: &'static [Engine],
        subject: impl Into<String>,
        finding: impl Into<String>,
        way_out: &str,
    ) {
        self.add(
            Severity::Warning,
            engines,
            subject.into(),
            finding.into(),
            way_out,
        );
    }

    fn refuse(
        &mut self,
        engines: &'static [Engine],
        subject: impl Into<String>,
        finding: impl Into<String>,
        way_out: &str,
    ) {
        self.add(
            Severity::Refused,
            engines,
            subject.into(),
            finding.into(),
            way_out,
        );
    }

    fn add(
        &mut self,
        severity: Severity,
        engines: &'static [Engine],
        subject: String,
        finding: String,
        way_out: &str,
    ) {
        self.0.push(Check {
            severity,
            engines,
            subject,
            finding,
            way_out: way_out.to_owned(),
        });
    }
}
