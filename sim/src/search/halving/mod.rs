//! Successive halving: all points by short runs, the better part by longer ones, and so on (Jamieson and Talwalkar, AISTATS 2016), with a
//! screen by bounds before and a selection among the few at the end.
//!
//! What is spent is counted in simulated microbatches. The one that is chosen is simulated once in full: memory and mixing are extremes,
//! which short runs understate.

mod ending;

use super::choice::{breach, memory};
use super::part::Parts;
use super::{Effort, Found, Progress, Round, Tell, screen};
use crate::run::{RunError, prepare};
use crate::spec::{Objective, Search};
use crate::sweep::{Point, Row, Verdict, simulate_point};
use crate::works::Works;
use rayon::prelude::*;
use shared::policy::{Enforce, Queue};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Replications of round r begin at so many times r + 1: no round sees the seeds of another, and none those of the ranking.
const ROUND_SEEDS: u32 = 10_000;

/// Points simulated before bounds are compared with what was reached; a number of its own, so that threads do not matter.
const WAVE: usize = 8;

/// Constraints may be broken by this share of their limit in a short run.
const SLACK: f64 = 0.2;

/// A part of the work from which on the whole is simulated: less would save little.
const WHOLE: f64 = 0.5;

/// In a short run, points within so many tolerances of the fastest may tie with it.
const LEVEL: f64 = 2.0;

/// A run passes so many times the microbatches that its slots can hold: shorter ones say how slots fill, not how they serve.
const FILLS: u32 = 8;

/// Standard errors within which a run's throughput is believed.
const SURE: f64 = 2.0;

/// Contenders that need no further round.
const FEW: usize = 3;

/// Searches by halving.
pub(super) fn halve(points: &[Point], search: &Search, stop: &AtomicBool, tell: Tell<'_>) -> Found {
    let mut halving = Halving {
        points,
        search,
        stop,
        tell,
        parts: Parts::default(),
        rows: BTreeMap::new(),
        effort: Effort::default(),
    };
    let left = halving.rounds();
    halving.rank(&left);
    let choice = halving.confirm();
    Found {
        rows: halving.rows.into_values().collect(),
        choice,
        effort: halving.effort,
        is_interrupted: false,
    }
}

struct Halving<'a> {
    points: &'a [Point],
    search: &'a Search,
    stop: &'a AtomicBool,
    tell: Tell<'a>,
    parts: Parts,
    /// By point.
    rows: BTreeMap<usize, Row>,
    effort: Effort,
}

