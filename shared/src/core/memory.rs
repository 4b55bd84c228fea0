//! Hidden states: which slots they occupy and in whose memory they lie. Every byte is added once and taken away once.

use super::Core;
use super::caps::{Caps, Most};
use super::state::{HsUse, Life, Slot, Use};
use super::touched::Stage;
use crate::id::{Bytes, DrafterId, TargetId};

/// What is in use with one more slot, as each kind of cap counts it.
#[derive(Clone, Copy)]
pub(super) struct With {
    total: Use,
    bucket: Use,
    drafter: Option<(DrafterId, Use)>,
}

impl HsUse {
    pub(super) fn new(buckets: usize, targets: usize, drafters: usize) -> Self {
        Self {
            slots: Use::default(),
            alive: Use::default(),
            by_bucket: vec![Use::default(); buckets],
            by_drafter: vec![Use::default(); drafters],
            at_target: vec![Bytes(0); targets],
            at_host: Bytes(0),
            at_drafter: vec![Bytes(0); drafters],
        }
    }

    /// What would be in use with these hidden states in a slot, which counts against the depth of `consignee` too where there is one;
    /// `None` where that is over a cap.
    #[inline(always)]
    pub(super) fn with(
        &self,
        life: &Life,
        consignee: Option<DrafterId>,
        caps: &Caps,
    ) -> Option<With> {
        let bucket = self.by_bucket[life.bucket.index()];
        let drafter = consignee.map(|d| (d, self.by_drafter[d.index()].with(life.bytes)));
        let with = With {
            total: self.slots.with(life.bytes),
            bucket: bucket.with(life.bytes),
            drafter,
        };
        let fits = with.total.is_under(caps.total)
            && with.bucket.is_under(caps.bucket)
            && drafter.is_none_or(|(_, used)| used.is_under(caps.drafter));
        fits.then_some(with)
    }

    /// A slot is granted.
    #[inline(always)]
    pub(super) fn grant(&mut self, life: &mut Life, with: With, most: &mut Most) {
        assert!(!life.has_slot(), "hidden states occupy one slot");
        self.slots = with.total;
        most.total.raise(with.total);
        self.by_bucket[life.bucket.index()] = with.bucket;
        most.bucket.raise(with.bucket);
        life.slot = match with.drafter {
            None => Slot::Shared,
            Some((drafter, used)) => {
                self.by_drafter[drafter.index()] = used;
                most.drafter.raise(used);
                Slot::Of(drafter)
            }
        };
    }

    /// A slot is given back; whether there was one.
    #[inline(always)]
    pub(super) fn release(&mut self, life: &mut Life) -> bool {
        match std::mem::replace(&mut life.slot, Slot::None) {
            Slot::None => return false,
            Slot::Shared => {}
            Slot::Of(drafter) => self.by_drafter[drafter.index()].sub(life.bytes),
        }
        self.slots.sub(life.bytes);
        self.by_bucket[life.bucket.index()].sub(life.bytes);
        true
    }

    /// A slot no longer counts against its drafter, who is lost; it still counts in all.
    pub(super) fn charge_to_nobody(&mut self, life: &mut Life) {
        if let Slot::Of(drafter) = life.slot {
            life.slot = Slot::Shared;
            self.by_drafter[drafter.index()].sub(life.bytes);
        }
    }

    /// A forward begins to write hidden states into its target's memory.
    #[inline]
    pub(super) fn create(&mut self, life: &mut Life, target: TargetId) {
        self.alive.add(life.bytes);
        self.at_target[target.index()] += life.bytes;
        life.at_target = Some(target);
    }

    #[inline]
    pub(super) fn put_on_host(&mut self, life: &mut Life) {
        self.at_host += life.bytes;
        life.at_host = true;
    }

    #[inline]
    pub(super) fn put_on_drafter(&mut self, life: &mut Life, drafter: DrafterId) {
        if life.at_drafter.is_none() {
            life.at_drafter = Some(drafter);
            self.at_drafter[drafter.index()] += life.bytes;
        }
    }

    #[inline]
    pub(super) fn leave_target(&mut self, life: &mut Life) {
        if let Some(target) = life.at_target.take() {
            self.at_target[target.index()] -= life.bytes;
        }
    }

    #[inline]
    pub(super) fn leave_host(&mut self, life: &mut Life) {
        if std::mem::take(&mut life.at_host) {
            self.at_host -= life.bytes;
        }
    }

    #[inline]
    fn leave_drafter(&mut self, life: &mut Life) {
        if let Some(drafter) = life.at_drafter.take() {
            self.at_drafter[drafter.index()] -= life.bytes;
        }
    }

    /// Hidden states are gone from everywhere.
    #[inline(always)]
    pub(super) fn destroy(&mut self, life: &mut Life) {
        if life.status.is_alive() {
            self.alive.sub(life.bytes);
        }
        self.leave_target(life);
        self.leave_host(life);
        self.leave_drafter(life);
    }
}

impl Core {
    /// Who waits for a slot may have one now: who holds hidden states, and who is idle.
    #[inline]
    pub(super) fn slots_have_changed(&mut self) {
        if !self.state.holding.is_empty() {
            self.touched.due(&[Stage::Admit]);
        }
        if !self.state.idle_targets.is_empty() {
            self.touched.due(&[Stage::Feed]);
        }
    }
}
