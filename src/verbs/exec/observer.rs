//! Keeps the record of a run while it happens: trace, metrics, progress, and whoever else watches.
//!
//! `trace.txt` and `metrics.jsonl` grow under the names `trace.txt.partial` and `metrics.jsonl.partial`, flushed at every optimizer
//! step, and have their own names once they are whole: what a killed run leaves is there to read and cannot be taken for a whole one.

use super::Ready;
use super::prometheus::Exporter;
use super::resume::Resumed;
use super::tensorboard::EventFile;
use crate::failure::Failure;
use crate::output::{LiveFile, OutputDir};
use crate::report;
use crate::terminal::{Live, note};
use exec::driver::{Observer, ObserverError, StopHandle};
use exec::progress::Progress;
use serde_json::{Map, Value, json};
use shared::core::{Action, Core, Event};
use shared::metrics::{Detail, Meter, Metrics};
use shared::record::Encoder;
use shared::time::{Span, Time};
use std::io::Write;

/// Fields of one line of metrics.jsonl.
pub(crate) type Fields = Map<String, Value>;

/// Asked at each optimizer step, with the core after it; gives fields for the step's line.
pub(crate) type OnStep<'a> = dyn FnMut(&Core) -> Result<Fields, String> + 'a;

/// Who watches a run beside its records, and when it is to stop.
#[derive(Default)]
pub(crate) struct Watchers {
    /// Prometheus.
    pub(crate) exporter: Option<Exporter>,
    /// Ask for an orderly stop once so many steps of this run are applied.
    pub(crate) stop_after: Option<u64>,
}

impl Watchers {
    /// Opens what the policy's `[exec.observe]` asks for, before anything runs.
    ///
    /// # Errors
    /// An address that is taken.
    pub(crate) fn of(ready: &Ready) -> Result<Self, Failure> {
        let section = ready.case.file.exec.as_ref();
        let address = section.map_or("", |section| section.observe.prometheus.as_str());
        if address.is_empty() {
            return Ok(Self::default());
        }
        let exporter = Exporter::listen(address)?;
        if let Some(address) = exporter.address() {
            note(format!(
                "metrics for Prometheus at http://{address}/metrics"
            ));
        }
        Ok(Self {
            exporter: Some(exporter),
            stop_after: None,
        })
    }
}

/// Watches a run.
pub(crate) struct Recorder<'a> {
    encoder: Encoder,
    line: String,
    trace: LiveFile,
    steps: LiveFile,
    events: Option<EventFile>,
    watchers: Watchers,
    stop: Option<StopHandle>,
    /// When the exporter was last given numbers.
    shown: Time,
    meter: Meter,
    progress: Progress,
    live: Live,
    core: Core,
    /// Optimizer steps of the whole training.
    applied: u64,
    /// Those of them that an earlier run did.
    before: u64,
    on_step: &'a mut OnStep<'a>,
}

impl<'a> Recorder<'a> {
    /// Begins trace.txt and metrics.jsonl in `dir`.
    pub(crate) fn begin(
        core: &Core,
        ready: &Ready,
        dir: &OutputDir,
        driver: &str,
        watchers: Watchers,
        on_step: &'a mut OnStep<'a>,
    ) -> Result<Self, Failure> {
        let resumed = ready.resumed.as_ref();
        let earlier = resumed.map_or_else(Vec::new, |resumed| resumed.lines(dir));
        if resumed.is_some() {
            // The trace of the part before replays by itself; the lines of its steps are taken over.
            dir.set_aside("trace.txt")?;
        }
        let mut encoder = Encoder::default();
        let mut trace = live(dir, "trace.txt")?;
        let mut header = report::header(&ready.case, core.plan(), driver)?;
        header
            .facts
            .extend(resumed.into_iter().flat_map(Resumed::facts));
        let header = encoder.header(&header);
        let mut steps = live(dir, "metrics.jsonl")?;
        let begun = trace
            .write_all(header.as_bytes())
            .and_then(|()| trace.flush());
        begun.map_err(|e| trace.failed(e))?;
        let taken_over = earlier
            .iter()
            .try_for_each(|line| writeln!(steps, "{line}"))
            .and_then(|()| steps.flush());
        taken_over.map_err(|e| steps.failed(e))?;
        let detail = Detail {
            points: true,
            steps: true,
            timeline_steps: report::STEPS_RECORDED,
        };
        let before = resumed.map_or(0, |resumed| resumed.checkpoint.step);
        Ok(Self {
            encoder,
            line: String::new(),
            trace,
            steps,
            events: events(ready, dir, before)?,
            watchers,
            stop: None,
            shown: Time::ZERO,
            meter: Meter::new(core, detail),
            progress: Progress::new(core),
            live: Live::new(),
            core: core.clone(),
            applied: before,
            before,
            on_step,
        })
    }

