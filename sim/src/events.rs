//! The event list: at most one pending event a slot, the earliest found by a winner tree.
//!
//! Every worker, link and timer of a run owns one slot, so the list is fixed. A tree of minima over the slots' times costs one walk from a
//! leaf to the root for each change and one back for each look, whatever the order of events: on 20 slots it is level with looking
//! through all, on 4,096 it is 12 steps. Equal times leave by slot, lowest first: that rule is part of the result.

use shared::time::Time;

/// Pending times by slot.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    /// A heap-shaped tree: node i is the lesser of nodes 2i and 2i + 1, the root is node 1, the slots are the leaves.
    /// `NEVER` for a slot without an event.
    nodes: Vec<u64>,
    leaves: usize,
    /// The slot that left last and is still in the tree: most often it is set again before the next leaves, which saves a walk.
    popped: Option<usize>,
}

const NEVER: u64 = u64::MAX;

impl Events {
    pub(crate) fn new(slots: usize) -> Self {
        let leaves = slots.next_power_of_two();
        Self {
            nodes: vec![NEVER; 2 * leaves],
            leaves,
            popped: None,
        }
    }

    /// Sets the time of a slot's event, or `None` for no event.
    pub(crate) fn set(&mut self, slot: usize, at: Option<Time>) {
        if self.popped == Some(slot) {
            self.popped = None;
        }
        self.put(slot, at.map_or(NEVER, Time::as_ns));
    }

    fn put(&mut self, slot: usize, at: u64) {
        let (mut node, mut least) = (self.leaves + slot, at);
        self.nodes[node] = least;
        while node > 1 {
            least = least.min(self.nodes[node ^ 1]);
            node /= 2;
            if self.nodes[node] == least {
                return;
            }
            self.nodes[node] = least;
        }
    }

    /// Takes out the earliest event: its time and slot.
    pub(crate) fn pop(&mut self) -> Option<(Time, usize)> {
        if let Some(slot) = self.popped.take() {
            self.put(slot, NEVER);
        }
        let first = self.nodes[1];
        if first == NEVER {
            return None;
        }
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            node += usize::from(self.nodes[node] != first);
        }
        let slot = node - self.leaves;
        self.popped = Some(slot);
        Some((Time::from_ns(first), slot))
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
        let mut events = Events::new(37);
        let mut expected = Vec::new();
        for slot in 0..37_usize {
            let at = (slot * 7919) % 31;
            events.set(slot, Some(Time::from_ns(at as u64)));
            expected.push((at as u64, slot));
        }
        expected.sort_unstable();
        for (at, slot) in expected {
            assert_eq!(events.pop(), Some((Time::from_ns(at), slot)));
        }
    }
}
