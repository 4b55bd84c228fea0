//! Why a point is chosen or not: ties, constraints that are broken, deadlocks, what cannot run.

use super::group::{Group, point_name};
use super::quantity::{count, gib, percent};
use crate::verbs::sim::Searched;
use shared::core::{Stall, Wait};
use sim::{End, Row, Verdict};

/// Points of one policy that share a reason.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reason {
    /// The policy.
    pub(crate) name: String,
    /// The fastest of its points. (tok/s)
    pub(crate) speed: f64,
    /// How many of its points.
    pub(crate) points: usize,
    /// The reason, for the first of them.
    pub(crate) text: String,
}

/// How many points tie with the fastest and why one of them is chosen; `None` if only one is that fast.
pub(crate) fn ties(searched: &Searched, groups: &[Group]) -> Option<String> {
    let choice = &searched.choice;
    let best = choice.named()?;
    if choice.ties.len() < 2 {
        return None;
    }
    let names = groups.iter().filter_map(|group| {
        let own = choice.ties.iter().filter(|&i| group.rows.contains(i));
        let points = own.count();
        (points > 0).then(|| format!("{} ({})", group.name, points))
    });
    let tolerance = searched.cases[searched.rows[best].index].search.tolerance;
    let memory = searched.rows[best].outcome.as_ref().ok()?;
    Some(format!(
        "{} tie within {} % of the fastest: {}; the one with the least hidden states wins ({} GiB at the peak)",
        count(choice.ties.len(), "point"),
        percent(tolerance),
        names.collect::<Vec<_>>().join(", "),
        gib(memory.metrics.peaks.alive_bytes.0)
    ))
}

/// Points that are done and break a constraint of the search, by policy and constraint.
pub(crate) fn excluded(searched: &Searched, groups: &[Group]) -> Vec<Reason> {
    let broken = searched.choice.excluded.iter().map(|(row, reason)| {
        let constraint = reason.rsplit(", ").next().unwrap_or(reason);
        (*row, constraint.to_owned(), reason.clone())
    });
    grouped(searched, groups, broken)
}

/// Points that cannot be set up, or not in the memory there is, by policy and reason.
pub(crate) fn infeasible(searched: &Searched, groups: &[Group]) -> Vec<Reason> {
    let rows = searched.rows.iter().enumerate();
    let infeasible = rows.filter(|(_, row)| row.verdict() == Verdict::Infeasible);
    grouped(
        searched,
        groups,
        infeasible.map(|(i, row)| {
            let reason = why_infeasible(row);
            let key = reason.chars().filter(|c| !c.is_ascii_digit()).collect();
            (i, key, reason)
        }),
    )
}

fn why_infeasible(row: &Row) -> String {
    match &row.outcome {
        Err(error) => error.to_string(),
        Ok(outcome) => {
            let places: Vec<String> = outcome.overflow.iter().map(ToString::to_string).collect();
            places.join("; ")
        }
    }
}

fn grouped(
    searched: &Searched,
    groups: &[Group],
    rows: impl Iterator<Item = (usize, String, String)>,
) -> Vec<Reason> {
    let mut reasons: Vec<(String, Reason)> = Vec::new();
    for (row, key, text) in rows {
        let speed = searched.rows[row].throughput.mean;
        let name = groups.iter().find(|group| group.rows.contains(&row));
        let name = name.map_or_else(String::new, |group| group.name.clone());
        let known = reasons
            .iter_mut()
            .find(|(k, reason)| *k == key && reason.name == name);
        if let Some((_, reason)) = known {
            reason.points += 1;
            reason.speed = reason.speed.max(speed);
        } else {
            let points = 1;
            reasons.push((
                key,
                Reason {
                    name,
                    speed,
                    points,
                    text,
                },
            ));
        }
    }
    reasons.into_iter().map(|(_, reason)| reason).collect()
}

/// The first deadlock of each policy that has one: its name, how many of its points deadlock, and the stall.
pub(crate) fn deadlocks<'a>(searched: &'a Searched, groups: &[Group]) -> Vec<(String, &'a Stall)> {
    let of_group = |group: &Group| {
        let mut stalled = group.rows.iter().filter_map(|&i| {
            let row = &searched.rows[i];
            match row.outcome.as_ref().map(|outcome| &outcome.end) {
                Ok(End::Deadlock(stall)) => Some((row, stall)),
                _ => None,
            }
        });
        let (row, stall) = stalled.next()?;
        let more = stalled.count();
        let point = point_name(&searched.cases[row.index]);
        let mut name = group.name.clone();
        if !point.is_empty() {
            name.push_str(&format!(" ({point})"));
        }
        if more > 0 {
            name.push_str(&format!(" and {}", count(more, "more point")));
        }
        Some((name, stall))
    };
    groups.iter().filter_map(of_group).collect()
}

/// What waits, at most `lines_max` lines of it.
pub(crate) fn waits(stall: &Stall, lines_max: usize) -> Vec<String> {
    let mut waits: Vec<&Wait> = stall.waits.iter().collect();
    waits.sort_by_key(|wait| telling(wait));
    let shown = waits.into_iter().take(lines_max);
    let mut lines: Vec<String> = shown.map(ToString::to_string).collect();
    let more = stall.waits.len().saturating_sub(lines_max);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// Waits that tell most about a deadlock come first: drafters end it, targets and queues only fill up behind them.
const fn telling(wait: &Wait) -> u8 {
    match wait {
        Wait::Workers { .. } => 0,
        Wait::HiddenStates { .. } => 1,
        Wait::Barrier { .. } => 2,
        Wait::Begin { .. } | Wait::SlotFor { .. } => 3,
        Wait::Taker { .. } => 4,
    }
}

/// When a run stalled and what was open then, in one line: `at 150.252 s: …`.
pub(crate) fn stall_line(stall: &Stall) -> String {
    let text = stall.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("deadlock ").unwrap_or(line).to_owned()
}
