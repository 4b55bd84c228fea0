//! The machine: GPUs, memories and the links between them.

use super::check::{Checks, Problem};
use super::sharing::Sharing;
use super::units::{ByteSize, Rate};
use serde::{Deserialize, Serialize};
use shared::load::Rests;

/// One box. Each link belongs to the transport of its name; a missing one cannot be used, except `local`, by which nothing moves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// What the box is, for reports.
    #[serde(default)]
    pub description: String,
    /// GPUs in the box.
    pub gpus: u16,
    /// Memory of each GPU.
    pub gpu_memory: ByteSize,
    /// Memory of the host.
    pub host_memory: ByteSize,
    /// Between a GPU and ordinary host memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_pageable: Option<Link>,
    /// Between a GPU and page-locked host memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_pinned: Option<Link>,
    /// Between two GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p2p: Option<Link>,
    /// Inside one GPU, as measured. Hidden states that stay there do not travel, so a simulation makes nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<Link>,
    /// How workers that share a GPU slow each other; without it, each worker has a GPU of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// What work gains when its GPU rests now and then; without it, nothing.
    #[serde(default, skip_serializing_if = "Rests::is_none")]
    pub rests: Rests,
}

/// No clock rises by more; a higher number is a mistake in the file.
const SPEED_MAX: f64 = 3.0;

/// What carries hidden states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Data carried in one direction.
    pub bandwidth: Rate,
    /// Data carried into drafters, where that is another speed than out of targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_in: Option<Rate>,
    /// Speed of compute on a GPU that workers share while such a copy is under way there, as a share of the speed without: copies of
    /// ordinary host memory hold up the launches of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_rate: Option<f64>,
    /// Time before the first byte. (ms)
    #[serde(default)]
    pub latency_ms: f64,
    /// Whether all transfers of one direction contend for one link; else each device has its own.
    #[serde(default)]
    pub shared: bool,
    /// Whether the two directions do not contend.
    #[serde(default = "yes")]
    pub duplex: bool,
    /// Speed of copies in one direction while any goes in the other, as a share of their speed without: what has a link for each direction
    /// may still have one host memory, and the same threads, for both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub both_ways_rate: Option<f64>,
}

const fn yes() -> bool {
    true
}

impl Hardware {
    /// What cannot be simulated; `at` is the path of this section.
    pub fn validate(&self, at: &str) -> Vec<Problem> {
        let mut checks = Checks::new(at);
        checks.at_least_one("gpus", self.gpus, "count the GPUs of the box");
        checks.require(
            self.gpu_memory > ByteSize(0),
            "gpu_memory",
            self.gpu_memory,
            "must be above 0 B",
            "write the memory of one GPU, such as \"141 GB\"",
        );
        checks.require(
            self.host_memory > ByteSize(0),
            "host_memory",
            self.host_memory,
            "must be above 0 B",
            "write the memory of the host, such as \"2 TB\"",
        );
        for (key, link) in self.links() {
            if let Some(link) = link {
                let problems = link.validate(&checks.path(key));
                checks.extend(problems);
            }
        }
        if let Some(sharing) = &self.sharing {
            let problems = sharing.validate(&checks.path("sharing"));
            checks.extend(problems);
        }
        let problems = self.validate_rests(&checks.path("rests"));
        checks.extend(problems);
        checks.done()
    }

    fn validate_rests(&self, at: &str) -> Vec<Problem> {
        let mut checks = Checks::new(at);
        for (name, rest) in [("forward", self.rests.forward), ("train", self.rests.train)] {
            let Some(rest) = rest else { continue };
            let out = "leave it out for work whose speed does not depend on rests";
            for (key, value, is_sound, rule) in [
                (
                    "exponent",
                    rest.exponent,
                    (0.0..1.0).contains(&rest.exponent),
                    "must be at least 0 and below 1",
                ),
                (
                    "busy",
                    rest.busy,
                    rest.busy > 0.0 && rest.busy <= 1.0,
                    "must be above 0 and at most 1",
                ),
                (
                    "speed_max",
                    rest.speed_max,
                    (1.0..=SPEED_MAX).contains(&rest.speed_max),
                    "must be from 1 to 3",
                ),
            ] {
                checks.require(is_sound, &format!("{name}.{key}"), value, rule, out);
            }
        }
        checks.done()
    }

