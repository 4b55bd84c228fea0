//! Figures over all points of a search: throughput and memory against depth, and the one against the other.

use super::group::{Group, mark_explained, slots_max};
use super::quantity::{gib_of, whole};
use crate::figure::{
    Chosen, DepthPoint, DepthSeries, Heading, MemoryDepth, MemoryPoint, MemorySeries, Pareto,
    ParetoPoint, ParetoSeries, ThroughputDepth,
};
use crate::verbs::sim::Searched;
use sim::{Outcome, Row, Verdict};
use std::collections::BTreeMap;

/// Bounds further apart than this share are different bounds, for which no one line can stand.
const BOUND_SPREAD: f64 = 0.01;

/// Throughput against depth; `None` unless some policy was simulated at two depths.
pub(crate) fn throughput_depth(
    searched: &Searched,
    groups: &[Group],
    heading: impl Fn(&str, &str) -> Heading,
) -> Option<ThroughputDepth> {
    if !sweeps_depth(searched, groups) {
        return None;
    }
    let policies: Vec<_> = groups.iter().map(|group| depths(searched, group)).collect();
    let replications = searched.rows.iter().map(|r| r.throughput.count).max();
    let shown = match replications {
        Some(n) if n > 1 => format!("mean of {n} replications with 95 % interval"),
        _ => "one replication".to_owned(),
    };
    Some(ThroughputDepth {
        heading: heading(
            "Throughput against depth",
            &format!("{shown}{}", mark_explained(searched)),
        ),
        policies,
        bound_tok_s: common_bound(searched),
    })
}

/// Memory of hidden states and of the host against depth; `None` unless some policy was simulated at two depths.
pub(crate) fn memory_depth(
    searched: &Searched,
    groups: &[Group],
    heading: impl Fn(&str, &str) -> Heading,
) -> Option<MemoryDepth> {
    if !sweeps_depth(searched, groups) {
        return None;
    }
    let series = |group: &Group| MemorySeries {
        policy: group.label(searched),
        points: fastest_by_depth(searched, group)
            .into_iter()
            .map(|(depth, (_, outcome))| MemoryPoint {
                depth: f64::from(depth),
                hs_gib: gib_of(outcome.metrics.peaks.alive_bytes.0),
                host_gib: gib_of(outcome.memory.host.total().0),
            })
            .collect(),
    };
    let shown = format!(
        "peaks of hidden states, in slots and in hand, and of host memory{}",
        mark_explained(searched)
    );
    Some(MemoryDepth {
        heading: heading("Memory against depth", &shown),
        policies: groups.iter().map(series).collect(),
    })
}

/// Throughput against memory of all points that are done; `None` if these are fewer than two.
pub(crate) fn pareto(
    searched: &Searched,
    groups: &[Group],
    heading: impl Fn(&str, &str) -> Heading,
) -> Option<Pareto> {
    let done = groups.iter().flat_map(|group| group.done(searched));
    if done.count() < 2 {
        return None;
    }
    let point = |row: usize| {
        let row = &searched.rows[row];
        let bytes = row.outcome.as_ref().map(|o| o.metrics.peaks.alive_bytes.0);
        ParetoPoint {
            hs_gib: bytes.map_or(f64::NAN, gib_of),
            throughput_tok_s: row.throughput.mean,
        }
    };
    let series = |group: &Group| ParetoSeries {
        policy: group.label(searched),
        points: group.done(searched).map(|(i, _)| point(i)).collect(),
    };
    let chosen = searched.choice.best.map(|best| {
        let name = groups.iter().find(|group| group.rows.contains(&best));
        let point = point(best);
        Chosen {
            point,
            label: format!(
                "chosen: {}, {} tok/s, {:.1} GiB",
                name.map_or("chosen", |group| &group.name),
                whole(point.throughput_tok_s),
                point.hs_gib
            ),
        }
    });
    let shown = format!("all points that are done{}", mark_explained(searched));
    Some(Pareto {
        heading: heading("Throughput against memory", &shown),
        policies: groups.iter().map(series).collect(),
        front: searched
            .choice
            .front
            .iter()
            .map(|&row| point(row))
            .collect(),
        chosen,
        bound_tok_s: common_bound(searched),
    })
}

fn sweeps_depth(searched: &Searched, groups: &[Group]) -> bool {
    let at_two = |group: &Group| {
        let series = depths(searched, group);
        series.points.len() + series.deadlocks.len() > 1
    };
    groups.iter().any(at_two)
}

fn depths(searched: &Searched, group: &Group) -> DepthSeries {
    let fastest = fastest_by_depth(searched, group);
    let points = fastest.iter().map(|(&depth, (row, _))| {
        let estimate = row.throughput;
        let has_interval = estimate.count > 1;
        let end = |value: f64| if has_interval { value } else { f64::NAN };
        DepthPoint {
            depth: f64::from(depth),
            throughput_tok_s: estimate.mean,
            ci_low_tok_s: end(estimate.low()),
            ci_high_tok_s: end(estimate.high()),
        }
    });
    let mut deadlocks: Vec<u32> = group
        .rows
        .iter()
        .map(|&i| &searched.rows[i])
        .filter(|row| row.verdict() == Verdict::Deadlock)
        .filter_map(|row| slots_max(&searched.cases[row.index].file.policy))
        .filter(|depth| !fastest.contains_key(depth))
        .collect();
    deadlocks.sort_unstable();
    deadlocks.dedup();
    DepthSeries {
        policy: group.label(searched),
        points: points.collect(),
        deadlocks: deadlocks.into_iter().map(f64::from).collect(),
    }
}

/// The fastest point at each depth, if more than the depth is swept.
fn fastest_by_depth<'a>(
    searched: &'a Searched,
    group: &'a Group,
) -> BTreeMap<u32, (&'a Row, &'a Outcome)> {
    let mut fastest: BTreeMap<u32, (&Row, &Outcome)> = BTreeMap::new();
    for (_, row) in group.done(searched) {
        let depth = slots_max(&searched.cases[row.index].file.policy);
        let (Some(depth), Ok(outcome)) = (depth, &row.outcome) else {
            continue;
        };
        let known = fastest.entry(depth).or_insert((row, outcome));
        if row.throughput.mean > known.0.throughput.mean {
            *known = (row, outcome);
        }
    }
    fastest
}

/// The bound, if all points that are done have nearly the same one. (tok/s)
fn common_bound(searched: &Searched) -> Option<f64> {
    let bounds = searched
        .rows
        .iter()
        .filter(|row| row.verdict() == Verdict::Done)
        .filter_map(|row| row.outcome.as_ref().ok())
        .map(|outcome| outcome.bound.tokens_per_s());
    let (low, high) = bounds.fold((f64::INFINITY, 0.0_f64), |(low, high), bound| {
        (low.min(bound), high.max(bound))
    });
    (high > 0.0 && high - low <= BOUND_SPREAD * high).then_some(high)
}
