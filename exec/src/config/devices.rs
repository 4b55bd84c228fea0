//! Which GPU each worker is on.

use super::OutOfRange;
use serde::{Deserialize, Serialize};

/// The `[exec.devices]` section: a GPU for each worker, counted from 0 among those that CUDA_VISIBLE_DEVICES leaves. Both empty: workers
/// are spread over the GPUs there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DevicesSection {
    /// GPUs of the target workers, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<usize>,
    /// GPUs of the drafter workers, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drafters: Vec<usize>,
}

impl DevicesSection {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty() && self.drafters.is_empty()
    }

    /// What is wrong on its own, whatever the policy.
    pub(super) fn problems(&self) -> Option<OutOfRange> {
        let (key, other) = match (self.targets.is_empty(), self.drafters.is_empty()) {
            (true, false) => ("exec.devices.targets", "drafters"),
            (false, true) => ("exec.devices.drafters", "targets"),
            _ => return None,
        };
        Some(OutOfRange {
            key,
            value: "[]".into(),
            limit: format!("must name a GPU for each worker, as {other} does"),
            way_out: "name them, or leave both out to spread workers over the GPUs there are",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_map_is_none() {
        let said = |targets: &[usize], drafters: &[usize]| DevicesSection {
            targets: targets.to_vec(),
            drafters: drafters.to_vec(),
        };
        assert_eq!(said(&[], &[]).problems(), None);
        assert_eq!(said(&[0, 0], &[1]).problems(), None);
        let problem = said(&[0], &[]).problems().unwrap();
        assert_eq!(problem.key, "exec.devices.drafters");
    }
}
