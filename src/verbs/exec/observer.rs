//! Keeps the record of a run while it happens: trace, metrics, progress.

use crate::failure::Failure;
use crate::output::{AtomicFile, OutputDir};
use crate::report;
use crate::scenario::Case;
use crate::terminal::Live;
use exec::driver::{Observer, ObserverError};
use exec::progress::Progress;
use serde_json::{Map, Value, json};
use shared::core::{Action, Core, Event};
use shared::metrics::{Detail, Meter, Metrics};
use shared::record::Encoder;
use shared::time::Time;
use std::io::Write;

/// Fields of one line of metrics.jsonl.
pub(crate) type Fields = Map<String, Value>;

/// Watches a run.
pub(crate) struct Recorder<'a> {
    encoder: Encoder,
    line: String,
    trace: AtomicFile,
    steps: AtomicFile,
    meter: Meter,
    progress: Progress,
    live: Live,
    core: Core,
    applied: u32,
    on_step: &'a mut dyn FnMut() -> Result<Fields, String>,
}

impl<'a> Recorder<'a> {
    /// Begins trace.txt and metrics.jsonl in `dir`.
    pub(crate) fn begin(
        core: &Core,
        case: &Case,
        dir: &OutputDir,
        driver: &str,
        on_step: &'a mut dyn FnMut() -> Result<Fields, String>,
    ) -> Result<Self, Failure> {
        let mut encoder = Encoder::default();
        let mut trace = dir.begin("trace.txt")?;
        let header = encoder.header(&report::header(case, core.plan(), driver)?);
        trace
            .write_all(header.as_bytes())
            .map_err(|e| trace.failed(e))?;
        let detail = Detail {
            points: true,
            timeline_steps: report::STEPS_RECORDED,
        };
        Ok(Self {
            encoder,
            line: String::new(),
            trace,
            steps: dir.begin("metrics.jsonl")?,
            meter: Meter::new(core, detail),
            progress: Progress::new(core),
            live: Live::new(),
            core: core.clone(),
            applied: 0,
            on_step,
        })
    }

    /// Publishes trace and metrics; whatever ended the run, what was recorded is kept.
    pub(crate) fn end(mut self) -> Result<Metrics, Failure> {
        self.live.clear();
        let end = self.encoder.end();
        self.trace
            .write_all(end.as_bytes())
            .map_err(|e| self.trace.failed(e))?;
        self.trace.publish()?;
        self.steps.publish()?;
        Ok(self.meter.finish(&self.core))
    }

    fn step(&mut self, at: Time, core: &Core) -> Result<(), ObserverError> {
        self.applied += 1;
        let mut fields = (self.on_step)()?;
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
        writeln!(self.steps, "{}", Value::Object(line))?;
        Ok(())
    }
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
        if self.live.is_due() {
            self.live.show(&self.progress.status(core).to_string());
        }
        if core.is_finished() {
            self.core = core.clone();
        }
        Ok(())
    }
}
