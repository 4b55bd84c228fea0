//! Keys in which two policies differ, each changed alone in both directions.

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

/// One key and what it is worth.
#[derive(Clone, Debug)]
pub(super) struct Swap {
    pub(super) key: String,
    /// Both values, as files write them; empty for one that is not set.
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
    let differs = |key: &&&String| **key != "name" && table_a.get(**key) != table_b.get(**key);
    let swap = |key: &String| {
        let (x, y) = (table_a.get(key), table_b.get(key));
        Swap {
            key: key.clone(),
            values: [shown(x), shown(y)],
            policies: [with(&table_a, key, y), with(&table_b, key, x)],
            swapped: Vec::new(),
        }
    };
    keys.iter().filter(differs).map(|key| swap(key)).collect()
}

fn with(policy: &Table, key: &str, value: Option<&Value>) -> Result<Policy, String> {
    let mut policy = policy.clone();
    match value {
        Some(value) => policy.insert(key.to_owned(), value.clone()),
        None => policy.remove(key),
    };
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
