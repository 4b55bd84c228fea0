//! The runs worth a closer look: the fastest point of each policy entry, simulated again with series and timeline.

use crate::failure::Failure;
use crate::output::OutputDir;
use crate::scenario::{Case, PolicyFile};
use crate::verbs::best;
use crate::verbs::sim::Searched;
use shared::core::{Action, Core, Event};
use shared::metrics::Detail;
use shared::record::{Encoder, Header};
use shared::time::Time;
use sim::{Outcome, prepare, run};
use std::collections::BTreeMap;

/// Steps that the timeline shows.
const TIMELINE_STEPS: u32 = 3;

/// One policy's run in detail.
#[derive(Debug)]
pub(crate) struct Detailed {
    /// Row of the search.
    pub(crate) row: usize,
    /// The name it is shown under.
    pub(crate) name: String,
    /// The run, with points and timeline.
    pub(crate) outcome: Outcome,
}

/// Simulates the best row of each policy entry again, keeping detail; writes the trace of the chosen one if asked to.
pub(crate) fn details(
    searched: &Searched,
    best: Option<&PolicyFile>,
    dir: &OutputDir,
    trace: bool,
) -> Result<Vec<Detailed>, Failure> {
    let mut detailed = Vec::new();
    for row in representatives(searched) {
        let case = &searched.cases[searched.rows[row].index];
        let chosen = searched.choice.best == Some(row);
        let outcome = if trace && chosen && best.is_some() {
            let (outcome, text) = traced(case)?;
            dir.write("trace.txt", text.as_bytes())?;
            outcome
        } else {
            simulate(case, &mut |_: Time, _: &Event, _: &[Action], _: &Core| {})?
        };
        detailed.push(Detailed {
            row,
            name: case.file.policy.name.clone(),
            outcome,
        });
    }
    Ok(detailed)
}

/// The row that stands for each policy entry: the chosen one, else the fastest, else the first that was set up.
fn representatives(searched: &Searched) -> Vec<usize> {
    let mut by_entry: BTreeMap<usize, usize> = BTreeMap::new();
    for (i, row) in searched
        .rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.outcome.is_ok())
    {
        let entry = searched.cases[row.index].entry;
        let better = |old: &usize| {
            let rank = |i: usize| {
                let row = &searched.rows[i];
                let chosen = searched.choice.best == Some(i);
                (
                    chosen,
                    std::cmp::Reverse(row.verdict()),
                    row.throughput.mean,
                )
            };
            rank(i) > rank(*old)
        };
        if by_entry.get(&entry).is_none_or(better) {
            by_entry.insert(entry, i);
        }
    }
    by_entry.into_values().collect()
}

fn simulate(case: &Case, observer: &mut impl sim::Observe) -> Result<Outcome, Failure> {
    let resolved = case.file.resolved();
    let work = prepare(&resolved, &case.lengths).map_err(Failure::usage)?;
    let detail = Detail {
        points: true,
        timeline_steps: TIMELINE_STEPS,
    };
    run(&resolved, &work, detail, observer).map_err(Failure::usage)
}

/// A run with its trace.
pub(crate) fn traced(case: &Case) -> Result<(Outcome, String), Failure> {
    let mut encoder = Encoder::default();
    let mut text = encoder.header(&header(case, "sim")?);
    let outcome = simulate(case, &mut |at: Time,
                                       event: &Event,
                                       actions: &[Action],
                                       _: &Core| {
        encoder.record(&mut text, at, event, actions);
    })?;
    text.push_str(&encoder.end());
    Ok((outcome, text))
}

/// The header of a run of this case, driven by `driver`.
pub(crate) fn header(case: &Case, driver: &str) -> Result<Header, Failure> {
    let provenance = best::provenance(case)?;
    let facts = [
        ("driver", driver.to_owned()),
        ("version", provenance.version.clone()),
        ("commit", provenance.commit.clone()),
        ("seed", case.file.seed.to_string()),
        ("policy", case.file.policy.name.clone()),
        ("plan", provenance.plan_hash.clone()),
    ];
    let mut file = case.file.clone();
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
