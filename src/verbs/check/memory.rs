//! Memory at worst: what the caps allow, not what a run happens to use.

use crate::scenario::Case;
use shared::id::Bytes;
use shared::plan::{Edges, Plan};
use shared::policy::Policy;
use sim::spec::Hardware;
use sim::{Memory, Overflow, Part};

/// The most memory that a policy can come to need.
#[derive(Clone, Debug)]
pub(super) struct Worst {
    pub(super) memory: Memory,
    /// Whether nothing but the amount of work bounds hidden states.
    pub(super) is_uncapped: bool,
}

/// The worst case of a point.
pub(super) fn worst(case: &Case, plan: &Plan, edges: &Edges) -> Worst {
    let file = &case.file;
    let mut memory = Memory::at_worst(&file.model, &file.policy, plan.bytes_max());
    let longest = Bytes(
        file.model
            .bytes_per_token()
            .0
            .saturating_mul(edges.last().into()),
    );
    let cap = other_caps(&file.policy, plan, longest);
    let all = plan
        .microbatches
        .iter()
        .fold(0_u64, |sum, m| sum.saturating_add(m.bytes.0));
    let limit = Bytes(cap.unwrap_or(all).min(all));
    let parts = memory.targets.iter_mut().chain(&mut memory.drafters);
    for part in parts.chain([&mut memory.host]) {
        part.hidden = part.hidden.min(limit);
    }
    let is_uncapped = cap.is_none() && !is_capped_in_all(&file.policy);
    Worst {
        memory,
        is_uncapped,
    }
}

fn is_capped_in_all(policy: &Policy) -> bool {
    policy.depth_total.is_some()
        || policy.depth_per_drafter.is_some()
        || policy.bytes_total.is_some()
}

/// The most bytes in existence under the caps that [`Memory::at_worst`] does not look at: those by bucket, by drafter in bytes, and
/// the watermark on samples in flight.
fn other_caps(policy: &Policy, plan: &Plan, longest: Bytes) -> Option<u64> {
    let largest = plan.bytes_max().0;
    let workers = u64::from(policy.targets) + u64::from(policy.drafters);
    // Beside those in slots, each worker may have one in hand and one on the way.
    let in_hand = largest.saturating_mul(2 * workers);
    let buckets = u64::from(plan.buckets());
    let by_bucket = policy
        .depth_per_bucket
        .map(|depth| largest.saturating_mul(u64::from(depth) * buckets));
    let bytes_by_bucket = policy.bytes_per_bucket.map(|b| b.0.saturating_mul(buckets));
    let bytes_by_drafter = policy
        .bytes_per_drafter
        .map(|b| b.0.saturating_mul(policy.drafters.into()));
    let slots = [by_bucket, bytes_by_bucket, bytes_by_drafter];
    let slots = slots
        .into_iter()
        .flatten()
        .map(|bytes| bytes.saturating_add(in_hand));
    // Targets pause above the mark, so one microbatch each may exceed it.
    let gate = policy.gate_high.map(|samples| {
        let over = largest.saturating_mul(policy.targets.into());
        longest
            .0
            .saturating_mul(samples.into())
            .saturating_add(over)
    });
    slots.chain(gate).min()
}

impl Worst {
    /// A policy without caps is doubtful, however much memory there is.
    pub(super) fn warning(&self) -> Option<String> {
        self.is_uncapped.then(|| {
            "policy.depth_total: no cap bounds hidden states, so a slow drafter fills the memory; set depth_total or bytes_total".to_owned()
        })
    }

    /// Places whose memory does not suffice. Where nobody asked for a limit, hidden states are no reason to call a policy infeasible.
    pub(super) fn overflow(&self, hardware: &Hardware, policy: &Policy) -> Vec<Overflow> {
        if !self.is_uncapped {
            return self.memory.overflow(hardware, policy);
        }
        let mut memory = self.memory.clone();
        let parts = memory.targets.iter_mut().chain(&mut memory.drafters);
        for part in parts.chain([&mut memory.host]) {
            part.hidden = Bytes(0);
        }
        memory.overflow(hardware, policy)
    }

    /// The rows of the table: place, parts, what is there.
    pub(super) fn rows(&self, case: &Case) -> Vec<(String, Part, Bytes)> {
        let hardware = &case.file.hardware;
        let gpu = hardware.gpu_memory.bytes();
        let first = |parts: &[Part], what: &str| {
            let name = format!("each {what} GPU");
            parts.first().map(|&part| (name, part, gpu))
        };
        let host = hardware.host_memory.bytes();
        first(&self.memory.targets, "target")
            .into_iter()
            .chain(first(&self.memory.drafters, "drafter"))
            .chain([("host".to_owned(), self.memory.host, host)])
            .collect()
    }
}

/// What is too small and what to do about it, once for all GPUs that need the same.
pub(super) fn complaints(overflow: &[Overflow]) -> impl Iterator<Item = String> {
    let kinds = overflow.chunk_by(|a, b| (a.needed, a.there) == (b.needed, b.there));
    kinds.map(|alike| {
        let (first, last) = (&alike[0], &alike[alike.len() - 1]);
        let places = match alike.len() {
            1 => first.place.clone(),
            _ => format!("{} to {}", first.place, last.place.replace("GPU of ", "")),
        };
        let elsewhere = match first.place.as_str() {
            "host" => "place hidden states on GPUs",
            _ => "place hidden states elsewhere",
        };
        format!(
            "{places} needs {} at worst, it has {}; lower policy.depth_total or bytes_total, {elsewhere}, or lower training.token_budget",
            first.needed, first.there
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_that_need_the_same_are_named_together() {
        let needs = |place: &str, needed| Overflow {
            place: place.into(),
            needed: Bytes(needed),
            there: Bytes(5),
        };
        let all = [
            needs("GPU of d0", 9),
            needs("GPU of d1", 9),
            needs("host", 7),
        ];
        let lines: Vec<_> = complaints(&all).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("GPU of d0 to d1 needs 9 B at worst, it has 5 B; "));
        assert!(lines[1].starts_with("host needs 7 B"));
    }
}
