//! `dflash check`: whether scenarios and policies can work, and what to expect of them, without running anything.

mod examine;
mod memory;
mod outline;
mod sheet;

use crate::cli::CheckArgs;
use crate::failure::Failure;
use crate::scenario::{Case, cases, open};
use crate::terminal::say;
use examine::{Examined, Examiner};
use std::collections::BTreeMap;

/// Up to so many points each get a line of their own.
const LINES_MAX: usize = 24;

pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let input = open(&args.files, &args.sets, args.max_points)?;
    let cases = cases(&input)?;
    let mut examiner = Examiner::default();
    let examined: Vec<Examined> = cases.iter().map(|case| examiner.examine(case)).collect();
    let points = Points {
        cases: &cases,
        examined: &examined,
    };
    for line in points.lines() {
        say(line);
    }
    let at = |index: usize, message: &String| input.error_at_key(index, message).to_string();
    for (message, count) in points.distinct(|e| &e.warnings, &at) {
        say(format!(
            "warning: {message}{}",
            of_points(count, cases.len())
        ));
    }
    let errors = points.distinct(|e| &e.errors, &at);
    if !points.broken_entries().is_empty() {
        let lines = errors
            .into_iter()
            .map(|(message, count)| message + &of_points(count, cases.len()));
        return Err(Failure::usage(lines.collect::<Vec<_>>().join("\n")));
    }
    for (message, count) in errors {
        // A range may reach where nothing works; the search leaves such points out.
        say(format!(
            "left out: {message}{}",
            of_points(count, cases.len())
        ));
    }
    points.verdict()
}

/// All points of what was given, and what was found of each.
struct Points<'a> {
    cases: &'a [Case],
    examined: &'a [Examined],
}

impl Points<'_> {
    fn lines(&self) -> Vec<String> {
        if let ([case], [examined]) = (self.cases, self.examined) {
            return sheet::sheet(case, examined);
        }
        let groups: Vec<Vec<usize>> = if self.cases.len() <= LINES_MAX {
            (0..self.cases.len()).map(|index| vec![index]).collect()
        } else {
            self.by_entry().into_values().collect()
        };
        let mut lines = vec![sheet::heading(self.cases)];
        lines.push(sheet::row_title());
        for group in groups {
            let members = group
                .iter()
                .map(|&index| (&self.cases[index], &self.examined[index]));
            lines.push(sheet::row(&members.collect::<Vec<_>>()));
        }
        lines
    }

    /// Points by the policy entry they belong to.
    fn by_entry(&self) -> BTreeMap<usize, Vec<usize>> {
        let mut entries = BTreeMap::<usize, Vec<usize>>::new();
        for (index, case) in self.cases.iter().enumerate() {
            entries.entry(case.entry).or_default().push(index);
        }
        entries
    }

    /// Messages in order of appearance, each with the number of points it holds for.
    fn distinct(
        &self,
        messages: impl Fn(&Examined) -> &Vec<String>,
        at: &dyn Fn(usize, &String) -> String,
    ) -> Vec<(String, usize)> {
        let mut known = BTreeMap::new();
        let mut found: Vec<(String, usize)> = Vec::new();
        for (index, examined) in self.examined.iter().enumerate() {
            for message in messages(examined) {
                let key = (self.cases[index].entry, message.clone());
                let row = *known.entry(key).or_insert_with(|| {
                    found.push((at(index, message), 0));
                    found.len() - 1
                });
                found[row].1 += 1;
            }
        }
        found
    }

    /// Policy entries none of whose points can be set up.
    fn broken_entries(&self) -> Vec<usize> {
        self.entries_where(|examined| !examined.errors.is_empty())
    }

    fn entries_where(&self, holds: impl Fn(&Examined) -> bool) -> Vec<usize> {
        let entries = self.by_entry().into_iter();
        let all = entries.filter(|(_, points)| points.iter().all(|&i| holds(&self.examined[i])));
        all.map(|(entry, _)| entry).collect()
    }

    /// No when a policy fits into memory at none of its points.
    fn verdict(&self) -> Result<(), Failure> {
        let does_not_fit = |e: &Examined| !e.errors.is_empty() || !e.overflow.is_empty();
        let entries = self.by_entry();
        let mut lines = Vec::new();
        for entry in self.entries_where(does_not_fit) {
            let Some(&first) = entries[&entry]
                .iter()
                .find(|&&index| !self.examined[index].overflow.is_empty())
            else {
                continue;
            };
            let policy = &self.cases[first].file.policy.name;
            for overflow in &self.examined[first].overflow {
                lines.push(format!(
                    "infeasible: policy \"{policy}\": {overflow}; {}",
                    memory::way_out(overflow)
                ));
            }
        }
        if lines.is_empty() {
            Ok(())
        } else {
            Err(Failure::no(lines.join("\n")))
        }
    }
}

fn of_points(count: usize, all: usize) -> String {
    if all == 1 {
        String::new()
    } else {
        format!(" [{count} of {all} points]")
    }
}
