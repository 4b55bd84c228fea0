//! `dflash compare`: how far a simulation was off, stage by stage and bucket by bucket.

mod services;
mod show;

use super::recorded::Recorded;
use super::retrace::{line, retrace};
use crate::cli::CompareArgs;
use crate::failure::Failure;
use crate::figure;
use crate::output::OutputDir;
use crate::terminal::{note, say};
use services::{Service, services};
use shared::metrics::{Detail, Metrics, before_draining};
use std::path::Path;
use std::sync::Arc;

/// One quantity as simulated and as measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pair {
    name: String,
    unit: &'static str,
    pub(super) simulated: f64,
    pub(super) measured: f64,
}

/// The service times of one stage and bucket in both runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Compared {
    pub(super) stage: &'static str,
    /// The bucket's name; empty for work that has none.
    pub(super) bucket: String,
    pub(super) simulated: Service,
    pub(super) measured: Service,
}

/// All that two runs of one plan have in common and do not.
#[derive(Debug)]
pub(super) struct Comparison {
    /// Name of the scenario.
    name: String,
    policy: String,
    pub(super) stages: Vec<Compared>,
    totals: Vec<Pair>,
    /// Of the measured run, filling and draining included. (tok/s)
    pub(super) whole_run: f64,
    /// Standard error of the measured throughput as a share of it, by the run's own steps; `None` where they are too few.
    pub(super) own_error: Option<f64>,
    /// Samples that the measured run left undone, since it was stopped.
    pub(super) left_undone: u64,
    tolerance: f64,
}

impl Comparison {
    /// Throughput stands first among the totals.
    pub(super) fn throughput(&self) -> &Pair {
        &self.totals[0]
    }

    fn is_within(&self) -> bool {
        self.throughput()
            .error()
            .is_some_and(|error| error.abs() * 100.0 <= self.tolerance)
    }
}

impl Pair {
    /// How far the simulation was off, as a share of what was measured; `None` where nothing was.
    fn error(&self) -> Option<f64> {
        error(self.simulated, self.measured)
    }
}

fn error(simulated: f64, measured: f64) -> Option<f64> {
    (measured > 0.0).then(|| (simulated - measured) / measured)
}

pub(crate) fn run(args: &CompareArgs) -> Result<(), Failure> {
    if !args.tolerance.is_finite() || args.tolerance < 0.0 {
        return Err(Failure::usage(format!(
            "--tolerance {}: must be finite and at least 0; write percent, such as 3",
            args.tolerance
        )));
    }
    let sim = Recorded::read(&args.sim)?;
    let exec = Recorded::read(&args.exec)?;
    refuse_different_plans(&sim, &exec)?;
    for (trace, simulated) in [(&sim, true), (&exec, false)] {
        let found = trace.fact("driver");
        if (found == "sim") != simulated {
            let expected = if simulated { "the simulator" } else { "a run" };
            let shown = trace.path.display();
            note(format!(
                "{shown}: was written by {found}, {expected} is expected here"
            ));
        }
    }
    if sim.file.policy != exec.file.policy {
        note("the two runs share a plan and differ in their policy");
    }
    let comparison = Comparison {
        name: exec.file.name.clone(),
        policy: exec.file.policy.name.clone(),
        tolerance: args.tolerance,
        ..compared(&sim, &exec)?
    };
    for line in show::lines(&comparison) {
        say(line);
    }
    say(first_other_order(&sim, &exec));
    if let Some(out) = &args.out {
        let dir = OutputDir::create(out)?;
        dir.write("comparison.csv", &show::csv(&comparison))?;
        figure::save(dir.path(), "prediction", &show::figure(&comparison))?;
        say(format!("results in {}", out.display()));
    }
    verdict(&comparison)
}

/// Compares two traces of one plan, with what no policy could exceed by the simulated one's costs. (tok/s)
pub(super) fn compare_traces(sim: &Path, exec: &Path) -> Result<(Comparison, f64), Failure> {
    let (sim, exec) = (Recorded::read(sim)?, Recorded::read(exec)?);
    refuse_different_plans(&sim, &exec)?;
    let comparison = compared(&sim, &exec)?;
    let resolved = sim.file.resolved();
    let work = ::sim::prepare(&resolved, &sim.lengths).map_err(Failure::data)?;
    let bound = ::sim::run(&resolved, &work, Detail::default(), &mut ::sim::Nobody);
    let bound = bound.map_err(Failure::data)?.bound;
    Ok((comparison, bound.tokens_per_s()))
}

