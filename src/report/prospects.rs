//! What lies around the answer, on seeds that the search did not use: small changes of the box, the price of the mixing rule, all GPUs
//! taking turns, and how long the data set takes.

use super::group::groups;
use crate::scenario::Case;
use crate::terminal::bar;
use crate::verbs::sim::Searched;
use shared::policy::Enforce;
use sim::spec::Search;
use sim::{
    Change, Colocated, Effect, Estimate, Outcome, Outcomes, Point, Verdict, choose, gain, paired,
};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Replications on seeds that no search uses.
const FRESH: std::ops::Range<u32> = 1_000_000..1_000_005;

/// What lies around the chosen policy.
#[derive(Clone, Debug)]
pub(crate) struct Prospects {
    /// What small changes of the box would do, in the order of reports.
    pub(crate) effects: Vec<Effect>,
    /// What the mixing rule costs, where there is one.
    pub(crate) rule: Option<Rule>,
    /// What the same GPUs would give taking turns.
    pub(crate) colocated: Option<Colocated>,
    /// The throughput that the estimate of turns compares with. (tok/s)
    pub(crate) run_tokens_per_s: Estimate,
    /// From the first forward to the last optimizer step. (s)
    pub(crate) makespan: Estimate,
}

/// What a policy free of the mixing rule would gain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    /// The fastest one found without the rule.
    pub(crate) without: String,
    /// By how much it is faster, as a share. (1)
    pub(crate) gain: Estimate,
}

/// Looks around the chosen row; `None` where it cannot be simulated on fresh seeds, or the user stopped.
pub(crate) fn prospects(searched: &Searched, best: usize, stop: &AtomicBool) -> Option<Prospects> {
    let case = &searched.cases[searched.rows[best].index];
    let base = point(case);
    let work = sim::prepare(&base.resolved, &base.lengths).ok()?;
    let changes: Vec<(Change, Point)> = Change::ALL
        .into_iter()
        .filter_map(|change| {
            let resolved = change.of(&base.resolved, &work)?;
            let lengths = Arc::clone(&base.lengths);
            Some((change, Point { resolved, lengths }))
        })
        .collect();
    let free = without_rule(searched, best, &base);
    let mut points = vec![base.clone()];
    points.extend(changes.iter().map(|(_, point)| point.clone()));
    points.extend(free.iter().map(|(_, point)| point.clone()));
    let replications = FRESH;
    let progress = bar(
        (points.len() * replications.len()) as u64,
        "weighing changes",
    );
    let outcomes = sim::side_by_side(&points, replications, stop, &|| progress.inc(1));
    progress.finish_and_clear();
    let (base_outcomes, rest) = outcomes.split_first()?;
    let base_outcomes = base_outcomes.as_ref().ok()?;
    let (changed, freed) = rest.split_at(changes.len());
    let effects = changes.iter().zip(changed);
    Some(Prospects {
        effects: effects
            .map(|((change, _), outcomes)| Effect::of(*change, base_outcomes, outcomes))
            .collect(),
        rule: rule(base_outcomes, &free, freed),
        // Where workers share GPUs as it is, the policy is no alternative to that.
        colocated: base
            .resolved
            .hardware
            .sharing
            .is_none()
            .then(|| Colocated::of(&base.resolved, &work).ok())
            .flatten(),
        run_tokens_per_s: mean(base_outcomes, |outcome| outcome.metrics.run_tokens_per_s()),
        makespan: mean(base_outcomes, |outcome| {
            outcome.metrics.makespan.as_ns() as f64 / 1e9
        }),
    })
}

fn point(case: &Case) -> Point {
    Point {
        resolved: case.file.resolved(),
        lengths: Arc::clone(&case.lengths),
    }
}

fn mean(outcomes: &[Outcome], value: impl Fn(&Outcome) -> f64) -> Estimate {
    paired(outcomes, outcomes, |outcome, _| value(outcome))
}

/// Candidates for the fastest policy without the mixing rule: the fastest row that only the rule excludes, and the chosen policy
/// with its own rule off. Empty where nothing is ruled.
fn without_rule(searched: &Searched, best: usize, base: &Point) -> Vec<(String, Point)> {
    let case = &searched.cases[searched.rows[best].index];
    let mut free = Vec::new();
    let search = &case.search;
    if search.mix_step_min.is_some() || search.mix_tv_max.is_some() {
        let lax = Search {
            mix_step_min: None,
            mix_tv_max: None,
            ..search.clone()
        };
        let excluded = choose(&searched.rows, &lax).excluded;
        let kept = searched.rows.iter().enumerate().filter(|(row, found)| {
            found.verdict() == Verdict::Done && !excluded.iter().any(|(other, _)| other == row)
        });
        let fastest = kept.max_by(|(_, x), (_, y)| x.throughput.mean.total_cmp(&y.throughput.mean));
        let fastest = fastest.map(|(row, _)| row);
        if let Some(row) = fastest.filter(|&row| row != best) {
            let names = groups(searched);
            let name = names.iter().find(|group| group.rows.contains(&row));
            let name = name.map_or_else(String::new, |group| group.name.clone());
            free.push((name, point(&searched.cases[searched.rows[row].index])));
        }
    }
    let policy = &base.resolved.policy;
    if policy.mix_step_min > 1 || policy.mix_window_min > 1 {
        let mut point = base.clone();
        point.resolved.policy.mix_step_min = 0;
        point.resolved.policy.mix_window_min = 0;
        point.resolved.policy.mix_enforce = Enforce::Record;
        free.push((format!("{} without its rule", policy.name), point));
    }
    free
}

fn rule(base: &[Outcome], free: &[(String, Point)], outcomes: &[Outcomes]) -> Option<Rule> {
    let rules = free
        .iter()
        .zip(outcomes)
        .filter_map(|((name, _), outcome)| {
            Some(Rule {
                without: name.clone(),
                gain: gain(base, outcome.as_ref().ok()?),
            })
        });
    rules.max_by(|a, b| a.gain.mean.total_cmp(&b.gain.mean))
}
