//! Spaces too large to list: points drawn evenly from them, then the neighbourhood of the best, until nothing near is better.

use super::{Searched, confirmed, points_of};
use crate::config::Points;
use crate::failure::Failure;
use crate::scenario::{Case, Input, cases_at, points};
use sim::spec::Search;
use sim::{Found, Row, Tell, choose};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Passes over a neighbourhood at most.
const PASSES_MAX: usize = 12;

/// Points whose neighbourhood is looked at in one pass.
const CENTRES: usize = 2;

/// The points of a scenario that asks for fewer candidates than it has points.
pub(super) fn sampled<'a>(input: &'a Input, search: &Search) -> Option<&'a Points> {
    let candidates = search.candidates?;
    points(input).filter(|points| points.len() > candidates as usize)
}

/// Searches among points drawn evenly, then around the best.
pub(super) fn search(
    input: &Input,
    points: &Points,
    search: &Search,
    stop: &AtomicBool,
    tell: Tell<'_>,
) -> Result<Searched, Failure> {
    let count = search.candidates.unwrap_or(1) as usize;
    let mut space = Space {
        input,
        points,
        search,
        cases: Vec::new(),
        rows: BTreeMap::new(),
        places: BTreeMap::new(),
    };
    let mut pass = space.pass(points.spread(count), stop, tell)?;
    let mut rounds = std::mem::take(&mut pass.effort.rounds);
    for _ in 0..PASSES_MAX {
        let centres = space.centres(&pass);
        let mut near: Vec<usize> = centres
            .iter()
            .flat_map(|&point| points.near(point))
            .filter(|point| !space.places.contains_key(point))
            .collect();
        near.sort_unstable();
        near.dedup();
        if near.is_empty() || stop.load(Ordering::Relaxed) {
            break;
        }
        let before = space.best(&pass);
        pass = space.pass(centres.into_iter().chain(near).collect(), stop, tell)?;
        rounds.append(&mut pass.effort.rounds);
        if space.best(&pass) == before {
            break;
        }
    }
    pass.effort.rounds = rounds;
    space.conclude(pass, stop, tell)
}

struct Space<'a> {
    input: &'a Input,
    points: &'a Points,
    search: &'a Search,
    cases: Vec<Case>,
    /// The newest row of each case.
    rows: BTreeMap<usize, Row>,
    /// The case of each point of the scenario.
    places: BTreeMap<usize, usize>,
}

impl Space<'_> {
    /// Searches among these points of the scenario; earlier rows are left behind. Rows of the result count cases.
    fn pass(
        &mut self,
        points: Vec<usize>,
        stop: &AtomicBool,
        tell: Tell<'_>,
    ) -> Result<Found, Failure> {
        let new: Vec<usize> = points
            .iter()
            .copied()
            .filter(|point| !self.places.contains_key(point))
            .collect();
        for case in cases_at(self.input, &new)? {
            self.places.insert(case.point, self.cases.len());
            self.cases.push(case);
        }
        let places: Vec<usize> = points.iter().map(|point| self.places[point]).collect();
        let cases: Vec<&Case> = places.iter().map(|&place| &self.cases[place]).collect();
        let mut found = sim::search(&points_of(cases.into_iter()), self.search, stop, tell);
        for row in self.rows.values_mut() {
            row.left_behind.get_or_insert(0);
        }
        for row in &mut found.rows {
            row.index = places[row.index];
            if let Some(earlier) = self.rows.get(&row.index) {
                row.simulated += earlier.simulated;
            }
            self.rows.insert(row.index, row.clone());
        }
        Ok(found)
    }

    /// The case of a pass's choice.
    fn best(&self, pass: &Found) -> Option<usize> {
        pass.choice.best.map(|row| pass.rows[row].index)
    }

    /// The points around which to look: the choice, then the fastest.
    fn centres(&self, pass: &Found) -> Vec<usize> {
        let fastest = pass.choice.ranking.as_ref().map(|ranking| ranking.fastest);
        let rows = pass.choice.best.into_iter().chain(fastest);
        let mut centres: Vec<usize> = rows
            .map(|row| self.cases[pass.rows[row].index].point)
            .take(CENTRES)
            .collect();
        centres.dedup();
        centres
    }

    fn conclude(self, pass: Found, stop: &AtomicBool, tell: Tell<'_>) -> Result<Searched, Failure> {
        let rows: Vec<Row> = self.rows.into_values().collect();
        let choice = choose(&rows, self.search);
        let mut effort = pass.effort;
        effort.points = self.points.len();
        effort.screened = 0;
        effort.microbatches = rows.iter().map(|row| row.simulated).sum();
        let found = Found {
            rows,
            choice,
            effort,
            is_interrupted: pass.is_interrupted,
        };
        confirmed(self.cases, found, self.search, stop, tell)
    }
}
