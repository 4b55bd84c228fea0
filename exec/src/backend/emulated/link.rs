//! A link that concurrent transfers share fairly: with n of them under way, each moves at 1/n of its speed alone.
//!
//! This is processor sharing. Between two arrivals or departures all transfers progress equally, so it is enough to bring what
//! remains of each up to date whenever one of them looks.

use crate::backend::Ordered;
use shared::time::{Span, Time};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// One link.
#[derive(Debug, Default)]
pub(super) struct Link {
    state: Mutex<Sharing>,
    left: Condvar,
}

impl Link {
    /// Returns when a transfer that takes `alone` by itself, begun at the instant of its order, is over.
    pub(super) fn transfer(&self, alone: Span, ordered: Ordered) {
        let mut state = self.lock();
        let number = state.enter(ordered.at, alone);
        loop {
            let now = ordered.clock.now();
            state.advance(now);
            let Some(remaining) = state.remaining(number) else {
                self.left.notify_all();
                return;
            };
            // Earlier than this it cannot end; if others come it ends later, if others leave they say so.
            let end = now + Span::from_ns(remaining.as_ns().saturating_mul(state.active() as u64));
            let bulk = ordered.clock.until(end);
            if bulk > CLOSE {
                let woken = self.left.wait_timeout(state, bulk - CLOSE);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
            } else {
                drop(state);
                ordered.clock.wait_until(end);
                state = self.lock();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sharing> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last stretch of a transfer is waited for precisely, without the lock.
const CLOSE: std::time::Duration = std::time::Duration::from_micros(200);

/// The transfers under way and what remains of each, alone on the link.
#[derive(Debug, Default)]
struct Sharing {
    updated: Time,
    transfers: Vec<(u64, Span)>,
    entered: u64,
}

impl Sharing {
    fn enter(&mut self, at: Time, alone: Span) -> u64 {
        self.advance(at);
        self.entered += 1;
        self.transfers.push((self.entered, alone));
        self.entered
    }

    fn active(&self) -> usize {
        self.transfers.len()
    }

    /// `None` when the transfer is over.
    fn remaining(&self, number: u64) -> Option<Span> {
        let found = self.transfers.iter().find(|(n, _)| *n == number);
        found.map(|(_, remaining)| *remaining)
    }

    /// Brings all transfers up to date; one that ends on the way leaves its share to the others from that instant on.
    fn advance(&mut self, to: Time) {
        while self.updated < to {
            let Some(least) = self.transfers.iter().map(|(_, r)| *r).min() else {
                self.updated = to;
                return;
            };
            let active = self.transfers.len() as u64;
            let share = (to - self.updated).as_ns() / active;
            if share == 0 {
                return;
            }
            let step = Span::from_ns(share).min(least);
            self.updated = self.updated + Span::from_ns(step.as_ns() * active);
            for (_, remaining) in &mut self.transfers {
                *remaining = Span::from_ns(remaining.as_ns() - step.as_ns());
            }
            self.transfers
                .retain(|(_, remaining)| *remaining > Span::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    #[test]
    fn transfers_share_the_link_and_get_it_back() {
        let mut link = Sharing::default();
        let long = link.enter(at(0), Span::from_ns(100));
        let short = link.enter(at(40), Span::from_ns(20));
        link.advance(at(60));
        assert_eq!(link.remaining(long), Some(Span::from_ns(50)));
        assert_eq!(link.remaining(short), Some(Span::from_ns(10)));
        link.advance(at(90));
        assert_eq!(link.remaining(short), None);
        assert_eq!(link.remaining(long), Some(Span::from_ns(30)));
        link.advance(at(119));
        assert_eq!(link.remaining(long), Some(Span::from_ns(1)));
        link.advance(at(120));
        assert_eq!(link.remaining(long), None);
    }

    #[test]
    fn an_order_from_before_the_last_look_begins_at_the_last_look() {
        let mut link = Sharing::default();
        link.advance(at(50));
        let late = link.enter(at(40), Span::from_ns(10));
        link.advance(at(55));
        assert_eq!(link.remaining(late), Some(Span::from_ns(5)));
    }

    #[test]
    fn a_transfer_of_no_length_is_over_at_the_next_look() {
        let mut link = Sharing::default();
        let none = link.enter(at(0), Span::ZERO);
        link.advance(at(1));
        assert_eq!(link.remaining(none), None);
    }
}
