//! Which GPU each worker is on.

use crate::config::DevicesSection;
use shared::policy::{DeviceMap, Policy, Transport};

/// Which GPU each worker is on: as the policy file says, or else by the rule of [`DeviceMap`].
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
        let map = DeviceMap::of(policy, gpus);
        Self::of(&map.targets, &map.drafters)
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
        let rule = Placing::new(&policy(2, 1), 2, &DevicesSection::default()).unwrap();
        assert_eq!((rule.targets, rule.drafters), (vec![0, 0], vec![1]));
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
