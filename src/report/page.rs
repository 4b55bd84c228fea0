//! The HTML page of a search.

use super::answer::answer;
use super::group::Group;
use super::outlook;
use super::quantity::count;
use super::{Detailed, Prospects};
use super::{reasons, tables};
use crate::failure::Failure;
use crate::figure::{Part, Report, report};
use crate::scenario::PolicyFile;
use crate::verbs::best;
use crate::verbs::sim::Searched;

/// Waits of one deadlock that are listed.
const WAITS_MAX: usize = 40;

/// The page: question, answer, tables, `figures` as SVG, what is left out and why, provenance.
pub(crate) fn page(
    searched: &Searched,
    groups: &[Group],
    best: Option<&PolicyFile>,
    prospects: Option<&Prospects>,
    detailed: &[Detailed],
    figures: Vec<String>,
) -> Result<String, Failure> {
    let file = &searched.cases[0].file;
    let mut sentences = answer(searched, best, prospects, detailed);
    sentences.extend(reasons::ties(searched, groups).map(|ties| format!("{ties}.")));
    let mut summary = vec![sentences.remove(0)];
    if !sentences.is_empty() {
        summary.push(sentences.join(" "));
    }
    let mut parts = vec![
        Part::Table(tables::policies(searched, detailed)),
        Part::Table(tables::time(detailed)),
    ];
    if let (Some(prospects), Some(best)) = (prospects, best) {
        parts.push(Part::Table(outlook::table(prospects, best)));
    }
    parts.extend(figures.into_iter().map(Part::Figure));
    parts.extend(left_out(searched, groups));
    parts.push(Part::Table(tables::memory(searched, detailed)));
    if searched.rows.len() > detailed.len() {
        parts.push(Part::Table(tables::points(searched, groups)));
    }
    let (caption, text) = match best {
        Some(best) => (
            "best.toml: the chosen policy and all it was searched on",
            best,
        ),
        None => ("The first point as a policy file", file),
    };
    parts.push(Part::Text {
        caption: caption.to_owned(),
        text: best::text(text)?,
    });
    Ok(report(&Report {
        title: format!("dflash sim: {}", file.name),
        question: file.question.clone(),
        summary,
        parts,
        notes: notes(searched, best)?,
    }))
}

/// What is not in the running: constraints broken, deadlocks, what cannot run.
fn left_out(searched: &Searched, groups: &[Group]) -> Vec<Part> {
    let mut parts = Vec::new();
    let excluded = reasons::excluded(searched, groups);
    let infeasible = reasons::infeasible(searched, groups);
    let caption = "Excluded: these points are done and break a constraint of [search]";
    parts.extend(tables::reasons(caption, &excluded).map(Part::Table));
    for (name, stall) in reasons::deadlocks(searched, groups) {
        let mut lines = vec![reasons::stall_line(stall)];
        lines.extend(reasons::waits(stall, WAITS_MAX));
        parts.push(Part::List {
            caption: format!("Deadlock: {name}"),
            lines,
        });
    }
    let caption = "Infeasible: these points cannot be set up, or not in the memory there is";
    parts.extend(tables::reasons(caption, &infeasible).map(Part::Table));
    parts
}

fn notes(searched: &Searched, best: Option<&PolicyFile>) -> Result<Vec<String>, Failure> {
    let case = &searched.cases[0];
    let file = &case.file;
    let provenance = match best {
        Some(best) => best.provenance.clone(),
        None => best::plan_of(case)
            .map(|plan| best::provenance(case, &plan))
            .unwrap_or_default(),
    };
    let search = &case.search;
    let replications = searched.rows.iter().map(|r| r.throughput.count).max();
    let mut notes = vec![
        format!(
            "dflash {}, commit {}, scenario {}, seed {}.",
            provenance.version, provenance.commit, file.name, file.seed
        ),
        format!(
            "Fingerprints: costs {}, lengths {}, plan {}.",
            provenance.costs_hash, provenance.lengths_hash, provenance.plan_hash
        ),
        format!(
            "Hardware: {}{} GPUs of {}, host memory {}.",
            described(&file.hardware.description),
            file.hardware.gpus,
            file.hardware.gpu_memory.bytes(),
            file.hardware.host_memory.bytes()
        ),
        format!(
            "Hidden states take {} a token; a step takes {} microbatches of each drafter, of at most {} padded tokens and {} samples each.",
            file.model.bytes_per_token(),
            file.training.grad_accum,
            file.training.token_budget,
            file.training.batch_max
        ),
        format!(
            "{} simulated, up to {} each; points within {} % of the fastest tie.",
            count(searched.rows.len(), "point"),
            count(replications.unwrap_or(0), "replication"),
            100.0 * search.tolerance
        ),
        "Throughput is trained tokens a second, without padding, between filling and draining; its share of the bound is that of the whole run. Figures and memory show the first replication.".to_owned(),
        "HS slots count from grant to release; HS GiB also counts hidden states in the hands of workers without a slot.".to_owned(),
        "The bound follows from the assumed or measured costs in the configuration: the results are as good as these.".to_owned(),
        "Beside this file: results.csv (each point), best.toml (the chosen policy, if there is one), policies/ (the point that stands for each policy; `dflash explain` says why one beats another), each figure as .svg and .png.".to_owned(),
    ];
    if searched.interrupted {
        notes.insert(
            0,
            format!(
                "Interrupted: {} of {} points were simulated.",
                searched.rows.len(),
                searched.cases.len()
            ),
        );
    }
    Ok(notes)
}

fn described(description: &str) -> String {
    if description.is_empty() {
        String::new()
    } else {
        format!("{description}, ")
    }
}