    fn links(&self) -> [(&'static str, Option<&Link>); 4] {
        [
            ("host_pageable", self.host_pageable.as_ref()),
            ("host_pinned", self.host_pinned.as_ref()),
            ("p2p", self.p2p.as_ref()),
            ("local", self.local.as_ref()),
        ]
    }
}

impl Link {
    /// What cannot be simulated; `at` is the path of this section.
    pub fn validate(&self, at: &str) -> Vec<Problem> {
        let mut checks = Checks::new(at);
        checks.not_negative(
            "latency_ms",
            self.latency_ms,
            "write 0 for a link without latency",
        );
        for (key, rate, out) in [
            (
                "compute_rate",
                self.compute_rate,
                "leave it out for copies that slow nothing",
            ),
            (
                "both_ways_rate",
                self.both_ways_rate,
                "leave it out for directions that do not slow each other",
            ),
        ] {
            if let Some(rate) = rate {
                checks.positive(key, rate, out);
                checks.share(key, rate, out);
            }
        }
        if let Some(rate) = self.both_ways_rate {
            checks.require(
                self.duplex,
                "both_ways_rate",
                rate,
                "has no meaning with duplex = false, by which both directions share one link",
                "leave one of them out",
            );
        }
        checks.done()
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::lines;
    use super::*;

    const BOX: &str = r#"
        gpus = 8
        gpu_memory = "141 GB"
        host_memory = "2 TB"
        host_pinned = { bandwidth = "25 GB/s", latency_ms = 0.02, shared = true }
    "#;

    #[test]
    fn links_default_to_duplex_and_their_own() {
        let hardware: Hardware = toml::from_str(BOX).unwrap();
        let pinned = hardware.host_pinned.as_ref().unwrap();
        assert!(pinned.duplex && pinned.shared);
        assert_eq!(pinned.bandwidth.bytes_per_s(), 25e9);
        assert_eq!(hardware.p2p, None);
        assert_eq!(hardware.validate("hardware"), []);
        let text = toml::to_string(&hardware).unwrap();
        assert_eq!(toml::from_str::<Hardware>(&text).unwrap(), hardware);
    }

    #[test]
    fn directions_slow_each_other_or_share_one_link() {
        let mut hardware: Hardware = toml::from_str(BOX).unwrap();
        let pinned = hardware.host_pinned.as_mut().unwrap();
        (pinned.both_ways_rate, pinned.duplex) = (Some(1.5), false);
        assert_eq!(
            lines(&hardware.validate("hardware")),
            [
                "hardware.host_pinned.both_ways_rate: 1.5 must be from 0 to 1; leave it out for directions that do not slow each other",
                "hardware.host_pinned.both_ways_rate: 1.5 has no meaning with duplex = false, by which both directions share one link; leave one of them out",
            ]
        );
    }

    #[test]
    fn a_box_without_gpus_or_memory_is_refused() {
        let mut hardware: Hardware = toml::from_str(BOX).unwrap();
        hardware.gpus = 0;
        hardware.gpu_memory = ByteSize(0);
        hardware.host_memory = ByteSize(0);
        hardware.host_pinned.as_mut().unwrap().latency_ms = f64::NAN;
        assert_eq!(
            lines(&hardware.validate("hardware")),
            [
                "hardware.gpus: 0 must be at least 1; count the GPUs of the box",
                "hardware.gpu_memory: 0 B must be above 0 B; write the memory of one GPU, such as \"141 GB\"",
                "hardware.host_memory: 0 B must be above 0 B; write the memory of the host, such as \"2 TB\"",
                "hardware.host_pinned.latency_ms: NaN must be finite and at least 0; write 0 for a link without latency",
            ]
        );
    }
}
