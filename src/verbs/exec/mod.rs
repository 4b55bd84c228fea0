//! `dflash exec`: run a policy for real and record it.

pub(crate) mod backend;
mod checkpoints;
pub(crate) mod cpu;
mod cuda;
mod emulated;
mod models;
pub(crate) mod observer;
mod prometheus;
mod resume;
mod settle;
mod tensorboard;
mod threads;

use crate::cli::{BackendArg, ExecArgs};
use crate::failure::{Failure, code};
use crate::figure;
use crate::output::OutputDir;
use crate::report;
use crate::scenario::{Case, Input, cases, open};
use crate::terminal::{note, say};
use crate::verbs::sim::{plain, stop_on_signal};
use exec::backend::Backend;
use exec::backend::emulated::Emulated;
use exec::driver::{Driver, Options, RunReport};
use exec::error::DriverError;
use observer::{OnStep, Recorder, Watchers};
use shared::core::Core;
use shared::metrics::Metrics;
use shared::plan::Plan;
use sim::Work;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use backend::Choice;
pub(crate) use emulated::backend as emulated_backend;
pub(crate) use models::Models;
pub(crate) use resume::DONE;
use resume::Resumed;
pub(crate) use settle::{ends, loss_curve, training};
pub(crate) use threads::for_libraries;

/// A policy ready to run: its file, the lengths of the data, its work and its plan.
pub(crate) struct Ready {
    pub(crate) case: Case,
    pub(crate) work: Work,
    /// What is to be done now.
    pub(crate) plan: Arc<Plan>,
    /// The plan from the beginning; where a run goes on, what is done included.
    pub(crate) whole: Arc<Plan>,
    /// Where a run goes on.
    pub(crate) resumed: Option<Resumed>,
}

/// What a run gave.
pub(crate) struct Ran {
    pub(crate) metrics: Metrics,
    pub(crate) report: RunReport,
    /// The core at the end.
    pub(crate) core: Core,
}

pub(crate) fn run(args: &ExecArgs) -> Result<(), Failure> {
    if args.backend != BackendArg::Emulated {
        // Before anything is loaded or said: the process begins again.
        for_libraries()?;
    }
    let mut ready = prepare(&args.policy, &args.sets)?;
    let choice = backend::choose(args.backend, &ready)?;
    let name = plain(&ready.case.file.name);
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from("reports").join(name + "-exec"));
    if args.resume {
        if choice == Choice::Emulated {
            return Err(Failure::usage(
                "--resume: the emulated backend trains nothing that could be continued; leave it out",
            ));
        }
        resume::resume(&mut ready, &out)?;
        if let Some(resumed) = ready
            .resumed
            .as_ref()
            .filter(|_| ready.plan.microbatches.is_empty())
        {
            say(format!(
                "nothing is left to train: step {} in {} is the end of the plan",
                resumed.checkpoint.step,
                out.join("checkpoint").display()
            ));
            return Ok(());
        }
    }
    let mut watchers = Watchers::of(&ready)?;
    watchers.stop_after = args.stop_after_steps;
    let work = load(choice, &ready, args)?;
    let dir = OutputDir::create(&out)?;
    // From here on Ctrl-C is an orderly stop; what is said next tells the user so.
    drop(stop_on_signal());
    note(settle::opening(&ready, work.name()));
    let (ran, figures) = match work {
        Loaded::Emulated(backend) => {
            let nothing = &mut |_: &Core| Ok(observer::Fields::new());
            let ran = drive(&ready, backend, &dir, watchers, nothing)?;
            (ran, Vec::new())
        }
        Loaded::Cpu(setup) => {
            let trained = cpu::train_with(&setup, &ready, &dir, watchers);
            shown(trained, &ready, &dir)?
        }
        Loaded::Cuda(on_gpus) => shown(on_gpus.train(&ready, &dir, watchers), &ready, &dir)?,
    };
    finish(&ready, &ran, &dir, figures)?;
    say(format!("results in {}", out.display()));
    let was_asked_before = args
        .stop_after_steps
        .is_some_and(|after| u64::from(ran.metrics.steps) >= after);
    if ran.report.stopped && was_asked_before {
        say("stopped after the steps asked for");
        tell_of_checkpoint(dir.path());
    } else if ran.report.stopped {
        let message =
            "stopped as asked after the optimizer step under way; everything up to it is written";
        tell_of_checkpoint(dir.path());
        return Err(Failure::new(code::INTERRUPTED, message));
    }
    Ok(())
}

/// Says what was trained and draws its loss.
fn shown(
    trained: Result<cpu::Trained, Failure>,
    ready: &Ready,
    dir: &OutputDir,
) -> Result<(Ran, Vec<String>), Failure> {
    let trained = trained.inspect_err(|_| tell_of_checkpoint(dir.path()))?;
    training(&trained).into_iter().for_each(say);
    let loss = loss_curve(ready, &trained);
    let drawn = figure::save(dir.path(), "loss", &loss)?;
    Ok((trained.ran, vec![drawn]))
}

/// Where a run that ended early can go on.
fn tell_of_checkpoint(out: &Path) {
    let folder = out.join("checkpoint");
    if folder.exists() {
        note(format!(
            "{} is kept; the same command with --resume goes on from there",
            folder.display()
        ));
    }
}

