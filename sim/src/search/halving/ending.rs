//! The end of a search by halving: the few that are left are ranked, and the choice is simulated once in full.

use super::super::choice::{Choice, choose};
use super::super::select::{REPLICATIONS_FIRST, settle};
use super::super::{Progress, Refusal, Standing};
use super::{FEW, Halving};
use crate::sweep::{Point, Row, simulate_once};
use crate::works::Works;
use std::collections::BTreeMap;

impl Halving<'_> {
    /// Ranks those that are left by runs of a part of the work, and the few that these cannot tell apart by runs of the whole.
    pub(super) fn rank(&mut self, left: &[usize]) {
        if left.is_empty() || self.is_stopped() {
            return;
        }
        let share = self.share(self.steps_ranked(left), left);
        self.rank_by(left, share);
        let undecided = self.undecided();
        if share < 1.0 && !undecided.is_empty() && !self.is_stopped() {
            let round = self.effort.rounds.len();
            for i in left.iter().filter(|i| !undecided.contains(i)) {
                if let Some(row) = self.rows.get_mut(i) {
                    row.left_behind = Some(round);
                }
            }
            self.rank_by(&undecided, 1.0);
        }
    }

    /// The points that may be the fastest, where a ranking is refused for want of replications.
    fn undecided(&self) -> Vec<usize> {
        let rows: Vec<Row> = self.rows.values().cloned().collect();
        let Some(ranking) = choose(&rows, self.search).ranking else {
            return Vec::new();
        };
        if !matches!(ranking.refusal, Some(Refusal::Replications { .. })) {
            return Vec::new();
        }
        let open = ranking.comparisons.iter();
        let open = open.filter(|rival| rival.standing != Standing::Slower);
        let among = std::iter::once(ranking.fastest).chain(open.map(|rival| rival.row));
        among.map(|row| rows[row].index).collect()
    }

    /// Replications of these points with this share of the work, as many as the selection asks for.
    fn rank_by(&mut self, left: &[usize], share: f64) {
        self.effort.share = share;
        let parts: BTreeMap<usize, Point> = left
            .iter()
            .map(|&i| (i, self.parts.of(&self.points[i], share)))
            .collect();
        let which: Vec<(usize, Point)> = parts.iter().map(|(&i, p)| (i, p.clone())).collect();
        let first = self.search.replications.max(REPLICATIONS_FIRST);
        let runs = which
            .iter()
            .flat_map(|(_, point)| (0..first).map(move |replication| (point, replication)));
        let works = Works::expecting(runs);
        self.simulate(&which, 0..first, &works, "ranking");
        let mut rows: Vec<Row> = std::mem::take(&mut self.rows).into_values().collect();
        let point = |i: usize| &parts[&i];
        settle(
            &mut rows,
            &point,
            self.search,
            self.stop,
            self.tell,
            &mut self.effort,
        );
        self.rows = rows.into_iter().map(|row| (row.index, row)).collect();
    }

    /// The choice, its best simulated in full; whoever breaks a constraint then makes room for the next.
    pub(super) fn confirm(&mut self) -> Choice {
        loop {
            let rows: Vec<Row> = self.rows.values().cloned().collect();
            let choice = choose(&rows, self.search);
            if self.effort.share >= 1.0 || self.is_stopped() {
                return choice;
            }
            let Some(best) = choice.best.map(|i| rows[i].index) else {
                match self.reserve() {
                    left if left.is_empty() => return choice,
                    left => {
                        self.rank(&left);
                        continue;
                    }
                }
            };
            if self.effort.confirmed.contains(&best) {
                return choice;
            }
            (self.tell)(Progress::Begins {
                what: "the best in full",
                runs: 1,
            });
            let point = &self.points[best];
            let works = Works::expecting(std::iter::once((point, 0)));
            if let Ok(outcome) = simulate_once(point, 0, &works)
                && let Some(row) = self.rows.get_mut(&best)
            {
                row.confirm(*outcome);
            }
            self.effort.confirmed.push(best);
        }
    }

    /// The best of those left behind in the last round that left any, when nobody else qualifies.
    fn reserve(&mut self) -> Vec<usize> {
        let hopeful = |row: &&Row| row.left_behind.is_some() && self.may_win(row);
        let latest = self.rows.values().filter(hopeful).map(|r| r.left_behind);
        let latest = latest.max().flatten();
        let among = self.rows.values().filter(hopeful);
        let among: Vec<usize> = among
            .filter(|row| row.left_behind == latest)
            .map(|row| row.index)
            .collect();
        let next: Vec<usize> = self.order(&among).into_iter().take(FEW).collect();
        for i in &next {
            if let Some(row) = self.rows.get_mut(i) {
                row.left_behind = None;
            }
        }
        next
    }
}
