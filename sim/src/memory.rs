//! Memory where it lives: each GPU and the host, fixed parts and hidden states.

use crate::run::Resolved;
use crate::spec::{Hardware, Model};
use shared::id::Bytes;
use shared::metrics::Peaks;
use shared::policy::{Placement, Policy, Transport};

/// One place's memory by what it is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Weights and optimizer state.
    pub weights: Bytes,
    /// Activations of one microbatch.
    pub activations: Bytes,
    /// What the process takes besides.
    pub overhead: Bytes,
    /// Hidden states at their peak.
    pub hidden: Bytes,
}

impl Part {
    /// All of it.
    pub fn total(&self) -> Bytes {
        self.weights + self.activations + self.overhead + self.hidden
    }
}

/// Memory by place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Each target's GPU.
    pub targets: Vec<Part>,
    /// Each drafter's GPU.
    pub drafters: Vec<Part>,
    /// The host.
    pub host: Part,
}

/// A place whose memory does not suffice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// Which place: "GPU of t0", "host".
    pub place: String,
    /// What it would need.
    pub needed: Bytes,
    /// What it has.
    pub there: Bytes,
}

impl std::fmt::Display for Overflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} needs {}, it has {}",
            self.place, self.needed, self.there
        )
    }
}

impl Memory {
    /// With hidden states as they peaked in a run.
    pub fn at_peak(point: &Resolved, peaks: &Peaks) -> Self {
        let targets = peaks
            .targets
            .iter()
            .map(|&hidden| target(&point.model, hidden));
        let drafters = peaks
            .drafters
            .iter()
            .map(|&hidden| drafter(&point.model, hidden));
        Self {
            targets: targets.collect(),
            drafters: drafters.collect(),
            host: host(&point.model, peaks.host),
        }
    }

    /// With hidden states as the policy's caps allow at worst, for microbatches of at most `largest`.
    pub fn at_worst(model: &Model, policy: &Policy, largest: Bytes) -> Self {
        let times = |slots: u64| Bytes(largest.0.saturating_mul(slots));
        let total = {
            let bytes = policy.slots_max().map(|slots| times(slots.into()));
            bytes
                .into_iter()
                .chain(policy.bytes_total)
                .min()
                .unwrap_or(Bytes(u64::MAX))
        };
        let own = policy
            .depth_per_drafter
            .map(|d| times(d.into()))
            .unwrap_or(total)
            .min(total);
        // Its own forward, and the copies beside it.
        let copies = if policy.overlap {
            policy.copies_beside
        } else {
            0
        };
        let in_hand = times(1 + u64::from(copies));
        let prefetched = times(u64::from(policy.prefetch) + 1);
        let local = policy.transport == Transport::Local;
        let (at_target, at_drafter, at_host) = match policy.placement {
            Placement::Target => {
                let fetched = if local { Bytes(0) } else { prefetched };
                (Bytes(total.0.saturating_add(in_hand.0)), fetched, Bytes(0))
            }
            Placement::Host => (in_hand, prefetched, total),
            Placement::Drafter => (in_hand, own, Bytes(0)),
        };
        Self {
            targets: vec![target(model, at_target); usize::from(policy.targets)],
            drafters: vec![drafter(model, at_drafter); usize::from(policy.drafters)],
            host: host(model, at_host),
        }
    }

    /// The places whose memory does not suffice.
    pub fn overflow(&self, hardware: &Hardware) -> Vec<Overflow> {
        let gpu = hardware.gpu_memory.bytes();
        let targets = self
            .targets
            .iter()
            .enumerate()
            .map(|(i, p)| (format!("GPU of t{i}"), p, gpu));
        let drafters = self
            .drafters
            .iter()
            .enumerate()
            .map(|(i, p)| (format!("GPU of d{i}"), p, gpu));
        let host = [("host".to_owned(), &self.host, hardware.host_memory.bytes())];
        targets
            .chain(drafters)
            .chain(host)
            .filter(|(_, part, there)| part.total() > *there)
            .map(|(place, part, there)| Overflow {
                place,
                needed: part.total(),
                there,
            })
            .collect()
    }
}

fn target(model: &Model, hidden: Bytes) -> Part {
    Part {
        weights: model.target_weights.bytes(),
        activations: model.target_activations.bytes(),
        overhead: model.process_overhead.bytes(),
        hidden,
    }
}

fn drafter(model: &Model, hidden: Bytes) -> Part {
    Part {
        weights: model.drafter_state.bytes(),
        activations: model.drafter_activations.bytes(),
        overhead: model.process_overhead.bytes(),
        hidden,
    }
}

fn host(model: &Model, hidden: Bytes) -> Part {
    Part {
        overhead: model.host_base.bytes(),
        hidden,
        ..Part::default()
    }
}
