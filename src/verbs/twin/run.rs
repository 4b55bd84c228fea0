//! Predictions on disk before anything runs, then the runs.

use crate::failure::Failure;
use crate::output::OutputDir;
use crate::report;
use crate::scenario::Case;
use crate::terminal::note;
use crate::verbs::best;
use crate::verbs::calibrate::models_of;
use crate::verbs::exec::backend::Choice;
use crate::verbs::exec::observer::{Fields, Watchers};
use crate::verbs::exec::{Models, Ran, Ready, drive, emulated_backend, ready};
use exec::backend::Backend;
use exec::backend::cpu::AppliedStep;
use shared::core::{Action, Activity, Core, Event};
use shared::time::Time;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Writes NAME/policy.toml and NAME/sim/trace.txt for every case.
pub(super) fn predict(cases: &[Case], out: &Path) -> Result<(), Failure> {
    for case in cases {
        let folder = out.join(&case.file.name);
        let (outcome, text) =
            report::traced(case, &mut |_: Time, _: &Event, _: &[Action], _: &Core| {})?;
        let mut file = case.file.clone();
        file.expect.throughput_tok_s = outcome.metrics.tokens_per_s();
        file.expect.bound_tok_s = outcome.bound.tokens_per_s();
        file.expect.hs_slots_peak = outcome.metrics.peaks.slots;
        file.expect.hs_bytes_peak = outcome.metrics.peaks.slot_bytes.0;
        let plan = best::plan_of(case)?;
        file.provenance = best::provenance(case, &plan);
        let policy = best::text(&file)?;
        OutputDir::create(&folder)?.write("policy.toml", policy.as_bytes())?;
        OutputDir::create(&folder.join("sim"))?.write("trace.txt", text.as_bytes())?;
        note(format!(
            "{}: {:.0} tok/s predicted",
            case.file.name, file.expect.throughput_tok_s
        ));
    }
    Ok(())
}

/// Runs cases one after another on models that are loaded once.
pub(super) struct Runner {
    choice: Choice,
    models: Option<Models>,
    rows: Vec<[String; 10]>,
}

impl Runner {
    pub(super) fn new(choice: Choice, models: Option<Models>) -> Self {
        Self {
            choice,
            models,
            rows: Vec::new(),
        }
    }

    /// Runs a case and records it under NAME/exec-NUMBER. Nothing but the record is kept: weights are not the question here.
    pub(super) fn run(&mut self, case: &Case, number: u32, out: &Path) -> Result<(), Failure> {
        let ready = ready(case.clone())?;
        let folder = out.join(&case.file.name).join(format!("exec-{number}"));
        let dir = OutputDir::create(&folder)?;
        let ran = match self.choice {
            Choice::Emulated => {
                let backend = Arc::new(emulated_backend(&ready, None, None)?);
                drive(
                    &ready,
                    backend,
                    &dir,
                    Watchers::of(&ready)?,
                    &mut |_: &Core| Ok(Fields::new()),
                )?
            }
            Choice::Cpu => {
                let made = models_of(&mut self.models, &ready, self.choice)?
                    .on_cpu(&ready, &case.file.policy)?;
                driven(&ready, made, &dir)?
            }
            Choice::Cuda => {
                let made = models_of(&mut self.models, &ready, self.choice)?
                    .on_gpus(&ready, &case.file.policy)?;
                driven(&ready, made, &dir)?
            }
        };
        self.note(case, number, &ran);
        Ok(())
    }

    fn note(&mut self, case: &Case, number: u32, ran: &Ran) {
        let m = &ran.metrics;
        let report = &ran.report;
        note(format!(
            "{} run {number}: {:.0} tok/s, {} steps in {:.1} s, dispatch {:.3} % of wall time",
            case.file.name,
            m.tokens_per_s(),
            m.steps,
            report.wall.as_secs_f64(),
            100.0 * report.dispatch_share()
        ));
        let share = |x: f64| format!("{x:.6}");
        self.rows.push([
            case.file.name.clone(),
            number.to_string(),
            m.steps.to_string(),
            format!("{:.3}", report.wall.as_secs_f64()),
            share(report.dispatch_share()),
            share(report.observers.as_secs_f64() / report.wall.as_secs_f64()),
            m.peaks.slots.to_string(),
            m.peaks.slot_bytes.0.to_string(),
            share(m.target_share(Activity::Busy)),
            share(m.drafter_share(Activity::Busy)),
        ]);
    }

    /// `runs.csv`: what the driver knows of each run and a trace does not say.
    pub(super) fn csv(&self) -> Vec<u8> {
        let in_memory = "writing to memory cannot fail";
        let mut csv = csv::Writer::from_writer(Vec::new());
        csv.write_record([
            "policy",
            "run",
            "steps",
            "wall_s",
            "dispatch_share",
            "record_share",
            "hs_slots_peak",
            "hs_bytes_peak",
            "target_busy",
            "drafter_busy",
        ])
        .expect(in_memory);
        for row in &self.rows {
            csv.write_record(row).expect(in_memory);
        }
        csv.into_inner().expect(in_memory)
    }
}

/// Runs on a backend that trains; its steps are heard of and let go.
fn driven<B: Backend>(
    ready: &Ready,
    (backend, steps): (Arc<B>, Receiver<AppliedStep>),
    dir: &OutputDir,
) -> Result<Ran, Failure> {
    let mut on_step = |_: &Core| {
        let mut fields = Fields::new();
        for applied in steps.try_iter() {
            fields.insert("loss".into(), applied.report.loss.into());
        }
        Ok(fields)
    };
    drive(ready, backend, dir, Watchers::of(ready)?, &mut on_step)
}
