//! Checkpoints of a run: when one is due, what goes into it beside the weights, and what is told of it.

use super::resume::{self, DONE};
use super::{Ready, observer::Fields};
use crate::failure::{Failure, code};
use crate::output::{OutputError, free_name};
use crate::terminal::note;
use exec::backend::Trainer;
use exec::checkpoint::{CheckpointError, Retention, Writer, Written};
use exec::clock::Clock;
use exec::config::{BestBy, CheckpointSection};
use exec::train::StepReport;
use serde_json::{Value, json};
use shared::core::Core;
use shared::id::DrafterId;
use shared::plan::Done;
use shared::policy::Barrier;
use std::path::{Path, PathBuf};

/// Writes the checkpoints of one run.
pub(super) struct Checkpoints<'a> {
    ready: &'a Ready,
    data: Value,
    section: CheckpointSection,
    best_by: Option<BestBy>,
    folder: PathBuf,
    /// Begun with the first checkpoint: until then an earlier run's folder stays where it is.
    writer: Option<Writer>,
    /// Reports since the last checkpoint.
    since: Vec<(f64, f64)>,
    /// The step of the last checkpoint, and where it is.
    last: Option<u64>,
}

impl<'a> Checkpoints<'a> {
    /// For a run whose results go to `out`; `data` describes what it trains on.
    pub(super) fn of(ready: &'a Ready, data: Value, out: &Path) -> Self {
        let section = ready.case.file.exec.as_ref();
        let section = section.map_or_else(CheckpointSection::default, |s| s.checkpoint.clone());
        Self {
            ready,
            data,
            best_by: section.best_by(),
            section,
            folder: out.join("checkpoint"),
            writer: None,
            since: Vec::new(),
            last: ready
                .resumed
                .as_ref()
                .map(|resumed| resumed.checkpoint.step),
        }
    }

    /// After an optimizer step: hands a checkpoint to the writer where one is due. Fields tell how long the
    /// run waited for that, and of those that are on the disk by now.
    pub(super) fn step(
        &mut self,
        core: &Core,
        backend: &dyn Trainer,
        report: &StepReport,
    ) -> Result<Fields, Failure> {
        self.since
            .push((report.loss, report.expected_accepted_length));
        let every = self.section.every_steps;
        let mut fields = Fields::new();
        if every > 0 && report.step.is_multiple_of(every) && self.last != Some(report.step) {
            let clock = Clock::start();
            self.save(core, backend)?;
            let waited = clock.wall().as_secs_f64();
            fields.insert("checkpoint_wait_s".into(), json!(waited));
        }
        let written = self.writer.as_ref().map_or(Ok(Vec::new()), Writer::written);
        let written = written.map_err(failed)?;
        fields.extend(written.iter().flat_map(told));
        Ok(fields)
    }

    /// At the end of a run: saves what is not saved yet and waits for the disk. The last checkpoint's folder.
    pub(super) fn finish(mut self, core: &Core, backend: &dyn Trainer) -> Result<PathBuf, Failure> {
        let step = backend.steps(DrafterId(0));
        if self.last != Some(step) {
            self.save(core, backend)?;
        }
        if let Some(writer) = self.writer.take() {
            writer.finish().map_err(failed)?;
        }
        Ok(self.folder.join(format!("step-{step}")))
    }

    fn save(&mut self, core: &Core, backend: &dyn Trainer) -> Result<(), Failure> {
        let before = self.ready.resumed.as_ref().map(|resumed| &resumed.done);
        let done = resume::done(core, before);
        let since_last = self.since_last();
        let run = self.run(&done, &since_last);
        let checkpoint = backend
            .checkpoint(DrafterId(0), run.to_string())
            .map_err(|e| Failure::new(code::WORKER, e))?;
        self.last = Some(checkpoint.step);
        let score = self.best_by.and_then(|by| resume::score(by, &since_last));
        self.since.clear();
        self.writer()?.submit(checkpoint, score);
        Ok(())
    }

    fn writer(&mut self) -> Result<&Writer, Failure> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                if self.ready.resumed.is_none() {
                    set_aside(&self.folder)?;
                }
                let retention = Retention {
                    keep: self.section.keep,
                    best: self.ready.resumed.as_ref().and_then(|resumed| resumed.best),
                };
                Writer::start(&self.folder, retention).map_err(failed)?
            }
        };
        Ok(self.writer.insert(writer))
    }

    /// Means over the steps since the checkpoint before.
    fn since_last(&self) -> Value {
        let count = self.since.len();
        let mean = |value: fn(&(f64, f64)) -> f64| {
            (count > 0).then(|| self.since.iter().map(value).sum::<f64>() / count as f64)
        };
        json!({
            "steps": count,
            "loss": mean(|(loss, _)| *loss),
            "accepted_length": mean(|(_, length)| *length),
        })
    }

    /// What `run.json` says: by this a run is told from another one, and goes on.
    fn run(&self, done: &Done, since_last: &Value) -> Value {
        let (ready, whole) = (self.ready, &self.ready.whole);
        let mut run = resume::facts(ready);
        let is_independent = ready.case.file.policy.barrier == Barrier::None;
        let dropped = whole.dropped.iter().map(|m| u64::from(m.sample_count()));
        let more = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "data": self.data["digest"],
            DONE: done.to_string(),
            "complete": done.count() == whole.microbatches.len(),
            "microbatches_planned": whole.microbatches.len(),
            "microbatches_trained": done.count(),
            "samples_trained": resume::samples(whole, done),
            "samples_dropped_by_tail": dropped.sum::<u64>(),
            "samples_over_long": whole.over_long.len(),
            "records_dropped": self.data["dropped"],
            "weights_of": if is_independent { "drafter 0" } else { "all drafters" },
            "since_last": since_last,
        });
        if let (Some(run), Value::Object(more)) = (run.as_object_mut(), more) {
            run.extend(more);
        }
        run
    }
}

/// Numbers of a checkpoint that is on the disk.
fn told(written: &Written) -> Fields {
    let mut fields = Fields::new();
    fields.insert("checkpoint_step".into(), json!(written.step));
    fields.insert(
        "checkpoint_write_s".into(),
        json!(written.took.as_secs_f64()),
    );
    fields.insert("checkpoint_is_best".into(), json!(written.is_best));
    fields.insert("checkpoints_removed".into(), json!(written.removed.len()));
    fields
}

/// A run from the beginning never overwrites what another one trained.
fn set_aside(folder: &Path) -> Result<(), Failure> {
    if !folder.exists() {
        return Ok(());
    }
    let aside = free_name(folder);
    std::fs::rename(folder, &aside).map_err(|e| {
        failed(format!(
            "{}: cannot be moved aside: {e}; give --out another directory",
            folder.display()
        ))
    })?;
    note(format!(
        "an earlier checkpoint was moved to {}",
        aside.display()
    ));
    Ok(())
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(OutputError::CODE, error)
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        failed(error)
    }
}
