//! How sure an order of policies is: each against the fastest, on the same seeds, all comparisons judged together.

use super::choice::fastest;
use crate::spec::Search;
use crate::stats::{Paired, Settled, holm, replications_for};
use crate::sweep::Row;

/// The comparisons of a search with its fastest policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// Row of the fastest by mean.
    pub fastest: usize,
    /// Differences within this are ties. (tok/s)
    pub zone: f64,
    /// Probability with which all statements hold together.
    pub confidence: f64,
    /// Every other row that qualifies, in the order of the rows.
    pub comparisons: Vec<Comparison>,
    /// Why these runs do not carry an order, if they do not.
    pub refusal: Option<Refusal>,
}

/// One row against the fastest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Which row.
    pub row: usize,
    /// What the difference rests on.
    pub basis: Basis,
    /// How much slower it is: the fastest minus this one. (tok/s)
    pub difference: f64,
    /// Half the 95 % interval of this difference, by itself; `None` if it cannot be told. (tok/s)
    pub half_width: Option<f64>,
    /// Variance of the difference without common random numbers over that with them.
    pub variance_ratio: Option<f64>,
    /// p-value of "not slower", adjusted by Holm for the number of comparisons.
    pub p_slower: f64,
    /// How it stands.
    pub standing: Standing,
}

/// What a difference rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Replications on the same seeds, so many of them.
    Paired(usize),
    /// One run each, whose spread its own batches tell.
    Batches,
    /// One short run each: the means alone.
    Means,
}

/// How a policy stands to the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Slower, beyond doubt.
    Slower,
    /// Within the tolerance, beyond doubt.
    Tie,
    /// Neither is beyond doubt.
    Open,
}

/// Why runs do not carry an order.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// Row `row` may be the faster one by more than the zone.
    #[error(
        "after {have} replications, runs cannot tell whether another policy is faster by more than search.tolerance; write search.replications = {needed}, make runs longer or raise search.tolerance"
    )]
    Replications {
        /// The row that may be faster.
        row: usize,
        /// Replications there are.
        have: usize,
        /// Replications that would do.
        needed: usize,
    },
    /// Row `row` is not steady within its run.
    #[error(
        "a run of {microbatches} microbatches is too short: more than half of it is warm-up; simulate at least {needed} microbatches (more workload.samples or epochs)"
    )]
    WarmUp {
        /// The row that does not settle.
        row: usize,
        /// Microbatches of its run.
        microbatches: u32,
        /// Microbatches that would do if the warm-up takes no longer.
        needed: u32,
    },
}

impl Ranking {
    /// How a row stands; `None` for the fastest and for rows that are not ranked.
    pub fn standing(&self, row: usize) -> Option<Standing> {
        self.of(row).map(|comparison| comparison.standing)
    }

    /// The comparison of a row with the fastest.
    pub fn of(&self, row: usize) -> Option<&Comparison> {
        self.comparisons.iter().find(|c| c.row == row)
    }
}

/// Compares these rows with the fastest of them; `None` for fewer than two.
pub(super) fn rank(rows: &[Row], among: &[usize], search: &Search) -> Option<Ranking> {
    let best = fastest(rows, among)?;
    let rivals: Vec<usize> = among.iter().copied().filter(|&i| i != best).collect();
    if rivals.is_empty() {
        return None;
    }
    let zone = search.tolerance * rows[best].throughput.mean;
    let pairs: Vec<Pair> = rivals
        .iter()
        .map(|&i| Pair::of(&rows[best], &rows[i]))
        .collect();
    let adjusted = |p: &dyn Fn(&Paired) -> f64| {
        let raw: Vec<f64> = pairs.iter().map(|pair| p(&pair.paired)).collect();
        holm(&raw)
    };
    let p_slower = adjusted(&|p| p.p_at_most(0.0));
    let p_tie = adjusted(&|p| p.p_at_least(zone));
    // That the rival is faster by more than the zone.
    let p_faster = adjusted(&|p| p.p_at_most(-zone));
    let alpha = 1.0 - search.confidence;
    let comparisons: Vec<Comparison> = pairs
        .iter()
        .enumerate()
        .map(|(i, pair)| {
            let standing = match pair.basis {
                Basis::Means if pair.paired.mean <= zone => Standing::Tie,
                Basis::Means => Standing::Slower,
                _ if p_tie[i] <= alpha || pair.paired.mean == 0.0 && pair.paired.error == 0.0 => {
                    Standing::Tie
                }
                _ if p_slower[i] <= alpha => Standing::Slower,
                _ => Standing::Open,
            };
            pair.comparison(rivals[i], p_slower[i], standing)
        })
        .collect();
    let refusal = unsettled(rows, best, &comparisons)
        .or_else(|| too_few(&rivals, &pairs, &p_faster, zone, search));
    Some(Ranking {
        fastest: best,
        zone,
        confidence: search.confidence,
        comparisons,
        refusal,
    })
}

