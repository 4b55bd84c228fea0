//! The event list: at most one pending event a slot, the earliest found by looking at all.
//!
//! Every worker, link and timer of a run owns one slot, so the list is small and fixed: one box has about twenty, which are looked through
//! faster than any tree over them is kept up to date. Equal times leave by slot, lowest first: that rule is part of the result.

use shared::time::Time;

/// Pending times by slot.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    /// `NEVER` for a slot without an event.
    times: Vec<u64>,
}

const NEVER: u64 = u64::MAX;

impl Events {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            times: vec![NEVER; slots],
        }
    }

    /// Sets the time of a slot's event, or `None` for no event.
    pub(crate) fn set(&mut self, slot: usize, at: Option<Time>) {
        self.times[slot] = at.map_or(NEVER, Time::as_ns);
    }

    /// The earliest event's time and slot.
    pub(crate) fn first(&self) -> Option<(Time, usize)> {
        let (mut first, mut slot) = (NEVER, 0);
        for (i, &at) in self.times.iter().enumerate() {
            if at < first {
                (first, slot) = (at, i);
            }
        }
        (first != NEVER).then(|| (Time::from_ns(first), slot))
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
