//! Hidden states over time: slots, bytes by place, peaks and time averages.

use crate::core::HsUse;
use crate::id::{Bytes, DrafterId, TargetId};
use crate::time::Time;

/// Where hidden states can lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Host memory.
    Host,
    /// A target's memory, by its number.
    Target(usize),
    /// A drafter's memory, by its number.
    Drafter(usize),
}

/// The most that was in use at once, and averages over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peaks {
    /// Slots, from grant to release. (slots)
    pub slots: u32,
    /// Bytes in slots.
    pub slot_bytes: Bytes,
    /// Hidden states in existence, with or without a slot: slots and what workers have in hand.
    pub alive: u32,
    /// Their bytes.
    pub alive_bytes: Bytes,
    /// In host memory.
    pub host: Bytes,
    /// In each target's memory.
    pub targets: Vec<Bytes>,
    /// In each drafter's memory.
    pub drafters: Vec<Bytes>,
    slot_ns: u128,
    alive_byte_ns: u128,
    last: (Time, u32, Bytes),
}

impl Peaks {
    pub(super) fn new(targets: usize, drafters: usize) -> Self {
        Self {
            slots: 0,
            slot_bytes: Bytes(0),
            alive: 0,
            alive_bytes: Bytes(0),
            host: Bytes(0),
            targets: vec![Bytes(0); targets],
            drafters: vec![Bytes(0); drafters],
            slot_ns: 0,
            alive_byte_ns: 0,
            last: (Time::ZERO, 0, Bytes(0)),
        }
    }

    /// Takes in what is in use at `at`.
    pub(super) fn observe(&mut self, at: Time, hs: &HsUse) {
        let (since, slots, bytes) = self.last;
        let span = u128::from((at - since).as_ns());
        self.slot_ns += span * u128::from(slots);
        self.alive_byte_ns += span * u128::from(bytes.0);
        self.last = (at, hs.slots.count, hs.alive.bytes);
        self.slots = self.slots.max(hs.slots.count);
        raise(&mut self.slot_bytes, hs.slots.bytes);
        self.alive = self.alive.max(hs.alive.count);
        raise(&mut self.alive_bytes, hs.alive.bytes);
    }

    /// Hidden states come into being in a target's memory.
    pub(super) fn on_target(&mut self, target: TargetId, hs: &HsUse) {
        raise(
            &mut self.targets[target.index()],
            hs.at_target[target.index()],
        );
    }

    /// Hidden states come to host memory.
    pub(super) fn on_host(&mut self, hs: &HsUse) {
        raise(&mut self.host, hs.at_host);
    }

    /// Hidden states come to a drafter's memory.
    pub(super) fn on_drafter(&mut self, drafter: DrafterId, hs: &HsUse) {
        raise(
            &mut self.drafters[drafter.index()],
            hs.at_drafter[drafter.index()],
        );
    }

    /// The integral of slots over time, which no two runs share by chance. (slots x ns)
    pub fn slot_ns(&self) -> u128 {
        self.slot_ns
    }

    /// The integral over time of the bytes of hidden states in existence. (bytes x ns)
    pub fn alive_byte_ns(&self) -> u128 {
        self.alive_byte_ns
    }

    /// Slots in use, averaged over time. (slots)
    pub fn slots_mean(&self, end: Time) -> f64 {
        mean(self.slot_ns, end)
    }

    /// Bytes of hidden states in existence, averaged over time.
    pub fn alive_bytes_mean(&self, end: Time) -> f64 {
        mean(self.alive_byte_ns, end)
    }
}

fn raise(peak: &mut Bytes, now: Bytes) {
    *peak = (*peak).max(now);
}

fn mean(integral: u128, end: Time) -> f64 {
    if end == Time::ZERO {
        0.0
    } else {
        integral as f64 / end.as_ns() as f64
    }
}
