//! A trace read back: its records, and the run that its header describes.

use super::exec::DONE;
use crate::failure::Failure;
use crate::scenario::{PolicyFile, problems_of_policy};
use shared::plan::{Done, Plan};
use shared::record::{Record, parse};
use sim::{RunError, prepare};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A trace whose fingerprint is right, with its plan built again.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// The file it was read from.
    pub(crate) path: PathBuf,
    /// Single-line facts of its header.
    facts: BTreeMap<String, String>,
    /// The configuration in its header.
    pub(crate) file: PolicyFile,
    /// The length of every sample. (tokens)
    pub(crate) lengths: Vec<u32>,
    /// The plan as this program builds it from the header.
    pub(crate) plan: Arc<Plan>,
    /// Microbatches that an earlier run had trained before this one went on.
    pub(crate) done: Done,
    /// What happened.
    pub(crate) records: Vec<Record>,
    /// The fingerprint of the whole trace, in hexadecimal digits.
    pub(crate) digest: String,
}

impl Recorded {
    /// Reads a trace.
    ///
    /// # Errors
    /// Input data: a file that cannot be read, is no trace, was edited or cut, or whose header does not describe a run.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let bytes = std::fs::read(path).map_err(|error| {
            Failure::data(format!("{shown}: cannot be read: {error}; check the path"))
        })?;
        let text = String::from_utf8(bytes).map_err(|_| {
            Failure::data(format!(
                "{shown}: is not UTF-8, so it is no trace; name a file that --trace wrote"
            ))
        })?;
        let trace = parse(&text).map_err(|error| Failure::data(format!("{shown}: {error}")))?;
        let header = trace.header;
        let unusable = |what: String| {
            let version = header
                .facts
                .get("version")
                .map_or("unknown", String::as_str);
            let own = env!("CARGO_PKG_VERSION");
            Failure::data(format!(
                "{shown}: its header describes no run: {what}; it was written by version {version}, this is {own}"
            ))
        };
        let file: PolicyFile =
            toml::from_str(&header.config).map_err(|error| unusable(one_line(error.message())))?;
        if let Some(problem) = problems_of_policy(&file).first() {
            return Err(unusable(problem.to_string()));
        }
        let plan = build(&file, &header.lengths)
            .map_err(|error| unusable(one_line(&error.to_string())))?;
        let done = header.facts.get(DONE).map(|done| done.parse::<Done>());
        let done = done
            .transpose()
            .map_err(|error| unusable(error.to_string()))?;
        let done = done.unwrap_or_default();
        let end = text.lines().last().unwrap_or_default();
        Ok(Self {
            path: path.into(),
            digest: end.rsplit(' ').next().unwrap_or_default().to_owned(),
            facts: header.facts,
            file,
            lengths: header.lengths,
            plan: left(plan, &done),
            done,
            records: trace.records,
        })
    }

    /// A fact of the header; `unknown` where it is missing.
    pub(crate) fn fact(&self, name: &str) -> &str {
        self.facts.get(name).map_or("unknown", String::as_str)
    }

    /// Why the recorded run had another plan than the one that this program builds, if it had.
    pub(crate) fn plan_mismatch(&self) -> Option<String> {
        let built = format!("{:016x}", self.plan.digest());
        (self.fact("plan") != built).then(|| {
            format!(
                "{}: this program builds another plan from the header than the run had: {built}, recorded {}; replay it with version {}, commit {}",
                self.path.display(),
                self.fact("plan"),
                self.fact("version"),
                self.fact("commit")
            )
        })
    }
}

/// The plan of `file` for samples of these lengths.
pub(crate) fn build(file: &PolicyFile, lengths: &[u32]) -> Result<Arc<Plan>, RunError> {
    let resolved = file.resolved();
    let work = prepare(&resolved, lengths)?;
    sim::plan(&resolved, &work)
}

/// The plan without what was done before; as it is where nothing was.
pub(crate) fn left(plan: Arc<Plan>, done: &Done) -> Arc<Plan> {
    if done.count() == 0 {
        return plan;
    }
    Arc::new(plan.remaining(done))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
