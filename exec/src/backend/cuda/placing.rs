//! Which GPU each worker is on.

use crate::config::DevicesSection;
use shared::policy::{Policy, Transport};

/// Which GPU each worker is on.
///
/// Unless the policy file says it, each worker has a GPU of its own where there are enough; fewer are divided between targets and drafters
/// in proportion to their workers, at least one each, and each kind is spread evenly over its GPUs, neighbours together. Workers that hand
/// over in place share the first GPU, and on a machine with one everybody does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placing {
    /// The GPUs in use, as the driver counts them, in ascending order; all else here counts in this list.
    pub(super) ordinals: Vec<usize>,
    pub(super) targets: Vec<usize>,
    pub(super) drafters: Vec<usize>,
}

impl Placing {
    /// The places that `given` names, or else the rule's, on a machine with `gpus` GPUs.
    ///
    /// # Errors
    /// A list that does not name one GPU for each worker, a GPU that is not there, or workers that hand over in place on different ones.
    pub(super) fn new(
        policy: &Policy,
        gpus: usize,
        given: &DevicesSection,
    ) -> Result<Self, String> {
        if given.is_empty() {
            return Ok(Self::spread(policy, gpus));
        }
        let lists = [
            ("targets", &given.targets, policy.targets),
            ("drafters", &given.drafters, policy.drafters),
        ];
        for (key, list, workers) in lists {
            if list.len() != usize::from(workers) {
                return Err(format!(
                    "exec.devices.{key}: {} GPUs are named for {workers} workers; name one for each, or leave [exec.devices] out",
                    list.len()
                ));
            }
            if let Some(missing) = list.iter().find(|&&at| at >= gpus) {
                return Err(format!(
                    "exec.devices.{key}: GPU {missing} is named and there are {gpus}; use 0 to {}",
                    gpus.saturating_sub(1)
                ));
            }
        }
        let placing = Self::of(&given.targets, &given.drafters);
        match policy.transport == Transport::Local && placing.ordinals.len() > 1 {
            true => Err(
                "exec.devices: several GPUs are named and policy.transport = \"local\" hands over in place; name one GPU, or set policy.transport = \"p2p\""
                    .to_owned(),
            ),
            false => Ok(placing),
        }
    }

    /// The rule's places.
    pub(super) fn spread(policy: &Policy, gpus: usize) -> Self {
        let (n, m) = (usize::from(policy.targets), usize::from(policy.drafters));
        let gpus = match policy.transport {
            // Whoever hands over in place shares a device.
            Transport::Local => 1,
            _ => gpus.clamp(1, n + m),
        };
        if gpus == 1 {
            return Self::of(&vec![0; n], &vec![0; m]);
        }
        // Half a GPU counts as one, as long as each kind has one and no GPU is without a worker.
        let share = (2 * m * gpus + n + m) / (2 * (n + m));
        let for_drafters = share.clamp(1, gpus - 1).clamp(gpus.saturating_sub(n), m);
        let for_targets = gpus - for_drafters;
        let spread = |count: usize, over: usize, first: usize| -> Vec<usize> {
            (0..count).map(|i| first + i * over / count).collect()
        };
        let targets = spread(n, for_targets, 0);
        Self::of(&targets, &spread(m, for_drafters, for_targets))
    }

    /// From ordinals to places in the list of those in use.
    fn of(targets: &[usize], drafters: &[usize]) -> Self {
        let mut ordinals: Vec<usize> = targets.iter().chain(drafters).copied().collect();
        ordinals.sort_unstable();
        ordinals.dedup();
        let places = |list: &[usize]| -> Vec<usize> {
            let place = |at: &usize| ordinals.partition_point(|other| other < at);
            list.iter().map(place).collect()
        };
        Self {
            targets: places(targets),
            drafters: places(drafters),
            ordinals,
        }
    }

    /// GPUs in use.
    pub(super) fn gpus(&self) -> usize {
        self.ordinals.len()
    }

    pub(super) fn targets_on(&self, gpu: usize) -> usize {
        self.targets.iter().filter(|&&at| at == gpu).count()
    }

