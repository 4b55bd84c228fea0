//! Which GPU each worker is on.

use super::{Barrier, Policy, Transport};

/// The GPU of each worker, from 0.
///
/// Where there are as many GPUs as workers, each has one. Else drafters of one optimizer step share the last GPU: their gradients are
/// added in its memory. Targets are spread evenly over the others, and independent drafters too. Whoever hands over in place shares one
/// GPU with everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceMap {
    /// By target.
    pub targets: Vec<usize>,
    /// By drafter.
    pub drafters: Vec<usize>,
}

impl DeviceMap {
    /// The workers of `policy` on `gpus` GPUs.
    pub fn of(policy: &Policy, gpus: usize) -> Self {
        let (n, m) = (usize::from(policy.targets), usize::from(policy.drafters));
        let gpus = match policy.transport {
            Transport::Local => 1,
            _ => gpus.max(1),
        };
        if gpus >= n + m {
            return Self::apart(policy);
        }
        let for_drafters = match policy.barrier {
            Barrier::All => 1,
            Barrier::None => (m * gpus / (n + m).max(1)).clamp(1, m.max(1)),
        };
        let for_targets = (gpus - for_drafters.min(gpus - 1)).min(n);
        // One GPU has both.
        let first_drafter = if gpus == 1 { 0 } else { for_targets };
        let spread =
            |count: usize, over: usize| (0..count).map(move |worker| worker * over / count);
        Self {
            targets: spread(n, for_targets).collect(),
            drafters: spread(m, for_drafters)
                .map(|at| first_drafter + at)
                .collect(),
        }
    }

    /// Each worker has a GPU of its own.
    pub fn apart(policy: &Policy) -> Self {
        let (n, m) = (usize::from(policy.targets), usize::from(policy.drafters));
        Self {
            targets: (0..n).collect(),
            drafters: (n..n + m).collect(),
        }
    }

    /// GPUs in use.
    pub fn gpus(&self) -> usize {
        let last = self.targets.iter().chain(&self.drafters).max();
        last.map_or(0, |gpu| gpu + 1)
    }

    /// Targets and drafters on a GPU.
    pub fn on(&self, gpu: usize) -> (usize, usize) {
        let count = |of: &[usize]| of.iter().filter(|&&at| at == gpu).count();
        (count(&self.targets), count(&self.drafters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::preset;

    fn split(targets: u16, drafters: u16) -> Policy {
        Policy {
            targets,
            drafters,
            ..preset("composed").unwrap()
        }
    }

    #[test]
    fn drafters_of_one_step_share_a_gpu_and_targets_the_others() {
        let map = DeviceMap::of(&split(5, 3), 4);
        assert_eq!(map.targets, [0, 0, 1, 1, 2]);
        assert_eq!(map.drafters, [3, 3, 3]);
        assert_eq!((map.gpus(), map.on(1), map.on(3)), (4, (2, 0), (0, 3)));
        assert_eq!(
            DeviceMap::of(&split(5, 3), 8),
            DeviceMap::apart(&split(5, 3))
        );
    }

    #[test]
    fn one_gpu_has_all_and_a_local_hand_over_needs_one() {
        assert_eq!(DeviceMap::of(&split(2, 1), 1).on(0), (2, 1));
        let local = Policy {
            transport: Transport::Local,
            ..split(2, 1)
        };
        assert_eq!(DeviceMap::of(&local, 8).gpus(), 1);
        assert_eq!(DeviceMap::apart(&split(2, 1)).on(2), (0, 1));
    }
}
