//! The event list: at most one pending event a slot, the earliest found by tournaments.
//!
//! Every worker, link and timer of a run owns one slot, so the list is fixed. Slots stand in groups of 32, each a tournament of its own:
//! a change replays the five matches of its slot, and the winner is there to be read. A group's winner is an entry of the group above: one
//! box is one group, 4,096 slots are three levels. Equal times leave by slot, lowest first: that rule is part of the result.

use shared::time::Time;

/// Pending times by slot.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    /// Group 0. One box has no other.
    root: Group,
    /// Groups 1 and up: those under group g are those from `g * WIDTH + 1` on.
    below: Vec<Group>,
    /// The first group of slots.
    leaves: usize,
    /// The slot that left last and is still in its tournament: most often it is set again before the next leaves, which saves one.
    popped: usize,
}

/// Bits for a place in a group.
const PLACE_BITS: u32 = 5;
/// Entries of a group.
const WIDTH: usize = 1 << PLACE_BITS;
/// The time of a slot without an event. (ns)
const NEVER: u64 = u64::MAX >> PLACE_BITS;
const NOBODY: usize = usize::MAX;

/// A tournament of times. Each has its place in the low bits, so the least is the earliest, the first of equals, and says where it
/// stands. The match of nodes 2n and 2n + 1 is won at node n; entries are the nodes from `WIDTH` on.
#[derive(Clone, Debug)]
struct Group([u64; 2 * WIDTH]);

impl Group {
    fn new() -> Self {
        let mut group = Self([0; 2 * WIDTH]);
        for place in 0..WIDTH {
            group.set(place, NEVER);
        }
        group
    }

    #[inline]
    fn set(&mut self, place: usize, at: u64) {
        let mut node = WIDTH + place % WIDTH;
        let mut winner = at << PLACE_BITS | (place % WIDTH) as u64;
        for _ in 0..PLACE_BITS {
            self.0[node] = winner;
            winner = winner.min(self.0[node ^ 1]);
            node /= 2;
        }
        self.0[1] = winner;
    }

    #[inline]
    fn first(&self) -> u64 {
        self.0[1]
    }
}

#[inline]
fn place(entry: u64) -> usize {
    entry as usize % WIDTH
}

impl Events {
    pub(crate) fn new(slots: usize) -> Self {
        let (mut leaves, mut groups) = (0, 1);
        while groups * WIDTH < slots {
            leaves += groups;
            groups *= WIDTH;
        }
        Self {
            root: Group::new(),
            below: vec![Group::new(); leaves + slots.div_ceil(WIDTH) - 1],
            leaves,
            popped: NOBODY,
        }
    }

    /// Sets the time of a slot's event, or `None` for no event.
    #[inline]
    pub(crate) fn set(&mut self, slot: usize, at: Option<Time>) {
        self.set_at(slot, at.unwrap_or(Time::from_ns(NEVER)));
    }

    /// Sets the time of a slot's event.
    ///
    /// # Panics
    /// When the time is beyond 18 years.
    #[inline(always)]
    pub(crate) fn set_at(&mut self, slot: usize, at: Time) {
        assert!(at.as_ns() <= NEVER, "a run ends within 18 years");
        if self.popped == slot {
            self.popped = NOBODY;
        }
        self.put(slot, at.as_ns());
    }

    #[inline(always)]
    fn put(&mut self, slot: usize, at: u64) {
        let mut group = self.leaves + slot / WIDTH;
        let (mut place, mut at) = (slot, at);
        while group > 0 {
            let below = &mut self.below[group - 1];
            below.set(place, at);
            at = below.first() >> PLACE_BITS;
            place = group - 1;
            group = place / WIDTH;
        }
        self.root.set(place, at);
    }

    /// Takes out the earliest event: its time and slot.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<(Time, usize)> {
        if self.popped != NOBODY {
            self.put(self.popped, NEVER);
            self.popped = NOBODY;
        }
        let mut group = 0;
        let mut first = self.root.first();
        let at = first >> PLACE_BITS;
        if at == NEVER {
            return None;
        }
        while group < self.leaves {
            group = group * WIDTH + place(first) + 1;
            first = self.below[group - 1].first();
        }
        self.popped = (group - self.leaves) << PLACE_BITS | place(first);
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
