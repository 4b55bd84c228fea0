//! What `check` shows: one screen for one policy, one line a point or policy entry for many.

use super::examine::{Depth, Examined, Found};
use super::outline::Outline;
use crate::scenario::Case;
use shared::id::Bytes;
use sim::{Bottleneck, Part};

/// Longest line. (characters)
const WIDTH: usize = 100;

/// One policy in full.
pub(super) fn sheet(case: &Case, examined: &Examined) -> Vec<String> {
    let file = &case.file;
    let policy = &file.policy;
    let mut lines = vec![format!(
        "{}: policy \"{}\", {} targets + {} drafters on {} GPUs, seed {}",
        file.name, policy.name, policy.targets, policy.drafters, file.hardware.gpus, file.seed
    )];
    let Some(found) = &examined.found else {
        return lines;
    };
    lines.extend(plan(&found.outline));
    lines.push(bound(case, found));
    lines.push(depth(&found.depth));
    lines.push(String::new());
    lines.extend(memory(case, found));
    lines.push(String::new());
    lines.push(
        match (examined.overflow.is_empty(), examined.errors.is_empty()) {
            (true, true) => "valid, and fits into memory at worst".to_owned(),
            (false, true) => "valid, but does not fit into memory at worst".to_owned(),
            (_, false) => "not valid".to_owned(),
        },
    );
    lines
}

fn plan(outline: &Outline) -> Vec<String> {
    let tail = match outline.tail {
        0 => String::new(),
        count => format!(", {count} microbatches in short ones"),
    };
    let mut lines = vec![format!(
        "plan     {} samples in {} microbatches, {} steps of {}{tail}, padding {:.1} %",
        outline.samples,
        outline.microbatches,
        outline.steps,
        outline.step_size,
        100.0 * outline.padding
    )];
    if outline.dropped > 0 || outline.over_long > 0 {
        lines.push(format!(
            "left out {} samples by the tail rule, {} longer than the last edge",
            outline.dropped, outline.over_long
        ));
    }
    let share = |count: usize| 100.0 * count as f64 / outline.microbatches.max(1) as f64;
    let buckets = outline.buckets.iter();
    let buckets = buckets.map(|&(edge, count, _)| format!("<={edge}: {:.1} %", share(count)));
    lines.extend(wrapped("buckets  ", &buckets.collect::<Vec<_>>()));
    lines.push(match &outline.mixing {
        None => "mixing   not planned: steps form as hidden states arrive".to_owned(),
        Some(m) => format!(
            "mixing   at least {} of {} buckets in a full step, TV {:.3} mean, {:.3} worst, {} exceptions",
            m.distinct_min,
            outline.buckets.len(),
            m.tv_mean,
            m.tv_max,
            m.exceptions
        ),
    });
    lines
}

