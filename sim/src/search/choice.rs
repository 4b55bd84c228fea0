//! Which point to choose: the fastest that keeps the constraints and, among ties, the one that needs least memory; or the smallest that is
//! fast enough.

use super::ranking::{Ranking, Standing, rank};
use crate::spec::{Objective, Search};
use crate::sweep::{Row, Verdict};

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// Row of the best point.
    pub best: Option<usize>,
    /// Rows whose throughput ties with the highest, that one included.
    pub ties: Vec<usize>,
    /// Rows on the Pareto front of throughput and hidden-state memory, by rising memory.
    pub front: Vec<usize>,
    /// Rows that ran and break a constraint, with it.
    pub excluded: Vec<(usize, String)>,
    /// How sure the order is; `None` where fewer than two points qualify.
    pub ranking: Option<Ranking>,
}

impl Choice {
    /// Why the points may not be ranked, if they may not.
    pub fn refusal(&self) -> Option<&super::Refusal> {
        self.ranking.as_ref()?.refusal.as_ref()
    }

    /// The best, unless the points may not be ranked.
    pub fn named(&self) -> Option<usize> {
        self.best.filter(|_| self.refusal().is_none())
    }
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
        match breach(row, search, 0.0) {
            Some(reason) => choice.excluded.push((i, reason)),
            None => kept.push(i),
        }
    }
    let ranked = kept.iter().copied();
    let ranked: Vec<usize> = ranked.filter(|&i| rows[i].left_behind.is_none()).collect();
    match search.objective {
        Objective::Throughput => by_throughput(&mut choice, rows, &ranked, search),
        Objective::Memory => by_memory(&mut choice, rows, &ranked),
    }
    choice.front = front(rows, kept);
    choice
}

fn by_throughput(choice: &mut Choice, rows: &[Row], ranked: &[usize], search: &Search) {
    choice.ranking = rank(rows, ranked, search);
    let Some(fastest) = fastest(rows, ranked) else {
        return;
    };
    choice.ties = match &choice.ranking {
        None => vec![fastest],
        Some(ranking) => {
            let tied = |i: usize| i == fastest || ranking.standing(i) == Some(Standing::Tie);
            ranked.iter().copied().filter(|&i| tied(i)).collect()
        }
    };
    choice.best = smallest(rows, &choice.ties);
}

fn by_memory(choice: &mut Choice, rows: &[Row], ranked: &[usize]) {
    choice.best = smallest(rows, ranked);
    choice.ties = choice.best.into_iter().collect();
}

/// Of these rows, the one with the highest mean throughput; the first among equals. Only those with most replications count: the selection
/// went on with them, and the mean of fewer seeds may be high by their luck.
pub(super) fn fastest(rows: &[Row], among: &[usize]) -> Option<usize> {
    let speed = |i: usize| rows[i].throughput.mean;
    let count = |i: usize| rows[i].throughputs.len();
    let most = among.iter().map(|&i| count(i)).max();
    among
        .iter()
        .copied()
        .filter(|&i| Some(count(i)) == most)
        .max_by(|&a, &b| speed(a).total_cmp(&speed(b)).then(b.cmp(&a)))
}

/// Of these rows, the one with the least hidden states; the fastest among equals.
fn smallest(rows: &[Row], among: &[usize]) -> Option<usize> {
    among.iter().copied().min_by(|&a, &b| {
        memory(&rows[a])
            .cmp(&memory(&rows[b]))
            .then(rows[b].throughput.mean.total_cmp(&rows[a].throughput.mean))
            .then(a.cmp(&b))
    })
}

/// Bytes of hidden states at the peak of a row's first replication.
pub(super) fn memory(row: &Row) -> u64 {
    let outcome = row.outcome.as_ref();
    outcome.map_or(u64::MAX, |o| o.metrics.peaks.alive_bytes.0)
}

fn front(rows: &[Row], mut kept: Vec<usize>) -> Vec<usize> {
    let speed = |i: usize| rows[i].throughput.mean;
    kept.sort_by(|&a, &b| {
        memory(&rows[a])
            .cmp(&memory(&rows[b]))
            .then(speed(b).total_cmp(&speed(a)))
    });
    let mut front: Vec<usize> = Vec::new();
    for i in kept {
        if front.last().is_none_or(|&last| speed(i) > speed(last)) {
            front.push(i);
        }
    }
    front
}

/// The constraint that a row breaks by more than the share `slack` of its limit, 0 for not at all.
pub(super) fn breach(row: &Row, search: &Search, slack: f64) -> Option<String> {
    row.outcome.as_ref().ok()?;
    let worst = &row.worst;
    if let Some(max) = search.mix_tv_max
        && worst.tv_max > max * (1.0 + slack)
    {
        return Some(format!(
            "a step's total variation is {:.3}, search.mix_tv_max = {max}",
            worst.tv_max
        ));
    }
    if let Some(min) = search.mix_step_min
        && f64::from(worst.distinct_min) < f64::from(min) * (1.0 - slack)
    {
        return Some(format!(
            "a step holds {} distinct buckets, search.mix_step_min = {min}",
            worst.distinct_min
        ));
    }
    if let Some(max) = search.hs_bytes_max
        && worst.alive_bytes > max.bytes()
    {
        return Some(format!(
            "hidden states peak at {}, search.hs_bytes_max = {}",
            worst.alive_bytes,
            max.bytes()
        ));
    }
    if let Some(min) = search.min_bound_share
        && worst.bound_share < min * (1.0 - slack)
    {
        return Some(format!(
            "throughput is {:.1} % of the bound, search.min_bound_share = {min}",
            worst.bound_share * 100.0
        ));
    }
    // A claim of speed must hold at the interval's lower end, not at its mean alone.
    if let Some(min) = search.throughput_min_tok_s
        && row.throughput.low() < min * (1.0 - slack)
    {
        return Some(format!(
            "throughput is {:.0} ± {:.0} tok/s, search.throughput_min_tok_s = {min}",
            row.throughput.mean, row.throughput.half_width
        ));
    }
    None
}
