//! Named combinations that people compare, and the overrides that make one's own.

use super::{
    Admission, Assignment, Barrier, Enforce, Input, Placement, Policy, Queue, Release, Take,
    Transport,
};
use crate::plan::{Fill, Tail};
use crate::time::Span;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// The names of all presets, the reference run's first.
pub const PRESETS: [&str; 6] = [
    "staged-fifo",
    "drafter-queues",
    "bucketed",
    "composed",
    "watermark",
    "pool",
];

/// A preset that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy.preset: \"{name}\" is no preset; choose one of {}", PRESETS.join(", "))]
pub struct UnknownPreset {
    /// What was asked for.
    pub name: String,
}

/// The preset called `name`, for a split of 5 targets and 3 drafters; [`Overrides`] set another.
pub fn preset(name: &str) -> Result<Policy, UnknownPreset> {
    Ok(match name {
        "staged-fifo" => staged_fifo(),
        "drafter-queues" => drafter_queues(),
        "bucketed" => bucketed(),
        "composed" => composed(),
        "watermark" => watermark(),
        "pool" => pool(),
        _ => {
            return Err(UnknownPreset {
                name: name.to_owned(),
            });
        }
    })
}

/// One shared queue in host memory, 20 slots a drafter, targets fed by fixed round robin, copies that stop compute.
fn staged_fifo() -> Policy {
    Policy {
        name: "staged-fifo".into(),
        targets: 5,
        drafters: 3,
        input: Input::FixedRoundRobin,
        queue: Queue::Fifo,
        take: Take::RoundRobin,
        admission: Admission::Block,
        release: Release::Fetched,
        depth_total: None,
        depth_per_bucket: None,
        depth_per_drafter: Some(20),
        bytes_total: None,
        bytes_per_bucket: None,
        bytes_per_drafter: None,
        placement: Placement::Host,
        transport: Transport::HostPageable,
        overlap: false,
        copies_beside: 1,
        prefetch: 0,
        assignment: Assignment::Fixed,
        barrier: Barrier::All,
        tail: Tail::Short,
        fill: Fill::Even,
        mix_step_min: 0,
        mix_window_min: 0,
        mix_enforce: Enforce::Record,
        gate_high: None,
        gate_low: None,
        gate_lag: 0,
        poll: Span::ZERO,
        retry_max: 2,
    }
}

/// A queue on each drafter's GPU, filled from device to device, 4 slots each.
fn drafter_queues() -> Policy {
    Policy {
        name: "drafter-queues".into(),
        queue: Queue::PerDrafter,
        release: Release::Trained,
        depth_per_drafter: Some(4),
        placement: Placement::Drafter,
        transport: Transport::P2p,
        overlap: true,
        ..staged_fifo()
    }
}

/// A queue a bucket, taken round robin, 12 slots in all; targets share their input.
fn bucketed() -> Policy {
    Policy {
        name: "bucketed".into(),
        input: Input::Shared,
        queue: Queue::Bucketed,
        release: Release::Fetched,
        depth_total: Some(12),
        depth_per_drafter: None,
        placement: Placement::Target,
        transport: Transport::P2p,
        overlap: true,
        prefetch: 1,
        ..staged_fifo()
    }
}

/// Steps composed ahead, dispatched in plan order, every slot reserved before its forward: 12 in all, in flight included.
fn composed() -> Policy {
    Policy {
        name: "composed".into(),
        queue: Queue::Composed,
        admission: Admission::Reserve,
        release: Release::Trained,
        placement: Placement::Drafter,
        prefetch: 0,
        mix_step_min: 5,
        mix_enforce: Enforce::Plan,
        ..bucketed()
    }
}

/// Targets pause at 96 samples in flight and resume at 48; whole windows are dealt to the drafters.
fn watermark() -> Policy {
    Policy {
        name: "watermark".into(),
        input: Input::Shared,
        queue: Queue::Dealt,
        depth_per_drafter: None,
        gate_high: Some(96),
        gate_low: Some(48),
        gate_lag: 1,
        overlap: true,
        prefetch: 1,
        ..staged_fifo()
    }
}

/// A pool of at most 64, looked at every 100 ms; a window is dealt when it is complete.
fn pool() -> Policy {
    Policy {
        name: "pool".into(),
        gate_high: None,
        gate_low: None,
        gate_lag: 0,
        depth_total: Some(64),
        poll: Span::from_ms(100),
        ..watermark()
    }
}

/// A cap as a user writes it: a number, or `"none"` where the preset's is to be lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap<T> {
    /// At most so much.
    At(T),
    /// No cap.
    Lifted,
}

impl<T> Cap<T> {
    fn set(self) -> Option<T> {
        match self {
            Self::At(cap) => Some(cap),
            Self::Lifted => None,
        }
    }
}