/// `items` after `head`, on as many lines as they need.
fn wrapped(head: &str, items: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = head.to_owned();
    for item in items {
        if line.len() + item.len() > WIDTH {
            let blank = " ".repeat(head.len());
            lines.push(std::mem::replace(&mut line, blank));
        }
        line.push_str(item);
        line.push_str("   ");
    }
    lines.push(line);
    lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

fn bound(case: &Case, found: &Found) -> String {
    let policy = &case.file.policy;
    let b = &found.bound;
    let binding = match b.bottleneck() {
        Bottleneck::Targets => "the targets bind",
        Bottleneck::Drafters => "the drafters bind",
        Bottleneck::Device => "the GPUs that both share bind",
    };
    format!(
        "bound    {:.0} tok/s, {}: {} targets {:.0}, {} drafters {:.0}",
        b.tokens_per_s(),
        binding,
        policy.targets,
        b.target_tokens_per_s(),
        policy.drafters,
        b.drafter_tokens_per_s()
    )
}

fn depth(depth: &Depth) -> String {
    let slots = match depth.slots {
        None => "no cap on all slots".to_owned(),
        Some(slots) => format!("{slots} slots in all"),
    };
    match depth.busy_min {
        0 => format!("depth    {slots}; no worker holds one while it computes"),
        min => format!("depth    {slots}; workers hold {min} while all compute"),
    }
}

fn memory(case: &Case, found: &Found) -> Vec<String> {
    let titles = [
        "weights",
        "activations",
        "overhead",
        "hidden",
        "total",
        "there",
    ];
    let cells = |name: &str, cells: [String; 6]| {
        let cells = cells.iter().map(|cell| format!("{cell:>13}"));
        format!("{name:<18}{}", cells.collect::<String>())
    };
    let mut lines = vec![cells("memory at worst", titles.map(String::from))];
    for (name, part, there) in found.memory.rows(case) {
        let Part {
            weights,
            activations,
            overhead,
            hidden,
        } = part;
        let amounts = [weights, activations, overhead, hidden, part.total(), there];
        let mark = if part.total() > there {
            "  too much"
        } else {
            ""
        };
        let hides = found.memory.is_uncapped && hidden > Bytes(0);
        let note = if hides { "  no cap" } else { "" };
        let row = cells(&name, amounts.map(|amount| amount.to_string()));
        lines.push(format!("{row}{mark}{note}"));
    }
    lines
}

/// What stands above the rows of many points.
pub(super) fn heading(cases: &[Case]) -> String {
    let entries = cases.iter().map(|case| case.entry).max().unwrap_or(0) + 1;
    format!(
        "{}: {} points of {entries} policies; memory in GiB at worst",
        cases.first().map_or("", |case| &case.file.name),
        cases.len()
    )
}

pub(super) fn row_title() -> String {
    format!(
        "{:<18} {:>7} {:>7} {:>8} {:>9} {:>8} {:>7} {:>7} {:>7}  {}",
        "policy",
        "points",
        "split",
        "slots",
        "bound",
        "binds",
        "target",
        "drafter",
        "host",
        "verdict"
    )
}

/// One line for one point, or for all points of one policy entry.
pub(super) fn row(members: &[(&Case, &Examined)]) -> String {
    let policies = || members.iter().map(|(case, _)| &case.file.policy);
    let found = || members.iter().filter_map(|(_, e)| e.found.as_ref());
    let split = policies().map(|p| format!("{}+{}", p.targets, p.drafters));
    let slots = found().map(|f| {
        f.depth
            .slots
            .map_or_else(|| "none".into(), |s| s.to_string())
    });
    let binds = found().map(|f| f.bound.bottleneck().name().to_owned());
    let largest = |bytes: &dyn Fn(&Found) -> Bytes| {
        let most = found().map(bytes).max();
        most.map_or_else(
            || "-".into(),
            |most| format!("{:.1}", most.0 as f64 / f64::from(1 << 30)),
        )
    };
    let total = |parts: &[Part]| parts.iter().map(Part::total).max().unwrap_or_default();
    let bound = found().map(|f| f.bound.tokens_per_s()).reduce(f64::max);
    let bound = bound.map_or_else(|| "-".into(), |bound| format!("{bound:.0}"));
    format!(
        "{:<18} {:>7} {:>7} {:>8} {:>9} {:>8} {:>7} {:>7} {:>7}  {}",
        members
            .first()
            .map_or("", |(case, _)| &case.file.policy.name),
        members.len(),
        one_or_many(split),
        one_or_many(slots),
        bound,
        one_or_many(binds),
        largest(&|f| total(&f.memory.memory.targets)),
        largest(&|f| total(&f.memory.memory.drafters)),
        largest(&|f| f.memory.memory.host.total()),
        verdict(members)
    )
}

fn verdict(members: &[(&Case, &Examined)]) -> String {
    let count = |holds: &dyn Fn(&Examined) -> bool| members.iter().filter(|m| holds(m.1)).count();
    let broken = count(&|e| !e.errors.is_empty());
    let too_large = count(&|e| e.errors.is_empty() && !e.overflow.is_empty());
    match (broken, too_large) {
        (0, 0) => "valid".to_owned(),
        (broken, 0) if broken == members.len() => "not valid".to_owned(),
        (0, large) if large == members.len() => "too large".to_owned(),
        (broken, 0) => format!("{broken} not valid"),
        (0, large) => format!("{large} too large"),
        (broken, large) => format!("{broken} not valid, {large} too large"),
    }
}

/// The value that all share, or the first and the last.
fn one_or_many(values: impl Iterator<Item = String>) -> String {
    let values: Vec<_> = values.collect();
    match (values.first(), values.last()) {
        (Some(first), Some(_)) if values.iter().all(|value| value == first) => first.clone(),
        (Some(first), Some(last)) => format!("{first}..{last}"),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_wrap_below_their_first_item() {
        let items: Vec<_> = (0..12).map(|i| format!("<={i}000: 8.3 %")).collect();
        let lines = wrapped("buckets  ", &items);
        assert!(lines.len() > 1);
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{lines:?}");
        assert!(lines[1].starts_with("         <="));
    }

    #[test]
    fn values_of_many_points_show_their_ends() {
        let shown = |values: &[&str]| one_or_many(values.iter().map(ToString::to_string));
        assert_eq!(shown(&["4", "4"]), "4");
        assert_eq!(shown(&["4", "8", "12"]), "4..12");
        assert_eq!(shown(&[]), "-");
    }
}
