//! Hidden states over time: slots, bytes by place, peaks and time averages.

use crate::core::{HsUse, Use};
use crate::id::{Bytes, DrafterId, TargetId};
use crate::time::{Span, Time};

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
    now: Now,
}

/// What is in use, and since when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Now {
    since: Time,
    slots: Use,
    alive: Use,
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
            now: Now::default(),
        }
    }

    /// Takes in what is in use from `at` on.
    #[inline]
    pub(super) fn observe(&mut self, at: Time, hs: &HsUse) {
        if (hs.slots, hs.alive) == (self.now.slots, self.now.alive) {
            return;
        }
        self.end(at);
        (self.now.slots, self.now.alive) = (hs.slots, hs.alive);
        raise(&mut self.slots, hs.slots.count);
        raise(&mut self.slot_bytes, hs.slots.bytes);
        raise(&mut self.alive, hs.alive.count);
        raise(&mut self.alive_bytes, hs.alive.bytes);
    }

    /// What was in use was so until `at`.
    pub(super) fn end(&mut self, at: Time) {
        let Now {
            since,
            slots,
            alive,
        } = self.now;
        self.slot_ns += area(at - since, slots.count.into());
        self.alive_byte_ns += area(at - since, alive.bytes.0);
        self.now.since = at;
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

/// So much for so long. Two words' product fits in two words, so nothing is lost.
fn area(span: Span, height: u64) -> u128 {
    u128::from(span.as_ns()).wrapping_mul(u128::from(height))
}

#[inline]
fn raise<T: Ord>(peak: &mut T, now: T) {
    // New peaks are rare.
    if now > *peak {
        *peak = now;
    }
}

fn mean(integral: u128, end: Time) -> f64 {
    if end == Time::ZERO {
        0.0
    } else {
        integral as f64 / end.as_ns() as f64
    }
}