impl<T: Serialize> Serialize for Cap<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::At(cap) => cap.serialize(serializer),
            Self::Lifted => serializer.serialize_str("none"),
        }
    }
}

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Cap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CapVisitor(PhantomData))
    }
}

struct CapVisitor<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for CapVisitor<T> {
    type Value = Cap<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number of at least 1, or \"none\"")
    }

    fn visit_u64<E: de::Error>(self, cap: u64) -> Result<Self::Value, E> {
        let too_large = || E::custom(format!("{cap} is too large for a cap"));
        T::try_from(cap).map(Cap::At).map_err(|_| too_large())
    }

    fn visit_i64<E: de::Error>(self, cap: i64) -> Result<Self::Value, E> {
        let negative = || E::custom(format!("{cap} is negative; write at least 1, or \"none\""));
        u64::try_from(cap)
            .map_err(|_| negative())
            .and_then(|cap| self.visit_u64(cap))
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<Self::Value, E> {
        if word == "none" {
            return Ok(Cap::Lifted);
        }
        Err(E::invalid_value(de::Unexpected::Str(word), &self))
    }
}

/// What a user says of a policy: a preset, and any of its choices set otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(
    missing_docs,
    reason = "each field overrides the field of `Policy` with its name"
)]
pub struct Overrides {
    /// The preset to start from.
    pub preset: String,
    pub name: Option<String>,
    pub targets: Option<u16>,
    pub drafters: Option<u16>,
    pub input: Option<Input>,
    pub queue: Option<Queue>,
    pub take: Option<Take>,
    pub admission: Option<Admission>,
    pub release: Option<Release>,
    pub depth_total: Option<Cap<u32>>,
    pub depth_per_bucket: Option<Cap<u32>>,
    pub depth_per_drafter: Option<Cap<u32>>,
    pub bytes_total: Option<Cap<u64>>,
    pub bytes_per_bucket: Option<Cap<u64>>,
    pub bytes_per_drafter: Option<Cap<u64>>,
    pub placement: Option<Placement>,
    pub transport: Option<Transport>,
    pub overlap: Option<bool>,
    pub copies_beside: Option<u8>,
    pub prefetch: Option<u8>,
    pub assignment: Option<Assignment>,
    pub barrier: Option<Barrier>,
    pub tail: Option<Tail>,
    pub fill: Option<Fill>,
    pub mix_step_min: Option<u8>,
    pub mix_window_min: Option<u8>,
    pub mix_enforce: Option<Enforce>,
    pub gate_high: Option<Cap<u32>>,
    pub gate_low: Option<Cap<u32>>,
    pub gate_lag: Option<u8>,
    #[serde(rename = "poll_ns")]
    pub poll: Option<Span>,
    pub retry_max: Option<u8>,
}

macro_rules! set {
    ($policy:ident, $self:ident, $($field:ident),*) => {
        $(if let Some(value) = $self.$field.clone() { $policy.$field = value; })*
    };
}

macro_rules! set_cap {
    ($policy:ident, $self:ident, $($field:ident),*) => {
        $(if let Some(value) = $self.$field { $policy.$field = value.set().map(Into::into); })*
    };
}

impl Overrides {
    /// The concrete policy: the preset with these choices set otherwise.
    pub fn resolve(&self) -> Result<Policy, UnknownPreset> {
        let mut policy = preset(&self.preset)?;
        set!(
            policy,
            self,
            name,
            targets,
            drafters,
            input,
            queue,
            take,
            admission,
            release,
            placement,
            transport,
            overlap,
            copies_beside,
            prefetch,
            assignment,
            barrier,
            tail,
            fill,
            mix_step_min,
            mix_window_min,
            mix_enforce,
            gate_lag,
            poll,
            retry_max
        );
        set_cap!(
            policy,
            self,
            depth_total,
            depth_per_bucket,
            depth_per_drafter,
            bytes_total,
            bytes_per_bucket,
            bytes_per_drafter,
            gate_high,
            gate_low
        );
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_resolves_to_its_own_name() {
        for name in PRESETS {
            assert_eq!(preset(name).unwrap().name, name);
        }
    }

    #[test]
    fn overrides_change_what_they_name_and_nothing_else() {
        let said = Overrides {
            preset: "composed".into(),
            depth_total: Some(Cap::At(16)),
            ..Overrides::default()
        };
        let policy = said.resolve().unwrap();
        assert_eq!(
            policy,
            Policy {
                depth_total: Some(16),
                ..composed()
            }
        );
    }

    #[test]
    fn an_unknown_preset_is_refused_with_the_list() {
        let error = preset("composd").unwrap_err().to_string();
        assert!(
            error.contains("composd") && error.contains("staged-fifo"),
            "{error}"
        );
    }
}
