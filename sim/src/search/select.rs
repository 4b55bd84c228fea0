//! The selection at the end of a search: more replications for whoever may still be the best.

use super::choice::{breach, choose};
use super::kn::{Demand, select};
use super::{Effort, Progress, Refusal, Tell};
use crate::run::Outcome;
use crate::spec::{Objective, Search};
use crate::sweep::{Point, Row, Verdict, simulate_once};
use crate::works::Works;
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Replications that the ranking of a search by halving begins with, if the scenario does not ask for more: variances of fewer make it dear.
pub(super) const REPLICATIONS_FIRST: u32 = 5;

/// Gives the rows that qualify and are not left behind more replications until one is selected and the ranking is not refused for want of
/// them. `point` is the one that a row was simulated with, by the row's index.
pub(super) fn settle<'p>(
    rows: &mut [Row],
    point: &dyn Fn(usize) -> &'p Point,
    search: &Search,
    stop: &AtomicBool,
    tell: Tell<'_>,
    effort: &mut Effort,
) {
    let contenders = contenders(rows, search);
    effort.contenders = contenders.len();
    let fastest = contenders
        .iter()
        .map(|&i| rows[i].throughput.mean)
        .fold(0.0, f64::max);
    let demand = Demand {
        zone: search.tolerance * fastest,
        confidence: search.confidence,
        contenders: contenders.len(),
        replications_max: search.replications_max.max(search.replications) as usize,
    };
    let asks =
        contenders.len() > 1 && demand.zone > 0.0 && search.objective == Objective::Throughput;
    if asks {
        effort.is_selected = selected(rows, point, &contenders, demand, stop, tell);
        while let Some(doubtful) = doubtful(rows, search, demand)
            && add(rows, point, &doubtful, stop, tell).is_some()
        {}
    }
    let counts = contenders.iter().map(|&i| rows[i].throughputs.len());
    effort.replications = counts.max().unwrap_or(0);
}

/// Replications on whose variances the selection rests: from fewer it would ask for many times as many.
const VARIANCE_FROM: usize = 8;

/// Whether one of these rows was selected. Where there are few replications, clear losers go by these; the others get more before variances
/// are taken, and each of the two stages has half of the error.
fn selected<'p>(
    rows: &mut [Row],
    point: &dyn Fn(usize) -> &'p Point,
    contenders: &[usize],
    demand: Demand,
    stop: &AtomicBool,
    tell: Tell<'_>,
) -> bool {
    let samples_of = |rows: &[Row], which: &[usize]| -> Vec<Vec<f64>> {
        which.iter().map(|&i| rows[i].throughputs.clone()).collect()
    };
    let mut left = contenders.to_vec();
    let mut demand = demand;
    let first = rows[contenders[0]].throughputs.len();
    if first < VARIANCE_FROM && first < demand.replications_max {
        demand.confidence = 1.0 - (1.0 - demand.confidence) / 2.0;
        let clear = select(&mut samples_of(rows, &left), demand, &mut |_| None);
        if clear.is_complete {
            return true;
        }
        left = clear.left.iter().map(|&place| left[place]).collect();
        for _ in first..VARIANCE_FROM.min(demand.replications_max) {
            if add(rows, point, &left, stop, tell).is_none() {
                return false;
            }
        }
    }
    let mut samples = samples_of(rows, &left);
    let selected = select(&mut samples, demand, &mut |places| {
        let which: Vec<usize> = places.iter().map(|&place| left[place]).collect();
        add(rows, point, &which, stop, tell)
    });
    selected.is_complete
}

/// Rows that may be chosen and have replications to be compared by.
fn contenders(rows: &[Row], search: &Search) -> Vec<usize> {
    let among = (0..rows.len()).filter(|&i| {
        let row = &rows[i];
        row.left_behind.is_none()
            && row.verdict() == Verdict::Done
            && row.throughputs.len() > 1
            && breach(row, search, 0.0).is_none()
    });
    let among: Vec<usize> = among.collect();
    // The selection begins with equally many replications of each.
    let most = among.iter().map(|&i| rows[i].throughputs.len()).max();
    among
        .into_iter()
        .filter(|&i| Some(rows[i].throughputs.len()) == most)
        .collect()
}

/// The rows between which a refused ranking is in doubt, if more replications are allowed.
fn doubtful(rows: &[Row], search: &Search, demand: Demand) -> Option<Vec<usize>> {
    let choice = choose(rows, search);
    let ranking = choice.ranking.as_ref()?;
    let Some(Refusal::Replications { row, .. }) = ranking.refusal else {
        return None;
    };
    let behind = |i: usize| rows[i].throughputs.len();
    let least = behind(row).min(behind(ranking.fastest));
    if least >= demand.replications_max {
        return None;
    }
    let mut both = vec![row, ranking.fastest];
    both.retain(|&i| behind(i) == least);
    Some(both)
}

/// Simulates the next replication of these rows; the throughputs, or `None` if it was stopped or one does not end well.
fn add<'p>(
    rows: &mut [Row],
    point: &dyn Fn(usize) -> &'p Point,
    which: &[usize],
    stop: &AtomicBool,
    tell: Tell<'_>,
) -> Option<Vec<f64>> {
    tell(Progress::Begins {
        what: "comparing",
        runs: which.len(),
    });
    let runs: Vec<(&Point, u32)> = which
        .iter()
        .map(|&i| (point(rows[i].index), rows[i].throughputs.len() as u32))
        .collect();
    let works = Works::expecting(runs.iter().copied());
    let outcomes: Vec<Option<Box<Outcome>>> = runs
        .par_iter()
        .map(|&(point, replication)| {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let outcome = simulate_once(point, replication, &works).ok();
            tell(Progress::Done);
            outcome
        })
        .collect();
    let outcomes: Option<Vec<_>> = outcomes.into_iter().collect();
    let outcomes = outcomes?;
    for (&i, outcome) in which.iter().zip(&outcomes) {
        rows[i].count_in(outcome);
    }
    Some(
        outcomes
            .iter()
            .map(|outcome| outcome.metrics.tokens_per_s())
            .collect(),
    )
}