fn refuse_different_plans(sim: &Recorded, exec: &Recorded) -> Result<(), Failure> {
    let (a, b) = (sim.fact("plan"), exec.fact("plan"));
    if a == b {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{} and {}: their plans differ ({a} and {b}), so they are no runs of the same work; simulate the policy file that was executed",
        sim.path.display(),
        exec.path.display()
    )))
}

fn compared(sim: &Recorded, exec: &Recorded) -> Result<Comparison, Failure> {
    let (simulated, measured) = (metrics(sim)?, metrics(exec)?);
    let edges = edges(sim)?;
    let (a, b) = (
        services(&simulated.timeline, &sim.records),
        services(&measured.timeline, &exec.records),
    );
    let mut kinds: Vec<_> = a.keys().chain(b.keys()).copied().collect();
    kinds.sort_unstable();
    kinds.dedup();
    let stages = kinds.into_iter().map(|kind| Compared {
        stage: kind.stage(),
        bucket: kind.bucket(&edges),
        simulated: a.get(&kind).copied().unwrap_or_default(),
        measured: b.get(&kind).copied().unwrap_or_default(),
    });
    Ok(Comparison {
        name: String::new(),
        policy: String::new(),
        tolerance: 0.0,
        stages: stages.collect(),
        whole_run: measured.run_tokens_per_s(),
        own_error: own_error(&measured),
        left_undone: measured.ledger.waiting + measured.ledger.in_flight + measured.ledger.skipped,
        totals: show::totals(&simulated, &measured),
    })
}

/// Standard error of a run's throughput over its steady part, as a share of it.
fn own_error(run: &Metrics) -> Option<f64> {
    let steps = before_draining(&run.applied);
    let before = steps.last()?.steps - run.steady.steps;
    ::sim::relative_error(steps, run.steps_up_to(before as usize))
}

/// Upper edges of the buckets. (tokens)
fn edges(recorded: &Recorded) -> Result<Vec<u32>, Failure> {
    let edges = sim::edges(&recorded.file.workload.buckets, &recorded.lengths);
    let edges = edges.map_err(|error| {
        Failure::data(format!(
            "{}: workload.buckets: {error}",
            recorded.path.display()
        ))
    })?;
    Ok(edges.as_slice().to_vec())
}

/// Every number of a recorded run, with all its bars, if the core confirms the records.
fn metrics(recorded: &Recorded) -> Result<Metrics, Failure> {
    let detail = Detail {
        points: false,
        steps: false,
        timeline_steps: u32::MAX,
    };
    if let Some(mismatch) = recorded.plan_mismatch() {
        return Err(Failure::no(mismatch));
    }
    let plan = Arc::clone(&recorded.plan);
    let retraced = retrace(recorded, &recorded.file, &plan, detail)
        .map_err(|divergence| Failure::no(format!("{}: {divergence}", recorded.path.display())))?;
    Ok(retraced.metrics)
}

/// Where the two histories part, times aside. Timing decides what comes first, so this is for information.
fn first_other_order(sim: &Recorded, exec: &Recorded) -> String {
    let orders = |trace: &Recorded| {
        let record = |i: usize| (trace.records[i].event, trace.records[i].actions.clone());
        (0..trace.records.len()).map(record).collect::<Vec<_>>()
    };
    let (a, b) = (orders(sim), orders(exec));
    let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    if same == a.len() && same == b.len() {
        return format!("decisions: all {same} records are the same");
    }
    let shown = |trace: &Recorded| match trace.records.get(same) {
        Some(record) => cut(&line(record)),
        None => "the run is over".to_owned(),
    };
    format!(
        "decisions: the first {same} records are the same (of {} and {}), then\n  simulated: {}\n  measured:  {}",
        a.len(),
        b.len(),
        shown(sim),
        shown(exec)
    )
}

fn cut(line: &str) -> String {
    const LENGTH_MAX: usize = 86;
    match line.char_indices().nth(LENGTH_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

fn verdict(comparison: &Comparison) -> Result<(), Failure> {
    let pair = comparison.throughput();
    let tolerance = comparison.tolerance;
    let numbers = format!(
        "simulated {:.0} tok/s, measured {:.0}",
        pair.simulated, pair.measured
    );
    match pair.error() {
        None => Err(Failure::no(format!(
            "{numbers}: nothing was trained in the measured run, so nothing can be compared"
        ))),
        Some(error) if comparison.is_within() => {
            say(format!(
                "within tolerance: {numbers}: off by {:+.2} %, {tolerance} % are allowed",
                100.0 * error
            ));
            Ok(())
        }
        Some(error) => Err(Failure::no(format!(
            "out of tolerance: {numbers}: off by {:+.2} %, {tolerance} % are allowed; measure the cost table again on this hardware, or raise --tolerance",
            100.0 * error
        ))),
    }
}
