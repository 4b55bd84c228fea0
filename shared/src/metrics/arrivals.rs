//! When hidden states began to wait: room for those that wait, not for the whole run.

use crate::id::MicrobatchId;
use crate::time::Time;

/// Times by microbatch, in a row that its number's last bits name. A row may be taken over from a microbatch that waits no more; where
/// two that wait share a row, there will be twice as many rows.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    rows: Vec<(MicrobatchId, Time)>,
}

const ROWS: usize = 64;

/// Nobody's row: no plan has so many microbatches.
const FREE: (MicrobatchId, Time) = (MicrobatchId(u32::MAX), Time::ZERO);

impl Arrivals {
    pub(super) fn new() -> Self {
        Self {
            rows: vec![FREE; ROWS],
        }
    }

    /// A microbatch begins to wait, perhaps again; `waits` says who else may still be taken without arriving anew.
    #[inline]
    pub(super) fn note(
        &mut self,
        id: MicrobatchId,
        at: Time,
        waits: impl Fn(MicrobatchId) -> bool,
    ) {
        loop {
            let row = self.row(id);
            let other = self.rows[row].0;
            if other == id || other == FREE.0 || !waits(other) {
                self.rows[row] = (id, at);
                return;
            }
            self.double();
        }
    }

    /// When a microbatch that is taken now last began to wait.
    #[inline]
    pub(super) fn since(&self, id: MicrobatchId) -> Time {
        let (found, at) = self.rows[self.row(id)];
        assert_eq!(found, id, "what is taken has arrived");
        at
    }

    fn row(&self, id: MicrobatchId) -> usize {
        // A power of two, so its bits below are all ones.
        id.index() & (self.rows.len() - 1)
    }

    #[cold]
    fn double(&mut self) {
        let rows = vec![FREE; self.rows.len() * 2];
        let taken = std::mem::replace(&mut self.rows, rows);
        for noted in taken.into_iter().filter(|&noted| noted != FREE) {
            let row = self.row(noted.0);
            self.rows[row] = noted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_over_from_the_dead_and_doubled_for_those_who_wait() {
        let at = Time::from_ns;
        let mut arrivals = Arrivals::new();
        let [first, same_row, later] = [5, 5 + 64, 5 + 128].map(MicrobatchId);
        arrivals.note(first, at(10), |_| false);
        arrivals.note(same_row, at(20), |id| id == first);
        assert_eq!(arrivals.rows.len(), 128, "both wait");
        assert_eq!(arrivals.since(first), at(10));
        assert_eq!(arrivals.since(same_row), at(20));
        arrivals.note(later, at(30), |id| id == same_row);
        assert_eq!(arrivals.rows.len(), 128, "the first waits no more");
        assert_eq!(arrivals.since(later), at(30));
        arrivals.note(later, at(40), |_| true);
        assert_eq!(arrivals.since(later), at(40), "its last arrival counts");
        let last = MicrobatchId(127);
        arrivals.note(last, at(50), |_| true);
        arrivals.note(MicrobatchId(127 + 128), at(60), |_| true);
        assert_eq!(
            arrivals.since(last),
            at(50),
            "kept where free rows would go"
        );
    }
}
