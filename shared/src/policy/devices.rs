//! Which GPU each worker is on.

use super::{Policy, Transport};

/// The GPU of each worker, from 0.
///
/// Each worker has a GPU of its own where there are enough. Fewer are divided between targets and drafters in proportion to their
/// workers, at least one each, and each kind is spread evenly over its GPUs, neighbours together. On a single GPU everybody is, and
/// whoever hands over in place shares one with everybody.
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
        if gpus == 1 {
            return Self {
                targets: vec![0; n],
                drafters: vec![0; m],
            };
        }
        // More than half a GPU counts as one; no GPU is without a worker.
        let share = (2 * m * gpus + n + m - 1) / (2 * (n + m));
        let for_drafters = share.clamp(1, gpus - 1).clamp(gpus.saturating_sub(n), m);
        let for_targets = gpus - for_drafters;
        let spread = |count: usize, over: usize, first: usize| -> Vec<usize> {
            (0..count).map(|i| first + i * over / count).collect()
        };
        Self {
            targets: spread(n, for_targets, 0),
            drafters: spread(m, for_drafters, for_targets),
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
    fn each_kind_has_its_share_of_the_gpus() {
        let places = |n, m, gpus| {
            let map = DeviceMap::of(&split(n, m), gpus);
            (map.targets, map.drafters)
        };
        assert_eq!(places(5, 3, 8), (vec![0, 1, 2, 3, 4], vec![5, 6, 7]));
        assert_eq!(places(5, 3, 9), places(5, 3, 8));
        assert_eq!(places(5, 3, 6), (vec![0, 0, 1, 2, 3], vec![4, 4, 5]));
        assert_eq!(places(5, 3, 4), (vec![0, 0, 1, 1, 2], vec![3; 3]));
        assert_eq!(places(5, 3, 3), (vec![0, 0, 0, 1, 1], vec![2; 3]));
        assert_eq!(places(5, 3, 2), (vec![0; 5], vec![1; 3]));
        assert_eq!(places(5, 3, 1), (vec![0; 5], vec![0; 3]));
        assert_eq!(places(1, 5, 4), (vec![0], vec![1, 1, 2, 2, 3]));
        let map = DeviceMap::of(&split(5, 3), 4);
        assert_eq!((map.gpus(), map.on(1), map.on(3)), (4, (2, 0), (0, 3)));
    }

    #[test]
    fn no_gpu_in_use_is_without_a_worker() {
        let sizes = (1..7).flat_map(|n| (1..7).flat_map(move |m| (1..9).map(move |g| (n, m, g))));
        for (n, m, gpus) in sizes {
            let map = DeviceMap::of(&split(n, m), gpus);
            let used = gpus.min(usize::from(n + m));
            assert_eq!(map.gpus(), used, "{n}+{m} on {gpus}");
            for gpu in 0..used {
                let (targets, drafters) = map.on(gpu);
                assert!(targets + drafters > 0, "{n}+{m} on {gpus}");
                assert!(used == 1 || targets * drafters == 0, "{n}+{m} on {gpus}");
            }
        }
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
