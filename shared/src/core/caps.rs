//! Caps on hidden states in slots, and how near a run came to them.

use super::Use;
use crate::id::Bytes;
use crate::policy::Policy;

/// The caps in force, resolved once: a missing cap is the largest number.
#[derive(Clone, Debug)]
pub(super) struct Caps {
    /// Slots and bytes that may be in use in all.
    pub(super) total: (u32, Bytes),
    /// The same for one bucket.
    pub(super) bucket: (u32, Bytes),
    /// The same for one drafter.
    pub(super) drafter: (u32, Bytes),
}

impl Caps {
    pub(super) fn of(policy: &Policy) -> Self {
        let slots = |cap: Option<u32>| cap.unwrap_or(u32::MAX);
        let bytes = |cap: Option<Bytes>| cap.unwrap_or(Bytes(u64::MAX));
        let mut total = (slots(policy.depth_total), bytes(policy.bytes_total));
        let drafter = (
            slots(policy.depth_per_drafter),
            bytes(policy.bytes_per_drafter),
        );
        if !policy.knows_drafter() {
            // One shared queue of so many a drafter.
            let drafters = policy.drafters;
            total.0 = total.0.min(drafter.0.saturating_mul(drafters.into()));
            total.1 = total
                .1
                .min(Bytes(drafter.1.0.saturating_mul(drafters.into())));
        }
        let bucket = (
            slots(policy.depth_per_bucket),
            bytes(policy.bytes_per_bucket),
        );
        Self {
            total,
            bucket,
            drafter,
        }
    }
}

/// The most that was in slots at once, as each kind of cap counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// In all.
    pub total: Use,
    /// For one bucket.
    pub bucket: Use,
    /// For one drafter, where the queue knows it.
    pub drafter: Use,
}

impl Most {
    /// Whether a run that came as near to its caps as this goes the same way under both policies, which differ in nothing but caps:
    /// each cap is the same, or neither one ever stood in the way of a microbatch of at most `largest` bytes.
    pub fn goes_alike(&self, a: &Policy, b: &Policy, largest: Bytes) -> bool {
        let (a, b) = (Caps::of(a), Caps::of(b));
        let caps = [
            (a.total, b.total, self.total),
            (a.bucket, b.bucket, self.bucket),
            (a.drafter, b.drafter, self.drafter),
        ];
        caps.into_iter().all(|(a, b, most)| {
            let with_next = most.bytes.0.saturating_add(largest.0);
            (a.0 == b.0 || most.count < a.0.min(b.0))
                && (a.1 == b.1 || with_next <= a.1.0.min(b.1.0))
        })
    }
}

impl Use {
    /// Whether so much may be in use under a cap of slots and bytes.
    #[inline]
    pub(super) fn is_under(self, cap: (u32, Bytes)) -> bool {
        self.count <= cap.0 && self.bytes <= cap.1
    }

    #[inline]
    pub(super) fn raise(&mut self, now: Self) {
        // A new most is rare.
        if now.count > self.count {
            self.count = now.count;
        }
        if now.bytes > self.bytes {
            self.bytes = now.bytes;
        }
    }
}