    /// How to ask for a stop, where one is due after some steps.
    pub(crate) fn stop_with(&mut self, stop: StopHandle) {
        self.stop = Some(stop);
    }

    /// Publishes trace and metrics; whatever ended the run, what was recorded is kept. The numbers of the run, and the core at its
    /// end where it came to one.
    pub(crate) fn end(mut self) -> Result<(Metrics, Core), Failure> {
        self.live.clear();
        let end = self.encoder.end();
        self.trace
            .write_all(end.as_bytes())
            .map_err(|e| self.trace.failed(e))?;
        self.trace.publish()?;
        self.steps.publish()?;
        Ok((self.meter.finish(&self.core), self.core))
    }

    fn step(&mut self, at: Time, core: &Core) -> Result<(), ObserverError> {
        self.applied += 1;
        let mut fields = (self.on_step)(core)?;
        let status = self.progress.status(core);
        let mut line = Fields::new();
        line.insert("step".into(), json!(self.applied));
        line.insert("time_s".into(), json!(at.as_ns() as f64 / 1e9));
        line.append(&mut fields);
        line.insert("tokens_per_s".into(), json!(status.throughput));
        line.insert("infer_capacity".into(), json!(status.target_capacity));
        line.insert("train_capacity".into(), json!(status.drafter_capacity));
        line.insert("wait".into(), json!(status.waiting));
        line.insert("hs_slots".into(), json!(status.slots.count));
        line.insert("hs_bytes".into(), json!(status.slots.bytes.0));
        if let Some(events) = &mut self.events {
            let at_s = at.as_ns() as f64 / 1e9;
            let written = events.step(at_s, self.applied, &line);
            written.map_err(|e| events.failed(e))?;
        }
        writeln!(self.steps, "{}", Value::Object(line))?;
        self.steps.flush()?;
        self.trace.flush()?;
        let here = self.applied - self.before;
        if self.watchers.stop_after.is_some_and(|after| here >= after)
            && let Some(stop) = self.stop.take()
        {
            stop.stop();
        }
        Ok(())
    }

    /// Gives the exporter numbers at every step and a few times a second.
    fn export(&mut self, now: Time, event: &Event, core: &Core) {
        let Some(exporter) = &self.watchers.exporter else {
            return;
        };
        let is_due = now - self.shown >= EXPORT_EVERY;
        if is_due || core.is_finished() || matches!(event, Event::StepApplied { .. }) {
            exporter.show(core, &self.progress);
            self.shown = now;
        }
    }
}

/// How old the exporter's numbers may be between two steps, in time of the run.
const EXPORT_EVERY: Span = Span::from_ns(250_000_000);

/// Begins a record and says so where an interrupted run left a part of one.
fn live(dir: &OutputDir, name: &str) -> Result<LiveFile, Failure> {
    let file = dir.live(name)?;
    if let Some(aside) = file.aside() {
        let kept = aside.display();
        note(format!(
            "{name}: the part that an interrupted run left is kept as {kept}"
        ));
    }
    Ok(file)
}

/// The event file that the policy's `[exec.observe]` asks for.
fn events(ready: &Ready, dir: &OutputDir, before: u64) -> Result<Option<EventFile>, Failure> {
    let section = ready.case.file.exec.as_ref();
    let folder = section.and_then(|section| section.observe.tensorboard.folder(dir.path()));
    Ok(folder
        .map(|folder| EventFile::create(&folder, before))
        .transpose()?)
}

impl Observer for Recorder<'_> {
    fn on_record(
        &mut self,
        now: Time,
        event: &Event,
        actions: &[Action],
        core: &Core,
    ) -> Result<(), ObserverError> {
        self.line.clear();
        self.encoder.record(&mut self.line, now, event, actions);
        self.trace.write_all(self.line.as_bytes())?;
        self.meter.observe(now, event, actions, core);
        self.progress.observe(now, event, core);
        if matches!(event, Event::StepApplied { .. }) {
            self.step(now, core)?;
        }
        self.export(now, event, core);
        if self.live.is_due() {
            self.live.show(&self.progress.status(core).to_string());
        }
        if core.is_finished() {
            self.core = core.clone();
        }
        Ok(())
    }
}
