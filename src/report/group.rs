//! Points grouped by the policy they vary: one line in a figure, one row in a table.

use crate::scenario::Case;
use crate::verbs::sim::Searched;
use shared::policy::Policy;
use sim::{Row, Verdict};

/// Stands behind the name of a policy all of whose points break a constraint.
const MARK: &str = "*";

/// What [`MARK`] means, to stand behind a description.
pub(crate) fn mark_explained(searched: &Searched) -> &'static str {
    if searched.choice.excluded.is_empty() {
        ""
    } else {
        "; * breaks a constraint of the search"
    }
}

/// The points of one policy entry of a scenario, under one policy name.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Name in figures and tables, different for each group.
    pub(crate) name: String,
    /// Its rows of the search, in the order of its points.
    pub(crate) rows: Vec<usize>,
    entry: usize,
    policy: String,
}

/// All groups, in the order of the scenario; a group's place in this list gives its colour.
pub(crate) fn groups(searched: &Searched) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for case in &searched.cases {
        let policy = &case.file.policy.name;
        if groups.iter().any(|group| group.holds(case)) {
            continue;
        }
        let before = groups.iter().filter(|g| g.policy == *policy).count();
        let name = if before == 0 {
            policy.clone()
        } else {
            format!("{policy} #{}", before + 1)
        };
        groups.push(Group {
            name,
            rows: Vec::new(),
            entry: case.entry,
            policy: policy.clone(),
        });
    }
    for (i, row) in searched.rows.iter().enumerate() {
        let case = &searched.cases[row.index];
        if let Some(group) = groups.iter_mut().find(|group| group.holds(case)) {
            group.rows.push(i);
        }
    }
    groups
}

impl Group {
    fn holds(&self, case: &Case) -> bool {
        self.entry == case.entry && self.policy == case.file.policy.name
    }

    /// Its rows that are done, by their place in the search.
    pub(crate) fn done<'a>(
        &'a self,
        searched: &'a Searched,
    ) -> impl Iterator<Item = (usize, &'a Row)> {
        self.rows
            .iter()
            .map(|&i| (i, &searched.rows[i]))
            .filter(|(_, row)| row.verdict() == Verdict::Done)
    }

    /// The name, with [`MARK`] if each of its points that is done breaks a constraint of the search.
    pub(crate) fn label(&self, searched: &Searched) -> String {
        let excluded = |row: usize| searched.choice.excluded.iter().any(|&(i, _)| i == row);
        let mut done = self.done(searched).peekable();
        if done.peek().is_some() && done.all(|(i, _)| excluded(i)) {
            format!("{} {MARK}", self.name)
        } else {
            self.name.clone()
        }
    }
}

/// The most HS slots that a policy may use in all, if it has such a cap. (slots)
pub(crate) fn slots_max(policy: &Policy) -> Option<u32> {
    let by_drafter = policy
        .depth_per_drafter
        .map(|depth| depth.saturating_mul(u32::from(policy.drafters)));
    policy.depth_total.or(by_drafter)
}

/// What sets a point apart from the others of its group: the values of its swept fields.
pub(crate) fn point_name(case: &Case) -> String {
    let values = case.swept.iter().map(|(key, value)| {
        let key = key.rsplit('.').next().unwrap_or(key);
        format!("{key} = {value}")
    });
    values.collect::<Vec<_>>().join(", ")
}
