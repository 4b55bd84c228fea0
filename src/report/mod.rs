//! From rows and runs to what a person reads: the answer on the terminal, figures, one HTML page.

mod answer;
mod detail;
mod group;
mod outlook;
mod page;
mod prospects;
pub(crate) mod quantity;
mod reasons;
pub(crate) mod run_figures;
mod run_timeline;
mod search_figures;
mod summary;
mod tables;
#[cfg(test)]
mod tests;

use crate::failure::Failure;
use crate::figure::{Heading, Named, save_all};
use crate::output::OutputDir;
use crate::scenario::{Case, PolicyFile};
use crate::verbs::sim::Searched;
use ::sim::spec::Buckets;

pub(crate) use detail::{Detailed, details, header, traced};
pub(crate) use group::point_name;
pub(crate) use prospects::{Prospects, prospects};
use run_figures::{Shown, run_figures};
pub(crate) use run_timeline::STEPS_RECORDED;
pub(crate) use summary::{aligned, summary, terminal_paragraph};

use group::{Group, groups, slots_max};

/// Draws the figures and writes the HTML report.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn write(
    dir: &OutputDir,
    searched: &Searched,
    best: Option<&PolicyFile>,
    prospects: Option<&Prospects>,
    detailed: &[Detailed],
) -> Result<(), Failure> {
    let groups = groups(searched);
    let figures = figures(dir, searched, &groups, detailed)?;
    let page = page::page(searched, &groups, best, prospects, detailed, figures)?;
    dir.write("report.html", page.as_bytes())?;
    Ok(())
}

/// Draws the figures of one run: slots over time, utilisation, mixing, timeline.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn run(
    dir: &OutputDir,
    case: &Case,
    metrics: &shared::metrics::Metrics,
) -> Result<Vec<String>, Failure> {
    let heading = Heading {
        title: String::new(),
        shown: String::new(),
        scenario: case.file.name.clone(),
        seed: Some(case.file.seed),
    };
    let buckets = bucket_names(case);
    let run = Shown {
        name: &case.file.policy.name,
        metrics,
        buckets: &buckets,
        color: 0,
        slots_max: slots_max(&case.file.policy),
    };
    run_figures(dir.path(), &heading, &run)
}

fn figures(
    dir: &OutputDir,
    searched: &Searched,
    groups: &[Group],
    detailed: &[Detailed],
) -> Result<Vec<String>, Failure> {
    let file = &searched.cases[0].file;
    let heading = |title: &str, shown: &str| Heading {
        title: title.to_owned(),
        shown: shown.to_owned(),
        scenario: file.name.clone(),
        seed: Some(file.seed),
    };
    let names: Vec<Vec<String>> = detailed
        .iter()
        .map(|detail| bucket_names(&searched.cases[searched.rows[detail.row].index]))
        .collect();
    let runs: Vec<Shown<'_>> = detailed
        .iter()
        .zip(&names)
        .map(|(detail, buckets)| shown(searched, detail, buckets))
        .collect();
    let mut figures: Vec<Named<'_>> = Vec::new();
    if let Some(figure) = search_figures::throughput_depth(searched, groups, heading) {
        figures.push(("throughput-depth", Box::new(figure)));
    }
    if let Some(figure) = search_figures::memory_depth(searched, groups, heading) {
        figures.push(("memory-depth", Box::new(figure)));
    }
    if let Some(figure) = search_figures::pareto(searched, groups, heading) {
        figures.push(("pareto", Box::new(figure)));
    }
    let utilisation = run_figures::utilisation(&runs, heading);
    figures.push(("utilisation", Box::new(utilisation)));
    let slots = run_figures::slots_over_time(&runs, heading);
    figures.push(("slots-over-time", Box::new(slots)));
    let mixing = run_figures::mixing(&runs, heading);
    figures.push(("mixing", Box::new(mixing)));
    figures.extend(timelines(searched, detailed, &runs, heading));
    Ok(save_all(dir.path(), &figures)?)
}

/// The timeline of the chosen policy, and that of the first other one beside it.
fn timelines(
    searched: &Searched,
    detailed: &[Detailed],
    runs: &[Shown<'_>],
    heading: impl Fn(&str, &str) -> Heading,
) -> Vec<Named<'static>> {
    let is_chosen = |detail: &Detailed| searched.choice.best == Some(detail.row);
    let chosen = detailed.iter().position(is_chosen).unwrap_or(0);
    let other = (0..runs.len()).find(|&i| i != chosen);
    let all = [("timeline", Some(chosen)), ("timeline-other", other)];
    all.into_iter()
        .filter_map(|(stem, run)| Some((stem, runs.get(run?)?)))
        .map(|(stem, run)| -> Named<'static> {
            (stem, Box::new(run_timeline::timeline(run, &heading)))
        })
        .collect()
}

fn shown<'a>(searched: &Searched, detail: &'a Detailed, buckets: &'a [String]) -> Shown<'a> {
    let case = &searched.cases[searched.rows[detail.row].index];
    Shown {
        name: &detail.name,
        metrics: &detail.outcome.metrics,
        buckets,
        color: detail.group,
        slots_max: slots_max(&case.file.policy),
    }
}

/// Names of a case's buckets, as [`named_buckets`].
pub(crate) fn bucket_names(case: &Case) -> Vec<String> {
    named_buckets(&case.file.workload.buckets, &case.lengths)
}

/// Names of buckets by their upper edges, from the shortest: `≤ 512`.
pub(crate) fn named_buckets(buckets: &Buckets, lengths: &[u32]) -> Vec<String> {
    sim::edges(buckets, lengths)
        .map(|edges| {
            edges
                .as_slice()
                .iter()
                .map(|edge| format!("≤ {edge}"))
                .collect()
        })
        .unwrap_or_default()
}
