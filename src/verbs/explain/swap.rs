//! Keys in which two policies differ, each changed alone in both directions, and keys that belong together as one.

use super::account::gain;
use crate::scenario::Case;
use shared::policy::Policy;
use sim::{Estimate, Outcome, Outcomes, Point};
use std::sync::Arc;
use toml::{Table, Value};

/// What a policy gives with one key of the other.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Swapped {
    /// By how much faster it becomes, as a share, paired. (1)
    Gain(Estimate),
    /// Why it cannot be changed alone.
    Refused(String),
}

/// Keys that belong together: one without the others is often not allowed.
const GROUPS: [&[&str]; 3] = [
    &[
        "placement",
        "transport",
        "overlap",
        "copies_beside",
        "prefetch",
    ],
    &[
        "queue",
        "take",
        "fill",
        "assignment",
        "placement",
        "mix_step_min",
        "mix_window_min",
        "mix_enforce",
    ],
    &[
        "admission",
        "release",
        "depth_total",
        "depth_per_bucket",
        "depth_per_drafter",
        "bytes_total",
        "bytes_per_bucket",
        "bytes_per_drafter",
    ],
];

/// One key, or keys that belong together, and what they are worth.
#[derive(Clone, Debug)]
pub(super) struct Swap {
    /// The keys, as sentences name them.
    pub(super) key: String,
    /// Both values, as files write them; dashes for several keys.
    pub(super) values: [String; 2],
    /// A with B's value, and B with A's.
    policies: [Result<Policy, String>; 2],
    /// What these give; empty before they are simulated.
    pub(super) swapped: Vec<Swapped>,
}

impl Swap {
    /// The points to simulate: of those policies that exist, in order.
    pub(super) fn points(&self, a: &Case, b: &Case) -> Vec<Point> {
        let cases = [a, b];
        let sides = self.policies.iter().zip(cases);
        let points = sides.filter_map(|(policy, case)| {
            let mut resolved = case.file.resolved();
            resolved.policy = policy.as_ref().ok()?.clone();
            Some(Point {
                resolved,
                lengths: Arc::clone(&case.lengths),
            })
        });
        points.collect()
    }
}

/// Every key but the name in which the two differ.
pub(super) fn candidates(a: &Policy, b: &Policy) -> Vec<Swap> {
    let (Ok(table_a), Ok(table_b)) = (Table::try_from(a), Table::try_from(b)) else {
        return Vec::new();
    };
    let mut keys: Vec<&String> = table_a.keys().chain(table_b.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|key| *key != "name" && table_a.get(*key) != table_b.get(*key));
    let groups = GROUPS.iter().map(|group| {
        let own = keys.iter().filter(|key| group.contains(&key.as_str()));
        own.copied().collect::<Vec<_>>()
    });
    let groups: Vec<Vec<&String>> = groups.filter(|own| own.len() > 1).collect();
    let alone = keys.iter().map(|&key| vec![key]);
    let swap = |keys: Vec<&String>| Swap {
        key: named(&keys),
        values: match keys.as_slice() {
            [key] => [shown(table_a.get(*key)), shown(table_b.get(*key))],
            _ => ["–"; 2].map(str::to_owned),
        },
        policies: [
            with(&table_a, &keys, &table_b),
            with(&table_b, &keys, &table_a),
        ],
        swapped: Vec::new(),
    };
    alone.chain(groups).map(swap).collect()
}

/// `a`, `a and b`, `a, b and c`.
fn named(keys: &[&String]) -> String {
    let (last, before) = keys.split_last().expect("there is a key");
    if before.is_empty() {
        return (*last).clone();
    }
    let before: Vec<&str> = before.iter().map(|key| key.as_str()).collect();
    format!("{} and {last}", before.join(", "))
}

/// `policy` with these keys of another.
fn with(policy: &Table, keys: &[&String], other: &Table) -> Result<Policy, String> {
    let mut policy = policy.clone();
    for key in keys {
        match other.get(*key) {
            Some(value) => policy.insert((*key).clone(), value.clone()),
            None => policy.remove(*key),
        };
    }
    policy
        .try_into()
        .map_err(|error: toml::de::Error| error.message().to_owned())
}

fn shown(value: Option<&Value>) -> String {
    match value {
        None => "none".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

/// The swaps with what they gave, those that move most first. `outcomes` are those of [`Swap::points`], in order.
pub(super) fn measured(
    mut swaps: Vec<Swap>,
    outcomes: &[Outcomes],
    a: &[Outcome],
    b: &[Outcome],
) -> Vec<Swap> {
    let mut outcomes = outcomes.iter();
    for swap in &mut swaps {
        for (policy, base) in swap.policies.iter().zip([a, b]) {
            let swapped = match policy {
                Err(reason) => Swapped::Refused(reason.clone()),
                Ok(_) => match outcomes.next() {
                    Some(Ok(changed)) => Swapped::Gain(gain(base, changed)),
                    Some(Err(reason)) => Swapped::Refused(reason.to_string()),
                    None => Swapped::Refused("not simulated".to_owned()),
                },
            };
            swap.swapped.push(swapped);
        }
    }
    let weight = |swap: &Swap| {
        let moved = swap.swapped.iter().map(|swapped| match swapped {
            Swapped::Gain(gain) => gain.mean.abs(),
            Swapped::Refused(_) => 0.0,
        });
        moved.fold(0.0, f64::max)
    };
    swaps.sort_by(|x, y| weight(y).total_cmp(&weight(x)));
    swaps
}
