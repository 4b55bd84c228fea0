//! The event list: at most one pending event a slot, the earliest found by a winner tree.
//!
//! Every worker, link and timer of a run owns one slot, so the list is small and fixed. A winner (tournament) tree over the slots needs one
//! walk from leaf to root per change and no comparison of payloads. Equal times leave by slot, lowest first: that rule is part of the
//! result.

use shared::time::Time;

/// Pending times by slot.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    /// Times of the leaves; `NEVER` for a slot without an event. Padded to a power of two.
    times: Vec<u64>,
    /// Winner of each inner node, root at 1.
    winners: Vec<u32>,
    leaves: usize,
}

const NEVER: u64 = u64::MAX;

impl Events {
    pub(crate) fn new(slots: usize) -> Self {
        let leaves = slots.next_power_of_two().max(2);
        let mut events = Self {
            times: vec![NEVER; leaves],
            winners: vec![0; leaves],
            leaves,
        };
        for node in (1..leaves).rev() {
            events.winners[node] = events.winner_below(node);
        }
        events
    }

    /// Sets the time of a slot's event, or `None` for no event.
    pub(crate) fn set(&mut self, slot: usize, at: Option<Time>) {
        self.times[slot] = at.map_or(NEVER, Time::as_ns);
        let mut node = (self.leaves + slot) / 2;
        while node >= 1 {
            self.winners[node] = self.winner_below(node);
            node /= 2;
        }
    }

    /// The earliest event's time and slot.
    pub(crate) fn first(&self) -> Option<(Time, usize)> {
        let slot = self.winners[1] as usize;
        let at = self.times[slot];
        (at != NEVER).then(|| (Time::from_ns(at), slot))
    }

    fn winner_below(&self, node: usize) -> u32 {
        let child = |child: usize| {
            if child >= self.leaves {
                (child - self.leaves) as u32
            } else {
                self.winners[child]
            }
        };
        let (left, right) = (child(2 * node), child(2 * node + 1));
        if self.times[right as usize] < self.times[left as usize] {
            right
        } else {
            left
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_leaves_first_and_ties_go_to_the_lower_slot() {
        let mut events = Events::new(5);
        assert_eq!(events.first(), None);
        for (slot, at) in [(4, 7), (1, 9), (3, 7), (0, 8)] {
            events.set(slot, Some(Time::from_ns(at)));
        }
        let mut order = Vec::new();
        while let Some((at, slot)) = events.first() {
            order.push((at.as_ns(), slot));
            events.set(slot, None);
        }
        assert_eq!(order, [(7, 3), (7, 4), (8, 0), (9, 1)]);
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
            assert_eq!(events.first(), Some((Time::from_ns(at), slot)));
            events.set(slot, None);
        }
    }
}
