//! Links that concurrent transfers share fairly: with n of them under way on one, each moves at 1/n of its speed alone; and all of one
//! direction are slower while any goes in the other, where both pass through one memory.
//!
//! This is processor sharing. Between two arrivals or departures all transfers progress steadily, so it is enough to bring what
//! remains of each up to date whenever one of them looks.

use crate::backend::{Leg, Ordered};
use shared::time::{Span, Time};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// All links of a run.
#[derive(Debug)]
pub(super) struct Links {
    state: Mutex<Sharing>,
    left: Condvar,
}

/// Where a transfer goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    /// The link that it shares with others of the same number.
    pub(super) link: usize,
    /// Its direction.
    pub(super) leg: Leg,
}

impl Links {
    /// Links that nothing goes on; transfers of one direction have `both_ways_rate` of their speed while any goes in the other.
    pub(super) fn new(both_ways_rate: f64) -> Self {
        Self {
            state: Mutex::new(Sharing {
                both_ways_rate,
                updated: 0.0,
                transfers: Vec::new(),
                entered: 0,
            }),
            left: Condvar::new(),
        }
    }

    /// Returns when a transfer that takes `alone` by itself, begun at the instant of its order, is over.
    pub(super) fn transfer(&self, route: Route, alone: Span, ordered: Ordered) {
        let mut state = self.lock();
        let number = state.enter(ordered.at, route, alone);
        loop {
            let now = ordered.clock.now();
            state.advance(now);
            let Some(remaining) = state.remaining(number) else {
                self.left.notify_all();
                return;
            };
            // If others come it ends later, if others leave they say so.
            let end = now + remaining;
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

/// The transfers under way and what remains of each.
#[derive(Debug)]
struct Sharing {
    both_ways_rate: f64,
    /// Until when what remains was counted. (ns)
    updated: f64,
    transfers: Vec<Transfer>,
    entered: u64,
}

#[derive(Clone, Copy, Debug)]
struct Transfer {
    number: u64,
    route: Route,
    /// What it would still take alone. (ns)
    left: f64,
}

impl Sharing {
    fn enter(&mut self, at: Time, route: Route, alone: Span) -> u64 {
        self.advance(at);
        self.entered += 1;
        self.transfers.push(Transfer {
            number: self.entered,
            route,
            left: alone.as_ns() as f64,
        });
        self.entered
    }

    /// How fast a transfer moves, as a share of its speed alone.
    fn speed(&self, route: Route) -> f64 {
        let others = || self.transfers.iter().map(|t| t.route);
        let on_link = others().filter(|other| other.link == route.link).count();
        let both_ways = others().any(|other| other.leg != route.leg);
        let pace = if both_ways { self.both_ways_rate } else { 1.0 };
        pace / on_link.max(1) as f64
    }

    /// How long a transfer still takes if nothing comes or leaves; `None` when it is over.
    fn remaining(&self, number: u64) -> Option<Span> {
        let mine = self.transfers.iter().find(|t| t.number == number)?;
        let ns = mine.left / self.speed(mine.route);
        Some(Span::from_ns(ns.ceil() as u64))
    }

    /// Brings all transfers up to date; one that ends on the way leaves its share to the others from that instant on.
    fn advance(&mut self, to: Time) {
        let to = to.as_ns() as f64;
        while self.updated < to {
            let speeds: Vec<f64> = self.transfers.iter().map(|t| self.speed(t.route)).collect();
            let ends = self.transfers.iter().zip(&speeds).map(|(t, s)| t.left / s);
            let first = ends.fold(f64::INFINITY, f64::min);
            let step = first.min(to - self.updated);
            for (transfer, speed) in self.transfers.iter_mut().zip(speeds) {
                let ends = transfer.left / speed <= step;
                transfer.left = if ends {
                    0.0
                } else {
                    transfer.left - step * speed
                };
            }
            self.transfers.retain(|transfer| transfer.left > 0.0);
            self.updated = to.min(self.updated + first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    fn sharing(both_ways_rate: f64) -> Sharing {
        Links::new(both_ways_rate).state.into_inner().unwrap()
    }

    const OUT: Route = Route {
        link: 0,
        leg: Leg::Stage,
    };

    const IN: Route = Route {
        link: 1,
        leg: Leg::Fetch,
    };

    #[test]
    fn transfers_share_the_link_and_get_it_back() {
        let mut links = sharing(1.0);
        let long = links.enter(at(0), OUT, Span::from_ns(100));
        let other = links.enter(at(0), IN, Span::from_ns(119));
        let short = links.enter(at(40), OUT, Span::from_ns(20));
        links.advance(at(60));
        assert_eq!(links.remaining(long), Some(Span::from_ns(100)));
        assert_eq!(links.remaining(short), Some(Span::from_ns(20)));
        links.advance(at(90));
        assert_eq!(links.remaining(short), None);
        assert_eq!(links.remaining(long), Some(Span::from_ns(30)));
        links.advance(at(119));
        assert_eq!(links.remaining(long), Some(Span::from_ns(1)));
        assert_eq!(links.remaining(other), None);
        links.advance(at(120));
        assert_eq!(links.remaining(long), None);
    }

    #[test]
    fn directions_slow_each_other() {
        let mut links = sharing(0.5);
        let out = links.enter(at(0), OUT, Span::from_ns(100));
        let into = links.enter(at(60), IN, Span::from_ns(100));
        links.advance(at(60));
        assert_eq!(links.remaining(out), Some(Span::from_ns(80)));
        // What is left of the second goes at full speed once the first is over.
        links.advance(at(140));
        assert_eq!(links.remaining(out), None);
        assert_eq!(links.remaining(into), Some(Span::from_ns(60)));
        links.advance(at(200));
        assert_eq!(links.remaining(into), None);
    }

    #[test]
    fn an_order_from_before_the_last_look_begins_at_the_last_look() {
        let mut links = sharing(1.0);
        links.advance(at(50));
        let late = links.enter(at(40), OUT, Span::from_ns(10));
        links.advance(at(55));
        assert_eq!(links.remaining(late), Some(Span::from_ns(5)));
    }

    #[test]
    fn a_transfer_of_no_length_is_over_at_the_next_look() {
        let mut links = sharing(1.0);
        let none = links.enter(at(0), OUT, Span::ZERO);
        links.advance(at(1));
        assert_eq!(links.remaining(none), None);
    }
}