struct Pair {
    paired: Paired,
    basis: Basis,
}

/// Batches that a run's own error rests on.
const BATCHES: usize = 10;

impl Pair {
    fn of(best: &Row, rival: &Row) -> Self {
        if let Some(paired) = Paired::of(&best.throughputs, &rival.throughputs) {
            let basis = Basis::Paired(paired.count);
            return Self { paired, basis };
        }
        let error = |row: &Row| {
            let outcome = row.outcome.as_ref().ok()?;
            Some(outcome.relative_error? * row.throughput.mean)
        };
        let mean = best.throughput.mean - rival.throughput.mean;
        let errors = error(best).zip(error(rival));
        Self {
            basis: errors.map_or(Basis::Means, |_| Basis::Batches),
            paired: Paired {
                mean,
                // The runs share their work, which would make the error smaller; how much, one run does not tell.
                error: errors.map_or(0.0, |(a, b)| a.hypot(b)),
                count: BATCHES,
                variance_ratio: None,
            },
        }
    }

    fn comparison(&self, row: usize, p_slower: f64, standing: Standing) -> Comparison {
        let told = self.basis != Basis::Means;
        Comparison {
            row,
            basis: self.basis,
            difference: self.paired.mean,
            half_width: told.then(|| self.paired.half_width(crate::stats::CONFIDENCE)),
            variance_ratio: self.paired.variance_ratio,
            p_slower: if told { p_slower } else { f64::NAN },
            standing,
        }
    }
}

/// The fastest, or one that may be level with it, that is not steady.
fn unsettled(rows: &[Row], best: usize, comparisons: &[Comparison]) -> Option<Refusal> {
    let level = comparisons
        .iter()
        .filter(|c| c.standing != Standing::Slower)
        .map(|c| c.row);
    std::iter::once(best).chain(level).find_map(|row| {
        let outcome = rows[row].outcome.as_ref().ok()?;
        let warm_up = outcome.warm_up.filter(|w| w.settled == Settled::No)?;
        let microbatches = outcome.metrics.microbatches;
        // The cut stands at half of the run and belongs further back: twice the run has room for it, four times for the rest as well.
        let needed = microbatches.saturating_mul(4);
        debug_assert!(warm_up.cut <= warm_up.steps);
        Some(Refusal::WarmUp {
            row,
            microbatches,
            needed,
        })
    })
}

/// Replications beyond which no more is promised.
const NEEDED_MAX: usize = 100_000;

/// The rival of which it is least sure that it is not faster by more than the zone.
fn too_few(
    rivals: &[usize],
    pairs: &[Pair],
    p_faster: &[f64],
    zone: f64,
    search: &Search,
) -> Option<Refusal> {
    let alpha = 1.0 - search.confidence;
    // Without a zone nothing is a tie, and equal policies could never be told apart.
    if zone <= 0.0 {
        return None;
    }
    let doubtful = (0..pairs.len()).filter(|&i| match pairs[i].basis {
        Basis::Means => pairs[i].paired.mean <= MEANS_CLEAR * zone,
        Basis::Paired(_) | Basis::Batches => p_faster[i] > alpha,
    });
    let worst = doubtful.max_by(|&a, &b| p_faster[a].total_cmp(&p_faster[b]))?;
    let Pair { paired, basis } = &pairs[worst];
    let have = match basis {
        Basis::Paired(count) => *count,
        Basis::Batches | Basis::Means => 1,
    };
    let deviation = match basis {
        Basis::Paired(count) => paired.error * (*count as f64).sqrt(),
        // A run's own error is that of one replication.
        Basis::Batches | Basis::Means => paired.error,
    };
    let confidence = 1.0 - 2.0 * alpha / pairs.len() as f64;
    let needed = replications_for(deviation, zone + paired.mean, confidence, NEEDED_MAX);
    Some(Refusal::Replications {
        row: rivals[worst],
        have,
        needed: needed.max(have + 1).max(REPLICATIONS_LEAST),
    })
}

/// So many zones apart, single short runs without any measure of their spread are taken to differ.
const MEANS_CLEAR: f64 = 10.0;

/// Fewest replications whose spread says something.
const REPLICATIONS_LEAST: usize = 3;

#[cfg(test)]
mod tests;
