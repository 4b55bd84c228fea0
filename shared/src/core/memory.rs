//! Hidden states: which slots they occupy and in whose memory they lie. Every byte is added once and taken away once.

use super::Core;
use super::state::{HsUse, Use};
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
}

impl Core {
    fn bytes(&self, id: MicrobatchId) -> Bytes {
        self.plan.microbatch(id).bytes
    }

    /// A slot is granted.
    pub(super) fn grant(&mut self, id: MicrobatchId) {
        let consignee = self.dispatch.consignee(id, &self.view());
        let bytes = self.bytes(id);
        let bucket = self.plan.microbatch(id).bucket;
        let life = &mut self.state.lives[id.index()];
        assert!(!life.has_slot, "hidden states occupy one slot");
        life.has_slot = true;
        life.slot_of = consignee;
        let hs = &mut self.state.hs;
        hs.slots.add(bytes);
        self.most.total.raise(hs.slots);
        hs.by_bucket[bucket.index()].add(bytes);
        self.most.bucket.raise(hs.by_bucket[bucket.index()]);
        if let Some(drafter) = consignee {
            hs.by_drafter[drafter.index()].add(bytes);
            self.most.drafter.raise(hs.by_drafter[drafter.index()]);
        }
    }

    /// A slot is given back, if there is one.
    pub(super) fn release(&mut self, id: MicrobatchId) {
        let bytes = self.bytes(id);
        let bucket = self.plan.microbatch(id).bucket;
        let life = &mut self.state.lives[id.index()];
        if !life.has_slot {
            return;
        }
        life.has_slot = false;
        self.touched.due(&[Stage::Admit, Stage::Feed]);
        self.state.hs.slots.sub(bytes);
        self.state.hs.by_bucket[bucket.index()].sub(bytes);
        if let Some(drafter) = life.slot_of.take() {
            self.state.hs.by_drafter[drafter.index()].sub(bytes);
        }
    }

    /// A slot no longer counts against its drafter, who is lost; it still counts in all.
    pub(super) fn charge_to_nobody(&mut self, id: MicrobatchId) {
        let bytes = self.bytes(id);
        if let Some(drafter) = self.state.lives[id.index()].slot_of.take() {
            self.state.hs.by_drafter[drafter.index()].sub(bytes);
        }
    }

    /// A forward begins to write hidden states into its target's memory.
    pub(super) fn create(&mut self, id: MicrobatchId, target: TargetId) {
        let bytes = self.bytes(id);
        self.state.hs.alive.add(bytes);
        self.state.hs.at_target[target.index()] += bytes;
        self.state.lives[id.index()].at_target = Some(target);
    }

    pub(super) fn put_on_host(&mut self, id: MicrobatchId) {
        self.state.hs.at_host += self.bytes(id);
        self.state.lives[id.index()].at_host = true;
    }

    pub(super) fn put_on_drafter(&mut self, id: MicrobatchId, drafter: DrafterId) {
        let bytes = self.bytes(id);
        let life = &mut self.state.lives[id.index()];
        if life.at_drafter.is_none() {
            life.at_drafter = Some(drafter);
            self.state.hs.at_drafter[drafter.index()] += bytes;
        }
    }

    pub(super) fn leave_target(&mut self, id: MicrobatchId) {
        let bytes = self.bytes(id);
        if let Some(target) = self.state.lives[id.index()].at_target.take() {
            self.state.hs.at_target[target.index()] -= bytes;
        }
    }

    pub(super) fn leave_host(&mut self, id: MicrobatchId) {
        let bytes = self.bytes(id);
        let life = &mut self.state.lives[id.index()];
        if std::mem::take(&mut life.at_host) {
            self.state.hs.at_host -= bytes;
        }
    }

    pub(super) fn leave_drafter(&mut self, id: MicrobatchId) {
        let bytes = self.bytes(id);
        if let Some(drafter) = self.state.lives[id.index()].at_drafter.take() {
            self.state.hs.at_drafter[drafter.index()] -= bytes;
        }
    }

    /// Hidden states are gone from everywhere.
    pub(super) fn destroy(&mut self, id: MicrobatchId) {
        let is_alive = self.state.lives[id.index()].status.is_alive();
        self.leave_target(id);
        self.leave_host(id);
        self.leave_drafter(id);
        if is_alive {
            let bytes = self.bytes(id);
            self.state.hs.alive.sub(bytes);
        }
    }
}