/// A backend with all that it needs.
enum Loaded {
    Emulated(Arc<Emulated>),
    Cpu(Box<cpu::Setup>),
    Cuda(Box<cuda::OnGpus>),
}

impl Loaded {
    const fn name(&self) -> &'static str {
        match self {
            Self::Emulated(_) => "emulated",
            Self::Cpu(_) => "CPU",
            Self::Cuda(_) => "CUDA",
        }
    }
}

/// Loads what the backend needs, before anything is written: a policy that cannot run leaves no trace.
fn load(choice: Choice, ready: &Ready, args: &ExecArgs) -> Result<Loaded, Failure> {
    match choice {
        Choice::Emulated => {
            let backend = emulated::backend(ready, args.speedup, args.byte_scale)?;
            Ok(Loaded::Emulated(Arc::new(backend)))
        }
        Choice::Cpu => {
            let setup = cpu::Setup::of(ready, cpu::ELEMENT_BYTES)?;
            Ok(Loaded::Cpu(Box::new(setup)))
        }
        Choice::Cuda => Ok(Loaded::Cuda(Box::new(cuda::OnGpus::of(ready)?))),
    }
}

/// Loads a policy file and builds its plan.
pub(crate) fn prepare(file: &Path, sets: &[String]) -> Result<Ready, Failure> {
    let input = open(&[file.to_path_buf()], sets, 1)?;
    if let Input::Scenario { .. } = input {
        return Err(Failure::usage(format!(
            "{}: is a scenario, which may hold ranges; run `dflash sim {}` and give exec the best.toml it writes",
            file.display(),
            file.display()
        )));
    }
    let case = cases(&input)?.remove(0);
    ready(case)
}

/// Builds the plan of a case and warns where it differs from what its policy was searched on.
pub(crate) fn ready(case: Case) -> Result<Ready, Failure> {
    let resolved = case.file.resolved();
    let work = sim::prepare(&resolved, &case.lengths).map_err(Failure::usage)?;
    let plan = sim::plan(&resolved, &work).map_err(Failure::usage)?;
    for line in settle::differences(&case, &plan) {
        note(line);
    }
    Ok(Ready {
        case,
        work,
        whole: Arc::clone(&plan),
        plan,
        resumed: None,
    })
}

/// Runs the plan on a backend, recording trace, metrics and progress for all who watch. `on_step` is called at each optimizer step,
/// when nobody works on the weights; it returns fields for metrics.jsonl.
pub(crate) fn drive<B: Backend>(
    ready: &Ready,
    backend: Arc<B>,
    dir: &OutputDir,
    watchers: Watchers,
    on_step: &mut OnStep<'_>,
) -> Result<Ran, Failure> {
    let file = &ready.case.file;
    let core = Core::new(
        Arc::clone(&ready.plan),
        file.policy.clone(),
        file.training.grad_accum,
        shared::draw::Seed(file.seed),
    );
    let mut recorder = Recorder::begin(&core, ready, dir, backend.name(), watchers, on_step)?;
    let driver = Driver::new(core, backend, Options::default());
    recorder.stop_with(driver.stop_handle());
    stop_with(&driver);
    let outcome = driver.run(&mut recorder);
    let (metrics, core) = recorder.end()?;
    let report = outcome.map_err(of_driver)?;
    Ok(Ran {
        metrics,
        report,
        core,
    })
}

/// The first Ctrl-C asks the driver for an orderly stop.
fn stop_with<B: Backend>(driver: &Driver<B>) {
    let stop = stop_on_signal();
    let handle = driver.stop_handle();
    let watch = move || {
        while !stop.load(std::sync::atomic::Ordering::SeqCst) {
            std::thread::park_timeout(std::time::Duration::from_millis(50));
        }
        handle.stop();
    };
    // It ends with the process; nothing waits for it.
    drop(std::thread::Builder::new().name("stop".into()).spawn(watch));
}

fn of_driver(error: DriverError) -> Failure {
    let code = match &error {
        DriverError::Stalled(_) => code::NO,
        DriverError::Observer(_) => crate::output::OutputError::CODE,
        DriverError::Diverged { .. } => code::DIVERGED,
        DriverError::Start { .. }
        | DriverError::Thread(_)
        | DriverError::WorkerPanicked { .. }
        | DriverError::WorkerFailed { .. }
        | DriverError::Hung { .. } => code::WORKER,
    };
    Failure::new(code, error)
}

/// Writes the run's figures and a page with them behind `figures`, and says what happened beside what was predicted.
pub(crate) fn finish(
    ready: &Ready,
    ran: &Ran,
    dir: &OutputDir,
    mut figures: Vec<String>,
) -> Result<(), Failure> {
    let lines = settle::closing(&ready.case.file, ran);
    figures.extend(report::run(dir, &ready.case, &ran.metrics)?);
    let page = figure::report(&figure::Report {
        title: format!("Run of {}", ready.case.file.name),
        summary: lines.clone(),
        question: ready.case.file.question.clone(),
        parts: figures.into_iter().map(figure::Part::Figure).collect(),
        notes: vec![
            "trace.txt is the record of the run (`dflash replay` checks it), metrics.jsonl has a line a step.".into(),
        ],
    });
    dir.write("report.html", page.as_bytes())?;
    lines.into_iter().for_each(say);
    Ok(())
}
