//! Which point to choose: the fastest that keeps the constraints, and among equals the one that needs least memory.

use crate::spec::Search;
use crate::sweep::{Row, Verdict};

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Row of the best point.
    pub best: Option<usize>,
    /// Rows whose throughput ties with the highest.
    pub ties: Vec<usize>,
    /// Rows on the Pareto front of throughput and hidden-state memory, by rising memory.
    pub front: Vec<usize>,
    /// Rows that ran and break a constraint, with it.
    pub excluded: Vec<(usize, String)>,
}

/// Chooses among rows. Indices are positions in `rows`.
pub fn choose(rows: &[Row], search: &Search) -> Choice {
    let mut choice = Choice::default();
    let mut kept = Vec::new();
    for (i, row) in rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.verdict() == Verdict::Done)
    {
        match breach(row, search) {
            Some(reason) => choice.excluded.push((i, reason)),
            None => kept.push(i),
        }
    }
    let speed = |i: usize| rows[i].throughput.mean;
    let memory = |i: usize| {
        rows[i]
            .outcome
            .as_ref()
            .map_or(u64::MAX, |o| o.metrics.peaks.alive_bytes.0)
    };
    let top = kept
        .iter()
        .copied()
        .max_by(|&a, &b| speed(a).total_cmp(&speed(b)));
    if let Some(top) = top {
        let enough = speed(top) * (1.0 - search.tolerance);
        choice.ties = kept
            .iter()
            .copied()
            .filter(|&i| speed(i) >= enough)
            .collect();
        choice.best = choice.ties.iter().copied().min_by(|&a, &b| {
            (memory(a), speed(b))
                .partial_cmp(&(memory(b), speed(a)))
                .expect("numbers compare")
        });
    }
    kept.sort_by(|&a, &b| {
        memory(a)
            .cmp(&memory(b))
            .then(speed(b).total_cmp(&speed(a)))
    });
    for i in kept {
        if choice
            .front
            .last()
            .is_none_or(|&last| speed(i) > speed(last))
        {
            choice.front.push(i);
        }
    }
    choice
}

/// The constraint that a row breaks.
fn breach(row: &Row, search: &Search) -> Option<String> {
    let outcome = row.outcome.as_ref().ok()?;
    let mix = &outcome.metrics.mix;
    if let Some(max) = search.mix_tv_max.filter(|&max| mix.tv_max > max) {
        return Some(format!(
            "a step's total variation is {:.3}, search.mix_tv_max = {max}",
            mix.tv_max
        ));
    }
    if let Some(min) = search
        .mix_step_min
        .filter(|&min| mix.distinct_min < u32::from(min))
    {
        return Some(format!(
            "a step holds {} distinct buckets, search.mix_step_min = {min}",
            mix.distinct_min
        ));
    }
    if let Some(max) = search.hs_bytes_max
        && outcome.metrics.peaks.alive_bytes > max.bytes()
    {
        return Some(format!(
            "hidden states peak at {}, search.hs_bytes_max = {}",
            outcome.metrics.peaks.alive_bytes,
            max.bytes()
        ));
    }
    let share = outcome.metrics.tokens_per_s() / outcome.bound.tokens_per_s();
    search
        .min_bound_share
        .filter(|&min| share < min)
        .map(|min| {
            format!(
                "throughput is {:.1} % of the bound, search.min_bound_share = {min}",
                share * 100.0
            )
        })
}
