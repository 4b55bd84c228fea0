//! The runs worth a closer look: the best point of each policy, simulated again with series and timeline.

use super::bucket_names;
use super::group::{Group, groups};
use super::run_timeline::STEPS_RECORDED;
use crate::failure::Failure;
use crate::output::OutputDir;
use crate::scenario::{Case, Expect, PolicyFile};
use crate::trace_events::{TRACE_EVENTS, TraceEvents};
use crate::verbs::best;
use crate::verbs::sim::Searched;
use shared::core::{Action, Core, Event};
use shared::metrics::Detail;
use shared::plan::Plan;
use shared::record::{Encoder, Header};
use shared::time::Time;
use sim::{Observe, Outcome, prepare, run};
use std::cmp::Reverse;

/// One policy's run in detail.
#[derive(Debug)]
pub(crate) struct Detailed {
    /// Row of the search.
    pub(crate) row: usize,
    /// The name it is shown under.
    pub(crate) name: String,
    /// Place of its group, which gives its colour.
    pub(crate) group: usize,
    /// The run, with points and timeline.
    pub(crate) outcome: Outcome,
}

/// Simulates the best row of each group again, keeping detail; writes the trace of the chosen one if asked to.
pub(crate) fn details(
    searched: &Searched,
    best: Option<&PolicyFile>,
    dir: &OutputDir,
    trace: bool,
) -> Result<Vec<Detailed>, Failure> {
    let mut detailed = Vec::new();
    for (place, group) in groups(searched).iter().enumerate() {
        let Some(row) = representative(searched, group) else {
            continue;
        };
        let case = &searched.cases[searched.rows[row].index];
        let chosen = searched.choice.best == Some(row);
        let outcome = if trace && chosen && best.is_some() {
            let buckets = bucket_names(case);
            let mut picture = TraceEvents::new(&case.file, buckets, "sim");
            let (outcome, text) = traced(case, &mut picture)?;
            dir.write("trace.txt", text.as_bytes())?;
            dir.write(TRACE_EVENTS, &picture.finish())?;
            outcome
        } else {
            simulate(case, &mut |_: Time, _: &Event, _: &[Action], _: &Core| {})?
        };
        detailed.push(Detailed {
            row,
            name: group.name.clone(),
            group: place,
            outcome,
        });
    }
    Ok(detailed)
}

/// The row that stands for a group: the chosen one, else of the fastest that are done the one with the least hidden
/// states, as the search chooses, else the first that was set up.
fn representative(searched: &Searched, group: &Group) -> Option<usize> {
    let excluded = |i: usize| searched.choice.excluded.iter().any(|&(row, _)| row == i);
    let rank = |i: usize| {
        let chosen = searched.choice.best == Some(i);
        (chosen, Reverse(searched.rows[i].verdict()), !excluded(i))
    };
    let set_up = group.rows.iter().copied();
    let set_up: Vec<usize> = set_up
        .filter(|&i| searched.rows[i].outcome.is_ok())
        .collect();
    let highest = set_up.iter().map(|&i| rank(i)).max()?;
    let level: Vec<usize> = set_up.into_iter().filter(|&i| rank(i) == highest).collect();
    let speed = |i: usize| searched.rows[i].throughput.mean;
    let fastest = level.iter().map(|&i| speed(i)).fold(0.0, f64::max);
    let enough = fastest * (1.0 - searched.cases[0].search.tolerance);
    let memory = |i: usize| {
        let outcome = searched.rows[i].outcome.as_ref();
        outcome.map_or(u64::MAX, |o| o.metrics.peaks.alive_bytes.0)
    };
    level
        .into_iter()
        .filter(|&i| speed(i) >= enough)
        .min_by_key(|&i| memory(i))
}

fn simulate(case: &Case, observer: &mut impl Observe) -> Result<Outcome, Failure> {
    let resolved = case.file.resolved();
    let work = prepare(&resolved, &case.lengths).map_err(Failure::usage)?;
    let detail = Detail {
        points: true,
        steps: true,
        timeline_steps: STEPS_RECORDED,
    };
    run(&resolved, &work, detail, observer).map_err(Failure::usage)
}

/// A run with its trace, seen by `observer`.
pub(crate) fn traced(
    case: &Case,
    observer: &mut impl Observe,
) -> Result<(Outcome, String), Failure> {
    let mut encoder = Encoder::default();
    let plan = best::plan_of(case)?;
    let mut text = encoder.header(&header(case, &plan, "sim")?);
    let outcome =
        simulate(case, &mut |at: Time,
                             event: &Event,
                             actions: &[Action],
                             core: &Core| {
            encoder.record(&mut text, at, event, actions);
            observer.record(at, event, actions, core);
        })?;
    text.push_str(&encoder.end());
    Ok((outcome, text))
}

/// The header of a run of this case by its plan, driven by `driver`.
pub(crate) fn header(case: &Case, plan: &Plan, driver: &str) -> Result<Header, Failure> {
    let provenance = best::provenance(case, plan);
    let facts = [
        ("driver", driver.to_owned()),
        ("version", provenance.version.clone()),
        ("commit", provenance.commit.clone()),
        ("seed", case.file.seed.to_string()),
        ("policy", case.file.policy.name.clone()),
        ("plan", provenance.plan_hash.clone()),
    ];
    let mut file = case.file.clone();
    // What was expected of a run is no part of what it was.
    file.expect = Expect::default();
    file.provenance = provenance;
    let config = toml::to_string(&file)
        .map_err(|e| Failure::usage(format!("the configuration cannot be written as TOML: {e}")))?;
    Ok(Header {
        facts: facts
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        config,
        lengths: case.lengths.to_vec(),
    })
}
