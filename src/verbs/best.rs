//! `best.toml`: the chosen policy with everything `exec` needs and what to expect of it.

use crate::failure::Failure;
use crate::output::OutputDir;
use crate::scenario::{Case, Expect, PolicyFile, Provenance};
use crate::verbs::sim::{Searched, plain};
use shared::plan::Plan;
use shared::record::Digest;
use sim::{Estimate, Point, prepare};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The chosen row as a policy file, its expectation measured on fresh seeds.
pub(crate) fn policy_file(searched: &Searched, best: usize) -> Result<PolicyFile, Failure> {
    expecting(searched, best, &fresh(searched, best)?)
}

/// A row as a policy file, its expectation as the search measured it.
pub(crate) fn candidate(searched: &Searched, row: usize) -> Result<PolicyFile, Failure> {
    expecting(searched, row, &searched.rows[row].throughput)
}

fn expecting(searched: &Searched, row: usize, fresh: &Estimate) -> Result<PolicyFile, Failure> {
    let row = &searched.rows[row];
    let case = &searched.cases[row.index];
    let mut file = case.file.clone();
    let outcome = row.outcome.as_ref().map_err(Failure::usage)?;
    let most = |parts: &[sim::Part]| parts.iter().map(|p| p.total().0).max().unwrap_or(0);
    file.expect = Expect {
        throughput_tok_s: rounded(fresh.mean),
        throughput_ci_low: rounded(fresh.low()),
        throughput_ci_high: rounded(fresh.high()),
        bound_tok_s: rounded(outcome.bound.tokens_per_s()),
        hs_slots_peak: outcome.metrics.peaks.slots,
        hs_bytes_peak: outcome.metrics.peaks.slot_bytes.0,
        host_bytes_peak: outcome.memory.host.total().0,
        target_gpu_bytes_peak: most(&outcome.memory.targets),
        drafter_gpu_bytes_peak: most(&outcome.memory.drafters),
    };
    let plan = plan_of(case)?;
    file.provenance = provenance(case, &plan);
    let edges = sim::edges(&file.workload.buckets, &case.lengths).map_err(Failure::usage)?;
    file.workload.buckets = sim::spec::Buckets::Edges(edges.as_slice().to_vec());
    Ok(file)
}

fn rounded(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}

/// Throughput of a row on seeds that the search did not use: the search's own figure favours luck, and stands only where it was stopped.
fn fresh(searched: &Searched, row: usize) -> Result<Estimate, Failure> {
    if let Some((confirmed, confirmation)) = &searched.confirmation
        && *confirmed == row
    {
        return Ok(confirmation.throughput);
    }
    let case = &searched.cases[searched.rows[row].index];
    let point = Point {
        resolved: case.file.resolved(),
        lengths: Arc::clone(&case.lengths),
    };
    let stop = AtomicBool::new(searched.interrupted);
    let share = searched.effort.share;
    let confirmed = sim::confirm(&point, share, case.search.tolerance, &stop, &|_| {});
    let confirmed = confirmed.map_err(Failure::usage)?;
    Ok(confirmed.map_or(searched.rows[row].throughput, |c| c.throughput))
}

/// The plan of a case.
pub(crate) fn plan_of(case: &Case) -> Result<Arc<Plan>, Failure> {
    let resolved = case.file.resolved();
    let work = prepare(&resolved, &case.lengths).map_err(Failure::usage)?;
    sim::plan(&resolved, &work).map_err(Failure::usage)
}

/// Fingerprints of what the policy was searched on; `plan` is the plan of `case`.
pub(crate) fn provenance(case: &Case, plan: &Plan) -> Provenance {
    Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("DFLASH_COMMIT").unwrap_or("unknown").to_owned(),
        scenario: case.file.name.clone(),
        costs_hash: costs_hash(&case.file),
        lengths_hash: lengths_hash(&case.lengths),
        plan_hash: format!("{:016x}", plan.digest()),
    }
}

/// Fingerprint of a cost section.
pub(crate) fn costs_hash(file: &PolicyFile) -> String {
    let mut digest = Digest::default();
    digest.add(toml::to_string(&file.costs).unwrap_or_default().as_bytes());
    format!("{:016x}", digest.finish())
}

/// Fingerprint of lengths, in the order of the data.
pub(crate) fn lengths_hash(lengths: &[u32]) -> String {
    let mut digest = Digest::default();
    for &length in lengths {
        digest.word(u64::from(length));
    }
    format!("{:016x}", digest.finish())
}

/// Writes the point that stands for each of several policies as `policies/NAME.toml`, so that they can be explained and predicted again.
pub(crate) fn write_candidates(
    dir: &OutputDir,
    searched: &Searched,
    candidates: &[(String, usize)],
) -> Result<(), Failure> {
    if candidates.len() < 2 {
        return Ok(());
    }
    let dir = OutputDir::create(&dir.path().join("policies"))?;
    for (name, row) in candidates {
        let text = text(&candidate(searched, *row)?)?;
        dir.write(&format!("{}.toml", plain(name)), text.as_bytes())?;
    }
    Ok(())
}

/// Writes `best.toml`.
pub(crate) fn write(dir: &OutputDir, file: &PolicyFile) -> Result<(), Failure> {
    let text = text(file)?;
    dir.write("best.toml", text.as_bytes())?;
    Ok(())
}

/// A policy file as text, with a comment on top.
pub(crate) fn text(file: &PolicyFile) -> Result<String, Failure> {
    let body = toml::to_string_pretty(file)
        .map_err(|e| Failure::usage(format!("best.toml: cannot be written as TOML: {e}")))?;
    Ok(format!(
        "# A policy of `dflash sim` for scenario \"{}\". Concrete and complete:\n# `dflash exec --policy FILE` runs it, `dflash sim FILE` predicts it again.\n\n{body}",
        file.name
    ))
}
