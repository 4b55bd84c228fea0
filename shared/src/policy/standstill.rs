//! Combinations of choices that can come to a standstill although work remains. They are allowed, since people compare them, and
//! warned of; what [`check`](fn@super::check) lets pass without this warning always ends.

use super::check::{Found, RunFacts};
use super::{Assignment, Barrier, Enforce, Input, Policy, Queue, Release};
use crate::id::Bytes;

pub(super) fn standstill(policy: &Policy, facts: &RunFacts, found: &mut Found) {
    mixing(policy, found);
    let step = facts.step_size(policy);
    match policy.queue {
        Queue::Fifo | Queue::Bucketed => {
            let ahead = slots_ahead(policy);
            let why =
                "prefetched hidden states keep their slots while another drafter waits for one";
            caps(policy, facts, ahead.saturating_add(1), why, found);
        }
        Queue::PerDrafter => shared_caps(policy, found),
        Queue::Dealt => {
            let ahead = slots_ahead(policy);
            let why = "a window is dealt once all of it waits in the pool";
            caps(policy, facts, step.saturating_add(ahead), why, found);
        }
        Queue::Composed => {}
    }
    gates(policy, facts, found);
}

fn mixing(policy: &Policy, found: &mut Found) {
    if policy.mix_enforce == Enforce::Take && policy.mix_window_min > 1 {
        found.warn("mix_enforce", format!(
            "refusing hidden states so that each window holds {} distinct buckets can deadlock: the queue fills with buckets that nobody may take; queue = \"composed\" gives the guarantee without",
            policy.mix_window_min
        ));
    }
}

/// Slots that drafters who are done with their share of a step can hold for the next.
fn slots_ahead(policy: &Policy) -> u32 {
    let waits = policy.barrier == Barrier::All && policy.assignment == Assignment::Fixed;
    if waits && policy.release == Release::Trained {
        u32::from(policy.drafters.saturating_sub(1)) * u32::from(policy.prefetch)
    } else {
        0
    }
}

/// Warns of caps on what all drafters share that are below `needed` microbatches.
fn caps(policy: &Policy, facts: &RunFacts, needed: u32, why: &str, found: &mut Found) {
    let drafters = u32::from(policy.drafters);
    let slots = [
        ("depth_total", policy.depth_total, needed),
        ("depth_per_bucket", policy.depth_per_bucket, needed),
        (
            "depth_per_drafter",
            policy.depth_per_drafter,
            needed.div_ceil(drafters.max(1)),
        ),
    ];
    for (key, cap, needed) in slots {
        if let Some(cap) = cap.filter(|&cap| cap < needed) {
            found.warn(
                key,
                format!("{cap} slots can deadlock: {why}; set at least {needed}"),
            );
        }
    }
    let all = Bytes(facts.bytes_max.0.saturating_mul(needed.into()));
    let bytes = [
        ("bytes_total", policy.bytes_total, all),
        ("bytes_per_bucket", policy.bytes_per_bucket, all),
        (
            "bytes_per_drafter",
            policy.bytes_per_drafter,
            Bytes(all.0.div_ceil(u64::from(drafters.max(1)))),
        ),
    ];
    for (key, cap, needed) in bytes {
        if let Some(cap) = cap.filter(|&cap| cap < needed) {
            found.warn(
                key,
                format!(
                    "{} bytes ({cap}) can deadlock: {why}; set at least {} ({needed})",
                    cap.0, needed.0
                ),
            );
        }
    }
}

/// With a queue a drafter, caps on what they share let one drafter's queue starve another's.
fn shared_caps(policy: &Policy, found: &mut Found) {
    if policy.drafters < 2 {
        return;
    }
    let drafters = u32::from(policy.drafters);
    let fits = policy
        .depth_total
        .zip(policy.depth_per_drafter)
        .is_some_and(|(total, each)| total >= each.saturating_mul(drafters));
    let caps = [
        ("depth_total", policy.depth_total.is_some() && !fits),
        ("depth_per_bucket", policy.depth_per_bucket.is_some()),
        ("bytes_total", policy.bytes_total.is_some()),
        ("bytes_per_bucket", policy.bytes_per_bucket.is_some()),
    ];
    for (key, _) in caps.into_iter().filter(|&(_, is_risk)| is_risk) {
        found.warn(key, "it can deadlock: one drafter's hidden states may fill it while another waits for its own; cap by drafter instead".into());
    }
}

/// Targets that pause can leave too few samples in flight to complete a step, after which the count would fall and they resume.
fn gates(policy: &Policy, facts: &RunFacts, found: &mut Found) {
    let Some(high) = policy.gate_high else {
        return;
    };
    let resumes_at = policy.gate_low.unwrap_or(high).min(high.saturating_sub(1));
    let step = facts.step_size(policy);
    let ahead = u32::from(policy.drafters) * u32::from(policy.prefetch);
    let lagging = step.saturating_mul(policy.gate_lag.into());
    let stuck = (step.saturating_sub(1))
        .saturating_add(ahead)
        .saturating_add(lagging)
        .saturating_mul(facts.samples_max);
    let is_uneven = matches!(policy.queue, Queue::PerDrafter | Queue::Composed)
        && policy.input == Input::FixedRoundRobin;
    if resumes_at < stuck || is_uneven {
        found.warn("gate_high", format!(
            "pausing targets can deadlock: with {stuck} samples in flight a step may still lack some, and targets resume at {resumes_at}; set gate_low to at least {stuck} and gate_high above it, with input = \"shared\""
        ));
    }
}
