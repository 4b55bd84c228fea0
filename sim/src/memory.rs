//! Memory where it lives: each GPU and the host, fixed parts and hidden states.

use crate::run::Resolved;
use crate::spec::{Hardware, Model};
use shared::id::{Bytes, DrafterId, TargetId};
use shared::metrics::Peaks;
use shared::policy::{DeviceMap, Placement, Policy, Transport};

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

    /// Adds that of another worker of the same process.
    fn join(&mut self, other: &Self) {
        self.weights += other.weights;
        self.activations += other.activations;
        self.overhead = self.overhead.max(other.overhead);
        self.hidden += other.hidden;
    }
}

/// Memory by place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Each target's, on its GPU.
    pub targets: Vec<Part>,
    /// Each drafter's, on its GPU.
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

    /// The places whose memory does not suffice, with the workers of `policy` on the GPUs that `hardware` gives them.
    pub fn overflow(&self, hardware: &Hardware, policy: &Policy) -> Vec<Overflow> {
        let host = ("host".to_owned(), self.host, hardware.host_memory.bytes());
        let gpus = self.gpus(hardware, policy);
        let gpus = gpus
            .into_iter()
            .map(|(place, part)| (place, part, hardware.gpu_memory.bytes()));
        gpus.chain([host])
            .filter(|(_, part, there)| part.total() > *there)
            .map(|(place, part, there)| Overflow {
                place,
                needed: part.total(),
                there,
            })
            .collect()
    }

    /// Each GPU's memory, named by its workers.
    fn gpus(&self, hardware: &Hardware, policy: &Policy) -> Vec<(String, Part)> {
        let map = match hardware.sharing {
            Some(_) => DeviceMap::of(policy, usize::from(hardware.gpus)),
            None => DeviceMap::apart(policy),
        };
        let mut gpus = vec![(Vec::new(), Part::default()); map.gpus()];
        for (i, (part, &gpu)) in self.targets.iter().zip(&map.targets).enumerate() {
            let (workers, sum) = &mut gpus[gpu];
            // Targets of one GPU read the same weights.
            let weights = if workers.is_empty() {
                part.weights
            } else {
                Bytes(0)
            };
            sum.join(&Part { weights, ..*part });
            workers.push(TargetId::from_index(i).to_string());
        }
        for (i, (part, &gpu)) in self.drafters.iter().zip(&map.drafters).enumerate() {
            let (workers, sum) = &mut gpus[gpu];
            sum.join(part);
            workers.push(DrafterId::from_index(i).to_string());
        }
        let named =
            |(workers, sum): (Vec<String>, Part)| (format!("GPU of {}", workers.join(", ")), sum);
        gpus.into_iter().map(named).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::works::tests::point;

    #[test]
    fn workers_that_share_a_gpu_share_its_memory() {
        let mut point = point("composed");
        (point.policy.targets, point.policy.drafters) = (2, 1);
        let part = |weights: u64| Part {
            weights: Bytes(weights),
            activations: Bytes(10),
            overhead: Bytes(5),
            hidden: Bytes(20),
        };
        let memory = Memory {
            targets: vec![part(100); 2],
            drafters: vec![part(40)],
            host: Part::default(),
        };
        let apart = memory.gpus(&point.hardware, &point.policy);
        let totals =
            |gpus: &[(String, Part)]| -> Vec<u64> { gpus.iter().map(|g| g.1.total().0).collect() };
        assert_eq!(totals(&apart), [135, 135, 75]);
        point.hardware.sharing = Some(crate::spec::Sharing::default());
        point.hardware.gpus = 1;
        let together = memory.gpus(&point.hardware, &point.policy);
        assert_eq!(together[0].0, "GPU of t0, t1, d0");
        // One copy of the target's weights and one process.
        assert_eq!(totals(&together), [100 + 40 + 3 * 10 + 5 + 3 * 20]);
    }
}