impl Halving<'_> {
    /// The points that are left after all rounds.
    fn rounds(&mut self) -> Vec<usize> {
        let mut left: Vec<usize> = (0..self.points.len()).collect();
        let mut steps = self.search.steps_first(self.steps_of_fills(&left));
        for round in 0.. {
            let is_last = steps >= self.steps_ranked(&left) || left.len() <= FEW;
            if round > 0 && is_last || left.len() < 2 || self.is_stopped() {
                break;
            }
            let share = self.share(steps, &left);
            let before = self.spent();
            let simulated = if round == 0 {
                self.screened_round(&left, share)
            } else {
                self.round(round, &left, share)
            };
            self.effort.rounds.push(Round {
                points: simulated,
                steps,
                microbatches: self.spent() - before,
            });
            if self.is_stopped() {
                break;
            }
            left = self.better_part(round, &left);
            steps = steps.saturating_mul(self.search.keep_one_in());
        }
        left
    }

    /// Optimizer steps in which the largest store of these points has been filled often enough.
    fn steps_of_fills(&self, among: &[usize]) -> u32 {
        let steps = among.iter().map(|&i| {
            let point = &self.points[i].resolved;
            let slots = point.policy.slots_max().unwrap_or(0);
            let step = point.training.grad_accum * u32::from(point.policy.drafters);
            slots.saturating_mul(FILLS).div_ceil(step)
        });
        steps.max().unwrap_or(0)
    }

    /// Optimizer steps of the runs that are ranked.
    fn steps_ranked(&self, among: &[usize]) -> u32 {
        self.search.steps_ranked(self.steps_of_fills(among))
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn spent(&self) -> u64 {
        self.rows.values().map(|row| row.simulated).sum()
    }

    /// The share of the work that holds so many of the largest optimizer steps of these points.
    fn share(&self, steps: u32, among: &[usize]) -> f64 {
        let largest = among.iter().map(|&i| {
            let point = &self.points[i].resolved;
            u64::from(point.training.grad_accum) * u64::from(point.policy.drafters)
        });
        let wanted = u64::from(steps) * largest.max().unwrap_or(1);
        let whole = among.iter().find_map(|&i| {
            let point = &self.points[i];
            let work = prepare(&point.resolved, &point.lengths).ok()?;
            Some(work.formation.microbatches.len())
        });
        let share = wanted as f64 / whole.unwrap_or(1).max(1) as f64;
        if share > WHOLE { 1.0 } else { share }
    }

    /// The first round, in waves by falling bound: a point whose bound is below what another one reached on the same work is left out.
    fn screened_round(&mut self, left: &[usize], share: f64) -> usize {
        let parts: Vec<Point> = left
            .iter()
            .map(|&i| self.parts.of(&self.points[i], share))
            .collect();
        let runs = parts.iter().map(|point| (point, ROUND_SEEDS));
        // Once for the bound and, mostly, once for the run.
        let works = Works::expecting(runs.clone().chain(runs));
        let bounds = screen::bounds(&parts, ROUND_SEEDS, &works);
        let mut order: Vec<(usize, f64)> = Vec::new();
        for (place, bound) in bounds.into_iter().enumerate() {
            match bound {
                Ok(bound) => order.push((place, bound)),
                Err(error) => self.refuse(left[place], error),
            }
        }
        order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut simulated = 0;
        for wave in order.chunks(WAVE) {
            let reached = self.reached();
            let hopeful: Vec<usize> = wave
                .iter()
                .filter(|(_, bound)| *bound >= reached)
                .map(|&(place, _)| place)
                .collect();
            let which: Vec<(usize, Point)> = hopeful
                .iter()
                .map(|&place| (left[place], parts[place].clone()))
                .collect();
            simulated += which.len();
            self.simulate(&which, ROUND_SEEDS..ROUND_SEEDS + 1, &works, "short runs");
        }
        self.effort.screened = left.len() - simulated;
        simulated
    }

    /// A point that cannot be set up; it costs nothing.
    fn refuse(&mut self, point: usize, error: RunError) {
        self.rows.insert(point, Row::new(point, Err(error)));
    }

    /// What a point's bound must reach for the point to be worth a run. (tok/s)
    fn reached(&self) -> f64 {
        match self.search.objective {
            Objective::Memory => self.search.throughput_min_tok_s.unwrap_or(0.0),
            Objective::Throughput => {
                let kept = self.rows.values().filter(|row| self.may_win(row));
                let whole_run = kept
                    .filter_map(|row| row.outcome.as_ref().ok())
                    .map(|outcome| outcome.metrics.run_tokens_per_s());
                whole_run.fold(0.0, f64::max)
            }
        }
    }

    fn may_win(&self, row: &Row) -> bool {
        row.verdict() == Verdict::Done && breach(row, self.search, SLACK).is_none()
    }

    fn round(&mut self, round: usize, left: &[usize], share: f64) -> usize {
        let which: Vec<(usize, Point)> = left
            .iter()
            .map(|&i| (i, self.parts.of(&self.points[i], share)))
            .collect();
        let seed = ROUND_SEEDS * (round as u32 + 1);
        let works = Works::expecting(which.iter().map(|(_, point)| (point, seed)));
        self.simulate(&which, seed..seed + 1, &works, "longer runs");
        which.len()
    }

    /// Simulates these parts; their rows replace those of shorter runs.
    fn simulate(
        &mut self,
        which: &[(usize, Point)],
        replications: std::ops::Range<u32>,
        works: &Works,
        what: &'static str,
    ) {
        (self.tell)(Progress::Begins {
            what,
            runs: which.len(),
        });
        let rows: Vec<Row> = which
            .par_iter()
            .filter_map(|(index, point)| {
                if self.stop.load(Ordering::Relaxed) {
                    return None;
                }
                let row = simulate_point(*index, point, replications.clone(), works);
                (self.tell)(Progress::Done);
                Some(row)
            })
            .collect();
        for mut row in rows {
            if let Some(shorter) = self.rows.get(&row.index) {
                row.simulated += shorter.simulated;
            }
            self.rows.insert(row.index, row);
        }
    }

    /// The better part of these points; the others are left behind in this round.
    fn better_part(&mut self, round: usize, left: &[usize]) -> Vec<usize> {
        let simulated = left.iter().copied().filter(|i| self.rows.contains_key(i));
        let (hopeful, out): (Vec<usize>, Vec<usize>) =
            simulated.partition(|i| self.may_win(&self.rows[i]));
        let order = self.order(&hopeful);
        let count = hopeful.len().div_ceil(self.search.keep_one_in() as usize);
        let mut kept: Vec<usize> = order.iter().copied().take(count.max(FEW)).collect();
        // Where runs are too noisy to tell points apart, more go on, but no more than half of many.
        let most = hopeful.len().div_ceil(2).max(2 * FEW);
        for i in self.may_be_fastest(&hopeful) {
            if kept.len() < most && !kept.contains(&i) {
                kept.push(i);
            }
        }
        // Among ties the small ones come first; the fastest must not be lost over that.
        if let Some(fastest) = self.fastest(&hopeful)
            && !kept.contains(&fastest)
        {
            kept.push(fastest);
        }
        for i in out.into_iter().chain(order) {
            if !kept.contains(&i)
                && let Some(row) = self.rows.get_mut(&i)
            {
                row.left_behind = Some(round);
            }
        }
        kept.sort_unstable();
        kept
    }

    /// Whether a point keeps the rule on distinct buckets in runs of any length, because its steps are planned so.
    fn keeps_rule(&self, point: usize) -> bool {
        let policy = &self.points[point].resolved.policy;
        self.search.mix_step_min.is_none_or(|least| {
            let is_planned = policy.queue == Queue::Composed && policy.mix_enforce == Enforce::Plan;
            is_planned && policy.mix_step_min >= least
        })
    }

    /// Points whose throughput may be that of the fastest, as far as single runs tell their own error; the fastest first.
    fn may_be_fastest(&self, among: &[usize]) -> Vec<usize> {
        let range = |i: usize| {
            let row = &self.rows[&i];
            let outcome = row.outcome.as_ref().ok();
            let error = outcome.and_then(|o| o.relative_error).unwrap_or(0.0);
            let mean = row.throughput.mean;
            (mean * (1.0 - SURE * error), mean * (1.0 + SURE * error))
        };
        let least = among.iter().map(|&i| range(i).0).fold(0.0, f64::max);
        let mut may = among.to_vec();
        may.retain(|&i| range(i).1 >= least);
        may.sort_by(|&a, &b| range(b).1.total_cmp(&range(a).1).then(a.cmp(&b)));
        may
    }

    fn fastest(&self, among: &[usize]) -> Option<usize> {
        let speed = |i: usize| self.rows[&i].throughput.mean;
        among
            .iter()
            .copied()
            .max_by(|&a, &b| speed(a).total_cmp(&speed(b)).then(b.cmp(&a)))
    }

    /// These points from the one to keep first to the one to keep last.
    fn order(&self, among: &[usize]) -> Vec<usize> {
        let speed = |i: usize| self.rows[&i].throughput.mean;
        let bytes = |i: usize| memory(&self.rows[&i]);
        let may_break = |i: usize| !self.keeps_rule(i);
        let top = self.fastest(among).map_or(0.0, speed);
        let enough = match self.search.objective {
            Objective::Throughput => top * (1.0 - LEVEL * self.search.tolerance),
            Objective::Memory => 0.0,
        };
        let mut order = among.to_vec();
        order.sort_by(|&a, &b| {
            let is_level = |i: usize| speed(i) >= enough;
            is_level(b).cmp(&is_level(a)).then_with(|| {
                if is_level(a) {
                    may_break(a)
                        .cmp(&may_break(b))
                        .then(bytes(a).cmp(&bytes(b)))
                        .then(speed(b).total_cmp(&speed(a)))
                } else {
                    speed(b).total_cmp(&speed(a))
                }
                .then(a.cmp(&b))
            })
        });
        order
    }
}
