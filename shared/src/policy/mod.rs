//! All choices that dispatch needs, as one flat, concrete value: a [`Policy`].
//!
//! A policy says what is preferred; [`Core`](crate::core::Core) decides what is legal. The choices form a closed set, and a preset
//! names one combination that people compare. The way hidden states wait and are taken is a [`Dispatch`]: one file each in this
//! folder, one line in its registry, one snapshot test.

mod bucketed;
mod check;
mod composed;
mod dealt;
mod devices;
mod dispatch;
mod fifo;
mod per_drafter;
mod preset;
mod standstill;

use crate::id::Bytes;
use crate::plan::{Fill, Tail};
use crate::time::Span;
use serde::{Deserialize, Serialize};

pub use check::{Finding, PolicyError, RunFacts, Severity, check};
pub use devices::DeviceMap;
pub use dispatch::Dispatch;
pub use preset::{Cap, Overrides, PRESETS, UnknownPreset, preset};

/// How idle targets get their next microbatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Input {
    /// Microbatch i belongs to target i mod N.
    FixedRoundRobin,
    /// Whichever target is free takes the next one.
    Shared,
}

/// How hidden states wait between a target and a drafter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// One queue, first in, first out.
    Fifo,
    /// One queue a drafter; microbatch i goes to drafter i mod M.
    PerDrafter,
    /// One queue a bucket.
    Bucketed,
    /// By planned optimizer step.
    Composed,
    /// A pool from which whole accumulation windows are dealt to the drafters' inboxes.
    Dealt,
}

/// Which of several waiting buckets a drafter takes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Take {
    /// The next non-empty bucket after the last one taken; one pointer for all drafters.
    RoundRobin,
    /// The bucket whose head has waited longest.
    Oldest,
    /// The bucket with most waiting, lowest first among equals.
    Longest,
    /// A seeded choice among non-empty buckets.
    Random,
    /// The bucket of the shortest sequences: non-preemptive priority, under which long ones wait while short ones come.
    Shortest,
}

/// When a target asks for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// After the forward; the target holds the hidden states meanwhile.
    Block,
    /// Before the forward.
    Reserve,
}

/// When a slot is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// When a drafter takes the hidden states.
    Taken,
    /// When they have arrived in the drafter's own memory.
    Fetched,
    /// When the drafter has trained on them.
    Trained,
}

/// Where hidden states wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// In the memory of the target's GPU that made them.
    Target,
    /// In host memory.
    Host,
    /// In the memory of the GPU of the drafter that will train on them; needs a queue that knows it.
    Drafter,
}

/// How hidden states travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Through ordinary host memory.
    HostPageable,
    /// Through page-locked host memory.
    HostPinned,
    /// From device to device.
    P2p,
    /// Not at all: target and drafter share a device.
    Local,
}

/// Who trains on a step's microbatches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assignment {
    /// Each drafter its own share, summed in plan order: weights are bit-reproducible whatever the timing.
    Fixed,
    /// Whoever is free.
    Shared,
}

/// Where the mixing rule acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enforce {
    /// While steps are planned, before anything is dispatched.
    Plan,
    /// When a drafter takes hidden states: it refuses those that would break the rule. This can deadlock.
    Take,
    /// Nowhere; breaches are counted.
    Record,
}

/// What an optimizer step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Barrier {
    /// All drafters: one weight update for all.
    All,
    /// Nobody: each drafter updates its own weights after its own window.
    None,
}

/// One concrete, complete dispatch policy.
///
/// Depths are HS slots and bytes counted from the grant of a slot (before the forward under [`Admission::Reserve`], after it under
/// [`Admission::Block`]) to its [`Release`]. A missing cap does not bind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The name it is shown under: a preset's, or the user's own.
    pub name: String,
    /// Target workers.
    pub targets: u16,
    /// Drafter workers.
    pub drafters: u16,
    /// How targets are fed.
    pub input: Input,
    /// How hidden states wait.
    pub queue: Queue,
    /// Choice among buckets.
    pub take: Take,
    /// When slots are asked for.
    pub admission: Admission,
    /// When slots are given back.
    pub release: Release,
    /// Cap on all slots. (slots)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth_total: Option<u32>,
    /// Cap on the slots of each bucket. (slots)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth_per_bucket: Option<u32>,
    /// Cap on the slots of each drafter; under one shared queue, that many times the drafters in all. (slots)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth_per_drafter: Option<u32>,
    /// Cap on the bytes in all slots. (bytes)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<Bytes>,
    /// Cap on the bytes in each bucket's slots. (bytes)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_bucket: Option<Bytes>,
    /// Cap on the bytes in each drafter's slots. (bytes)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_drafter: Option<Bytes>,
    /// Where hidden states wait.
    pub placement: Placement,
    /// How they travel.
    pub transport: Transport,
    /// Whether copies run beside compute; if not, they stop the worker at their end of the link.
    pub overlap: bool,
    /// Copies out of a target's memory that may be under way when it begins a forward, where copies run beside compute.
    #[serde(default = "one_copy")]
    pub copies_beside: u8,
    /// Microbatches a drafter may hold ready beside the one it trains on.
    pub prefetch: u8,
    /// Who trains on what.
    pub assignment: Assignment,
    /// What an optimizer step waits for.
    pub barrier: Barrier,
    /// What happens to work that fills no whole step.
    pub tail: Tail,
    /// Which buckets meet in a composed step.
    #[serde(default)]
    pub fill: Fill,
    /// Fewest distinct buckets in an optimizer step.
    pub mix_step_min: u8,
    /// Fewest distinct buckets in one drafter's accumulation window.
    pub mix_window_min: u8,
    /// Where these two act.
    pub mix_enforce: Enforce,
    /// Samples in flight at which targets pause. (samples)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate_high: Option<u32>,
    /// Samples in flight at which paused targets resume. (samples)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate_low: Option<u32>,
    /// Optimizer steps after which a trained sample leaves the count of samples in flight: 0 counts it out with its own step,
    /// 1 with the next, as when a loader returns its lease on asking for more. (steps)
    pub gate_lag: u8,
    /// Interval at which a pool is looked at; zero looks at every change. (ns)
    #[serde(rename = "poll_ns")]
    pub poll: Span,
    /// Times a failed microbatch is tried again before it is given up and listed.
    pub retry_max: u8,
}

const fn one_copy() -> u8 {
    1
}

impl Policy {
    /// The most slots that the caps on their number allow, if they limit it at all. (slots)
    pub fn slots_max(&self) -> Option<u32> {
        let of_drafters = self
            .depth_per_drafter
            .map(|d| d.saturating_mul(self.drafters.into()));
        self.depth_total.into_iter().chain(of_drafters).min()
    }

    /// The same without any cap on slots, and without a name.
    #[must_use]
    pub fn without_caps(&self) -> Self {
        Self {
            name: String::new(),
            depth_total: None,
            depth_per_bucket: None,
            depth_per_drafter: None,
            bytes_total: None,
            bytes_per_bucket: None,
            bytes_per_drafter: None,
            ..self.clone()
        }
    }

    /// Whether it is known before anybody takes hidden states which drafter will.
    pub fn knows_drafter(&self) -> bool {
        match self.queue {
            Queue::PerDrafter => true,
            Queue::Composed => self.assignment == Assignment::Fixed,
            Queue::Fifo | Queue::Bucketed | Queue::Dealt => false,
        }
    }
}
