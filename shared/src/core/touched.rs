//! What the event under way has touched, so that settling looks at nothing else.
//!
//! Whoever changes a worker gets at it through [`Core::target_mut`] or [`Core::drafter_mut`] and so cannot forget to say it; whoever
//! changes what all of one kind depend on touches all of them. A stage of settling runs when something it reads has changed: it is due.

use super::{Core, DrafterState, TargetState};
use crate::id::{DrafterId, TargetId};

/// A stage of settling. They run in this order, round and round.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// Slots are granted to hidden states that targets hold.
    Admit,
    /// Idle targets begin their next microbatch.
    Feed,
    /// A pool is dealt to the drafters.
    Deal,
    /// Drafters with room take hidden states.
    Take,
    /// Idle drafters train.
    Train,
    /// Optimizer steps are applied.
    Apply,
}

impl Stage {
    pub(super) const ALL: [Self; 6] = [
        Self::Admit,
        Self::Feed,
        Self::Deal,
        Self::Take,
        Self::Train,
        Self::Apply,
    ];

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Workers touched since the event began, and the stages due.
#[derive(Clone, Debug)]
pub(super) struct Touched {
    due: u8,
    pub(super) targets: WorkerSet,
    pub(super) drafters: WorkerSet,
}

impl Touched {
    pub(super) fn new(targets: usize, drafters: usize) -> Self {
        Self {
            due: 0,
            targets: WorkerSet::new(targets),
            drafters: WorkerSet::new(drafters),
        }
    }

    /// A new event begins.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.due = 0;
        self.targets.clear();
        self.drafters.clear();
    }

    /// Makes stages due.
    #[inline]
    pub(super) fn due(&mut self, stages: &[Stage]) {
        self.due |= stages.iter().fold(0, |bits, stage| bits | stage.bit());
    }

    /// Whether any stage is due.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.due != 0
    }

    /// Whether a stage is due.
    #[inline]
    pub(super) fn awaits(&self, stage: Stage) -> bool {
        self.due & stage.bit() != 0
    }

    /// A stage is run now, and due no more until something it reads changes.
    #[inline]
    pub(super) fn run(&mut self, stage: Stage) {
        self.due &= !stage.bit();
    }

    /// Anything may have become possible for anybody.
    #[cold]
    pub(super) fn everything(&mut self) {
        self.due(&Stage::ALL);
        self.targets.fill();
        self.drafters.fill();
    }

    /// What all drafters depend on has changed: the step, or the work that is left.
    #[inline(never)]
    pub(super) fn all_drafters(&mut self) {
        self.due(&[Stage::Deal, Stage::Take, Stage::Train, Stage::Apply]);
        self.drafters.fill();
    }
}

impl Core {
    /// A target that changes.
    #[inline]
    pub(super) fn target_mut(&mut self, target: TargetId) -> &mut TargetState {
        self.touched.targets.insert(target.index());
        &mut self.state.targets[target.index()]
    }

    /// A drafter that changes.
    #[inline]
    pub(super) fn drafter_mut(&mut self, drafter: DrafterId) -> &mut DrafterState {
        self.touched.drafters.insert(drafter.index());
        &mut self.state.drafters[drafter.index()]
    }

    /// Looks at every drafter touched, lowest first, which may touch others: of each word of the set those that were in it when it was
    /// reached.
    #[inline]
    pub(super) fn each_touched_drafter(&mut self, mut look: impl FnMut(&mut Self, DrafterId)) {
        self.each_of(self.touched.drafters.first, 0, &mut look);
        for i in 0..self.touched.drafters.more.len() {
            self.each_of(self.touched.drafters.more[i], i as u16 + 1, &mut look);
        }
    }

    /// Looks at the drafters of the `i`-th word of a set.
    #[inline]
    fn each_of(&mut self, mut word: u64, i: u16, look: &mut impl FnMut(&mut Self, DrafterId)) {
        while word != 0 {
            look(self, DrafterId(i << 6 | word.trailing_zeros() as u16));
            word &= word - 1;
        }
    }

    /// Targets whose activity the last event may have changed; all others do what they did.
    pub fn touched_targets(&self) -> impl Iterator<Item = TargetId> {
        self.touched.targets.iter().map(TargetId)
    }

    /// Drafters whose activity the last event may have changed; all others do what they did.
    pub fn touched_drafters(&self) -> impl Iterator<Item = DrafterId> {
        self.touched.drafters.iter().map(DrafterId)
    }
}

/// A set of workers of one kind: a bit each. The workers of one box have their word at hand.
#[derive(Clone, Debug)]
pub(super) struct WorkerSet {
    first: u64,
    more: Vec<u64>,
    workers: usize,
}

impl WorkerSet {
    fn new(workers: usize) -> Self {
        Self {
            first: 0,
            more: vec![0; workers.div_ceil(64).saturating_sub(1)],
            workers,
        }
    }

    #[inline]
    fn clear(&mut self) {
        self.first = 0;
        if !self.more.is_empty() {
            self.more.fill(0);
        }
    }

    /// All are members.
    #[inline(never)]
    pub(super) fn fill(&mut self) {
        self.first = u64::MAX;
        self.more.fill(u64::MAX);
        let rest = self.workers % 64;
        if rest > 0 {
            let last = self.more.last_mut().unwrap_or(&mut self.first);
            *last = (1 << rest) - 1;
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, worker: usize) {
        match worker.checked_sub(64) {
            None => self.first |= 1 << worker,
            Some(rest) => self.more[rest / 64] |= 1 << (rest % 64),
        }
    }

    #[inline]
    pub(super) fn contains(&self, worker: usize) -> bool {
        match worker.checked_sub(64) {
            None => self.first & 1 << worker != 0,
            Some(rest) => self.more[rest / 64] & 1 << (rest % 64) != 0,
        }
    }

    /// Its members, lowest first.
    #[inline]
    fn iter(&self) -> Members<'_> {
        Members {
            word: self.first,
            i: 0,
            more: self.more.iter(),
        }
    }
}

/// Goes through words of a set, lowest member first.
struct Members<'a> {
    /// What is left of the `i`-th word.
    word: u64,
    i: u16,
    more: std::slice::Iter<'a, u64>,
}

impl Iterator for Members<'_> {
    type Item = u16;

    #[inline]
    fn next(&mut self) -> Option<u16> {
        while self.word == 0 {
            self.word = *self.more.next()?;
            self.i += 1;
        }
        let bit = self.word.trailing_zeros() as u16;
        self.word &= self.word - 1;
        Some(self.i << 6 | bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_every_word_come_lowest_first() {
        let mut set = WorkerSet::new(130);
        for worker in [129, 0, 64, 63] {
            set.insert(worker);
        }
        assert!(set.iter().eq([0, 63, 64, 129]));
        assert!(set.contains(64) && !set.contains(65));
        set.fill();
        assert!(set.iter().eq(0..130));
        set.clear();
        assert_eq!(set.iter().next(), None);
    }

    #[test]
    fn a_whole_word_of_workers_is_filled() {
        let mut set = WorkerSet::new(64);
        set.fill();
        assert_eq!(set.iter().count(), 64);
    }
}
