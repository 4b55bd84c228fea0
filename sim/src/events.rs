//! The event list: at most one pending event a slot, the earliest found by a winner tree.
//!
//! Every worker, link and timer of a run owns one slot, so the list is fixed. Slots stand in groups, and a group's least is an entry of
//! the group above. Groups are wide, since looking through a few neighbours costs less than a step to another level: one box is one
//! group and costs a store for each change and a look through all for the earliest; 4,096 slots are three levels. Equal times leave by
//! slot, lowest first: that rule is part of the result.

use shared::time::Time;

/// Pending times by slot.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    /// The tree, root first: the groups under group g are those from `g * WIDTH + 1` on.
    groups: Vec<Group>,
    /// The first group of slots.
    leaves: usize,
    /// The slot that left last and is still in the tree: most often it is set again before the next leaves, which saves a walk.
    popped: usize,
}

/// Entries of a group: the workers of a box of eight GPUs, a link for each, and three timers are one.
const WIDTH: usize = 20;
/// Bits for a place in a group.
const PLACE_BITS: u32 = 5;
/// The time of a slot without an event. (ns)
const NEVER: u64 = u64::MAX >> PLACE_BITS;
const NOBODY: usize = usize::MAX;

/// Times, each with its place in the low bits: the least of them is the earliest, the first of equals, and says where it stands.
#[derive(Clone, Debug)]
struct Group([u64; WIDTH]);

impl Group {
    fn new() -> Self {
        Self(std::array::from_fn(|place| entry(NEVER, place)))
    }

    #[inline]
    fn least(&self) -> u64 {
        // Four chains of comparisons instead of one that waits for itself.
        let mut least = [u64::MAX; 4];
        for four in self.0.chunks_exact(4) {
            for (least, &entry) in least.iter_mut().zip(four) {
                *least = entry.min(*least);
            }
        }
        least[0].min(least[1]).min(least[2].min(least[3]))
    }
}

#[inline]
fn entry(at: u64, place: usize) -> u64 {
    at << PLACE_BITS | place as u64
}

#[inline]
fn place(entry: u64) -> usize {
    entry as usize & ((1 << PLACE_BITS) - 1)
}

impl Events {
    pub(crate) fn new(slots: usize) -> Self {
        let (mut leaves, mut groups) = (0, 1);
        while groups * WIDTH < slots {
            leaves += groups;
            groups *= WIDTH;
        }
        Self {
            groups: vec![Group::new(); leaves + slots.div_ceil(WIDTH)],
            leaves,
            popped: NOBODY,
        }
    }

    /// Sets the time of a slot's event, or `None` for no event.
    ///
    /// # Panics
    /// When the time is beyond 18 years.
    #[inline]
    pub(crate) fn set(&mut self, slot: usize, at: Option<Time>) {
        if self.popped == slot {
            self.popped = NOBODY;
        }
        let at = at.map_or(NEVER, Time::as_ns);
        assert!(at <= NEVER, "a run ends within 18 years");
        self.put(slot, at);
    }

    #[inline]
    fn put(&mut self, slot: usize, at: u64) {
        let mut group = self.leaves + slot / WIDTH;
        self.groups[group].0[slot % WIDTH] = entry(at, slot % WIDTH);
        while group > 0 {
            let least = self.groups[group].least() >> PLACE_BITS;
            let place = (group - 1) % WIDTH;
            group = (group - 1) / WIDTH;
            self.groups[group].0[place] = entry(least, place);
        }
    }

    /// Takes out the earliest event: its time and slot.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Time, usize)> {
        if self.popped != NOBODY {
            self.put(self.popped, NEVER);
            self.popped = NOBODY;
        }
        let mut group = 0;
        let mut first = self.groups[0].least();
        let at = first >> PLACE_BITS;
        if at == NEVER {
            return None;
        }
        while group < self.leaves {
            group = group * WIDTH + place(first) + 1;
            first = self.groups[group].least();
        }
        self.popped = (group - self.leaves) * WIDTH + place(first);
        Some((Time::from_ns(at), self.popped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_leaves_first_and_ties_go_to_the_lower_slot() {
        let mut events = Events::new(5);
        assert_eq!(events.pop(), None);
        for (slot, at) in [(4, 7), (1, 9), (3, 7), (0, 8)] {
            events.set(slot, Some(Time::from_ns(at)));
        }
        let mut order = Vec::new();
        while let Some((at, slot)) = events.pop() {
            order.push((at.as_ns(), slot));
        }
        assert_eq!(order, [(7, 3), (7, 4), (8, 0), (9, 1)]);
    }

    #[test]
    fn who_left_may_come_back_or_be_taken_out() {
        let mut events = Events::new(3);
        let at = |ns| Some(Time::from_ns(ns));
        events.set(2, at(5));
        events.set(1, at(6));
        assert_eq!(events.pop(), Some((Time::from_ns(5), 2)));
        events.set(2, at(5));
        assert_eq!(events.pop(), Some((Time::from_ns(5), 2)));
        events.set(2, None);
        events.set(1, None);
        assert_eq!(events.pop(), None);
    }

    #[test]
    fn it_agrees_with_sorting() {
        let mut events = Events::new(300);
        let mut expected = Vec::new();
        for slot in 0..300_usize {
            let at = (slot * 7919) % 211;
            events.set(slot, Some(Time::from_ns(at as u64)));
            expected.push((at as u64, slot));
        }
        expected.sort_unstable();
        for (at, slot) in expected {
            assert_eq!(events.pop(), Some((Time::from_ns(at), slot)));
        }
    }
}
