//! Hidden states: which slots they occupy and in whose memory they lie. Every byte is added once and taken away once.

use super::Core;
use super::state::{HsUse, Life, Slot, Use};
use super::touched::Stage;
use crate::id::{Bytes, DrafterId, MicrobatchId, TargetId};

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

    #[inline]
    fn leave_target(&mut self, life: &mut Life) {
        if let Some(target) = life.at_target.take() {
            self.at_target[target.index()] -= life.bytes;
        }
    }

    #[inline]
    fn leave_host(&mut self, life: &mut Life) {
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
}

impl Core {
    /// A microbatch's course, and the hidden states of all.
    #[inline]
    fn life_and_hs(&mut self, id: MicrobatchId) -> (&mut Life, &mut HsUse) {
        (&mut self.state.lives[id.index()], &mut self.state.hs)
    }

    /// A slot is granted.
    #[inline(always)]
    pub(super) fn grant(&mut self, id: MicrobatchId) {
        let consignee = self.consignee(id);
        let life = &mut self.state.lives[id.index()];
        assert!(!life.has_slot(), "hidden states occupy one slot");
        let (hs, most) = (&mut self.state.hs, &mut self.most);
        most.total.raise(hs.slots.add(life.bytes));
        most.bucket
            .raise(hs.by_bucket[life.bucket.index()].add(life.bytes));
        life.slot = match consignee {
            None => Slot::Shared,
            Some(drafter) => {
                most.drafter
                    .raise(hs.by_drafter[drafter.index()].add(life.bytes));
                Slot::Of(drafter)
            }
        };
    }

    /// A slot is given back, if there is one.
    #[inline(always)]
    pub(super) fn release(&mut self, id: MicrobatchId) {
        let (life, hs) = self.life_and_hs(id);
        match std::mem::replace(&mut life.slot, Slot::None) {
            Slot::None => return,
            Slot::Shared => {}
            Slot::Of(drafter) => hs.by_drafter[drafter.index()].sub(life.bytes),
        }
        hs.slots.sub(life.bytes);
        hs.by_bucket[life.bucket.index()].sub(life.bytes);
        self.slots_have_changed();
    }

    /// Who waits for a slot may have one now: who holds hidden states, and who is idle.
    #[inline]
    fn slots_have_changed(&mut self) {
        if !self.state.holding.is_empty() {
            self.touched.due(&[Stage::Admit]);
        }
        if !self.state.idle_targets.is_empty() {
            self.touched.due(&[Stage::Feed]);
        }
    }

    /// A slot no longer counts against its drafter, who is lost; it still counts in all.
    pub(super) fn charge_to_nobody(&mut self, id: MicrobatchId) {
        let (life, hs) = self.life_and_hs(id);
        if let Slot::Of(drafter) = life.slot {
            life.slot = Slot::Shared;
            hs.by_drafter[drafter.index()].sub(life.bytes);
        }
    }

    /// A forward begins to write hidden states into its target's memory.
    #[inline]
    pub(super) fn create(&mut self, id: MicrobatchId, target: TargetId) {
        let (life, hs) = self.life_and_hs(id);
        hs.alive.add(life.bytes);
        hs.at_target[target.index()] += life.bytes;
        life.at_target = Some(target);
    }

    #[inline]
    pub(super) fn put_on_host(&mut self, id: MicrobatchId) {
        let (life, hs) = self.life_and_hs(id);
        hs.at_host += life.bytes;
        life.at_host = true;
    }

    #[inline]
    pub(super) fn put_on_drafter(&mut self, id: MicrobatchId, drafter: DrafterId) {
        let (life, hs) = self.life_and_hs(id);
        if life.at_drafter.is_none() {
            life.at_drafter = Some(drafter);
            hs.at_drafter[drafter.index()] += life.bytes;
        }
    }

    #[inline]
    pub(super) fn leave_target(&mut self, id: MicrobatchId) {
        let (life, hs) = self.life_and_hs(id);
        hs.leave_target(life);
    }

    #[inline]
    pub(super) fn leave_host(&mut self, id: MicrobatchId) {
        let (life, hs) = self.life_and_hs(id);
        hs.leave_host(life);
    }

    /// Hidden states are gone from everywhere.
    #[inline(always)]
    pub(super) fn destroy(&mut self, id: MicrobatchId) {
        let (life, hs) = self.life_and_hs(id);
        if life.status.is_alive() {
            hs.alive.sub(life.bytes);
        }
        hs.leave_target(life);
        hs.leave_host(life);
        hs.leave_drafter(life);
    }
}
