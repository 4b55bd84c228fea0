//! The search by halving against the full grid: as good a policy, for a fraction of the simulated microbatches.

#[expect(dead_code, reason = "these tests need no part of it but points")]
mod scenario;

use scenario::{Scenario, scenario, split};
use shared::policy::{Policy, Take};
use sim::spec::{Method, Objective, Search};
use sim::{Found, Point, Verdict, search};
use std::sync::atomic::{AtomicBool, Ordering};

fn halving(search: &Search) -> Search {
    Search {
        method: Method::Halving,
        ..search.clone()
    }
}

fn run(points: &[Point], how: &Search) -> Found {
    search(points, how, &AtomicBool::new(false), &|_| {})
}

/// A scenario's policies by split and depth.
fn grid(scenario: &Scenario, splits: &[(u16, u16)], depths: &[u32]) -> Vec<Policy> {
    let mut points = Vec::new();
    for policy in scenario.policies() {
        for &(targets, drafters) in splits {
            for &depth in depths {
                points.push(Policy {
                    depth_total: Some(depth),
                    depth_per_drafter: None,
                    ..split(&policy, targets, drafters)
                });
            }
        }
    }
    points
}

/// The choice by halving is one of the grid's ties, or as fast as they are, and took so small a share of the grid's microbatches.
fn finds_what_the_grid_finds(scenario: &Scenario, policies: &[Policy], share: f64) -> Found {
    let points = scenario.points(policies);
    let full = run(&points, &scenario.search);
    let found = run(&points, &halving(&scenario.search));
    assert_eq!(found.choice.refusal(), None, "{:?}", found.effort);
    let best_of_grid = full.choice.best.expect("the grid has a best");
    let chosen = found.rows[found.choice.best.expect("a best")].index;
    let chosen_in_full = &full.rows[chosen];
    assert_eq!(chosen_in_full.verdict(), Verdict::Done);
    let enough = full.rows[best_of_grid].throughput.mean * (1.0 - scenario.search.tolerance);
    assert!(
        chosen_in_full.throughput.mean >= enough,
        "{:?} has {} of {enough}: {:?}",
        policies[chosen],
        chosen_in_full.throughput.mean,
        found.effort
    );
    let spent = found.effort.microbatches as f64 / full.effort.microbatches as f64;
    assert!(spent <= share, "{spent} of the grid: {:?}", found.effort);
    found
}

#[test]
fn halving_finds_the_grids_best_split_for_a_tenth_of_its_work() {
    let scenario = scenario("split");
    let splits = [(1, 7), (2, 6), (3, 5), (4, 4), (5, 3), (6, 2), (7, 1)];
    let policies = grid(&scenario, &splits, &[8, 12, 16, 20, 24]);
    let found = finds_what_the_grid_finds(&scenario, &policies, 0.1);
    assert!(found.effort.screened > 0, "bounds rule out some splits");
    assert!(found.effort.is_selected, "{:?}", found.effort);
}

#[test]
fn halving_does_not_choose_what_overruns_memory_in_the_long_tail() {
    let mut scenario = scenario("long-tail");
    scenario.workload.samples = 16_000;
    let policies = grid(&scenario, &[(5, 3)], &[16, 32, 64, 128]);
    // Two of the twelve differ by little more than the tolerance, so either way they are run in full again and again.
    finds_what_the_grid_finds(&scenario, &policies, 0.5);
}

#[test]
fn halving_waits_until_slots_were_filled_before_it_judges() {
    let mut scenario = scenario("long-tail");
    scenario.workload.samples = 30_000;
    let base = scenario.policy("64 slots, 32 GiB");
    // The longest queue first is slower than others while slots fill, and the fastest from then on.
    let policies: Vec<Policy> = [Take::RoundRobin, Take::Oldest, Take::Longest]
        .into_iter()
        .flat_map(|take| [16, 32, 64].map(|depth| (take, depth)))
        .map(|(take, depth)| Policy {
            take,
            depth_total: Some(depth),
            ..base.clone()
        })
        .collect();
    let found = finds_what_the_grid_finds(&scenario, &policies, 0.5);
    assert!(found.effort.rounds[0].steps >= 8 * 64 / 12);
    let best = found.rows[found.choice.best.expect("a best")].index;
    assert_eq!(policies[best].take, Take::Longest);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let mut scenario = scenario("reference");
    scenario.workload.samples = 30_000;
    let policies = grid(&scenario, &[(5, 3)], &[8, 12, 16, 24]);
    let points = scenario.points(&policies);
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = pool.build().expect("threads");
        pool.install(|| run(&points, &halving(&scenario.search)))
    };
    let [one, five] = [1, 5].map(on);
    assert_eq!(one.choice, five.choice);
    assert_eq!(one.effort, five.effort);
    for (a, b) in one.rows.iter().zip(&five.rows) {
        assert_eq!((a.index, &a.throughputs), (b.index, &b.throughputs));
        assert_eq!(a.worst, b.worst);
        let metrics = |row: &sim::Row| row.outcome.as_ref().ok().map(|o| o.metrics.clone());
        assert_eq!(metrics(a), metrics(b));
    }
}

#[test]
fn least_memory_is_found_under_a_least_throughput() {
    let mut scenario = scenario("reference");
    scenario.workload.samples = 60_000;
    let composed = scenario.policy("composed");
    let policies: Vec<Policy> = [6, 8, 10, 12, 16, 24]
        .map(|depth| Policy {
            depth_total: Some(depth),
            ..composed.clone()
        })
        .into();
    let points = scenario.points(&policies);
    let how = |least: f64| Search {
        objective: Objective::Memory,
        throughput_min_tok_s: Some(least),
        ..scenario.search.clone()
    };
    let depth = |found: &Found| {
        let best = found.choice.best?;
        policies[found.rows[best].index].depth_total
    };
    let grid = run(&points, &how(21_000.0));
    let chosen = depth(&grid).expect("some depth is fast enough");
    assert_eq!(depth(&run(&points, &halving(&how(21_000.0)))), Some(chosen));
    // A deeper queue is not chosen, a shallower one is too slow.
    let slower = grid.choice.excluded.iter();
    assert!(
        slower
            .clone()
            .any(|(_, reason)| reason.contains("throughput_min_tok_s"))
    );
    assert_eq!(depth(&run(&points, &how(1e9))), None);
}

#[test]
fn a_search_that_is_stopped_keeps_what_it_has() {
    let scenario = scenario("reference");
    let policies = grid(&scenario, &[(5, 3)], &[8, 12, 16, 24]);
    let points = scenario.points(&policies);
    let stop = AtomicBool::new(false);
    let found = search(&points, &halving(&scenario.search), &stop, &|_| {
        stop.store(true, Ordering::Relaxed);
    });
    assert!(found.is_interrupted && found.rows.len() < points.len());
    let stop = AtomicBool::new(true);
    let none = search(&points, &scenario.search, &stop, &|_| {});
    assert!(none.is_interrupted && none.rows.is_empty() && none.choice.best.is_none());
}