    pub(super) fn drafters_on(&self, gpu: usize) -> usize {
        self.drafters.iter().filter(|&&at| at == gpu).count()
    }

    /// The drafters' GPUs in the order in which the drafters name them.
    pub(super) fn drafter_gpus(&self) -> Vec<usize> {
        let mut gpus: Vec<usize> = Vec::new();
        for &gpu in &self.drafters {
            if !gpus.contains(&gpu) {
                gpus.push(gpu);
            }
        }
        gpus
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::policy::preset;

    fn policy(targets: u16, drafters: u16) -> Policy {
        Policy {
            targets,
            drafters,
            transport: Transport::P2p,
            ..preset("composed").unwrap()
        }
    }

    #[test]
    fn workers_are_spread_over_the_gpus_there_are() {
        let places = |n, m, gpus| {
            let placing = Placing::spread(&policy(n, m), gpus);
            (placing.targets, placing.drafters)
        };
        assert_eq!(places(5, 3, 8), (vec![0, 1, 2, 3, 4], vec![5, 6, 7]));
        assert_eq!(places(5, 3, 9), places(5, 3, 8));
        assert_eq!(places(5, 3, 4), (vec![0, 0, 0, 1, 1], vec![2, 2, 3]));
        assert_eq!(places(5, 3, 3), (vec![0, 0, 0, 1, 1], vec![2; 3]));
        assert_eq!(places(5, 3, 2), (vec![0; 5], vec![1; 3]));
        assert_eq!(places(5, 3, 1), (vec![0; 5], vec![0; 3]));
        assert_eq!(places(3, 1, 4), (vec![0, 1, 2], vec![3]));
        assert_eq!(places(2, 2, 4), (vec![0, 1], vec![2, 3]));
        assert_eq!(places(1, 5, 4), (vec![0], vec![1, 1, 2, 2, 3]));
        let mut local = policy(5, 3);
        local.transport = Transport::Local;
        assert_eq!(Placing::spread(&local, 8).gpus(), 1);
    }

    #[test]
    fn no_gpu_in_use_is_without_a_worker() {
        for (n, m, gpus) in
            (1..7).flat_map(|n| (1..7).flat_map(move |m| (1..9).map(move |g| (n, m, g))))
        {
            let placing = Placing::spread(&policy(n, m), gpus);
            let used = gpus.min(usize::from(n + m));
            assert_eq!(placing.gpus(), used, "{n}+{m} on {gpus}");
            let both = |gpu| placing.targets_on(gpu) > 0 && placing.drafters_on(gpu) > 0;
            assert!(used == 1 || !(0..used).any(both), "{n}+{m} on {gpus}");
        }
    }

    #[test]
    fn what_the_file_says_goes_before_the_rule() {
        let given = |targets: &[usize], drafters: &[usize]| DevicesSection {
            targets: targets.to_vec(),
            drafters: drafters.to_vec(),
        };
        let placing = Placing::new(&policy(2, 1), 8, &given(&[3, 6], &[3])).unwrap();
        assert_eq!(placing.ordinals, [3, 6]);
        assert_eq!((placing.targets, placing.drafters), (vec![0, 1], vec![0]));
        let refused = |given: DevicesSection| Placing::new(&policy(2, 1), 4, &given).unwrap_err();
        assert_eq!(
            refused(given(&[0], &[1])),
            "exec.devices.targets: 1 GPUs are named for 2 workers; name one for each, or leave [exec.devices] out"
        );
        assert_eq!(
            refused(given(&[0, 1], &[4])),
            "exec.devices.drafters: GPU 4 is named and there are 4; use 0 to 3"
        );
        let mut local = policy(1, 1);
        local.transport = Transport::Local;
        let refused = Placing::new(&local, 4, &given(&[0], &[1])).unwrap_err();
        assert!(
            refused.starts_with("exec.devices: several GPUs"),
            "{refused}"
        );
        assert!(Placing::new(&local, 4, &given(&[2], &[2])).is_ok());
    }
}
