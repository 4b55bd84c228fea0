//! A link whose transfers share its bandwidth fairly (processor sharing).
//!
//! Time on the link is kept as work: how many bytes each transfer that was there all along has received. A transfer that joins at work w
//! with b bytes leaves at work w + b, so the next to leave is the least of these and no transfer is touched while others come and go.

use shared::time::{Span, Time};

/// One link, which knows of each transfer what its user says of it.
#[derive(Clone, Debug)]
pub(crate) struct FairLink<T> {
    bytes_per_ns: f64,
    /// The share of that speed which others leave.
    pace: f64,
    latency_bytes: f64,
    /// Bytes that a transfer there from the beginning would have received.
    work: f64,
    at: Time,
    /// (work at which it is done, what it is), in order of arrival.
    transfers: Vec<(f64, T)>,
}

impl<T: Copy> FairLink<T> {
    /// A link of so many bytes per second; latency is charged as the bytes it would have carried meanwhile.
    pub(crate) fn new(bytes_per_s: f64, latency_ms: f64) -> Self {
        let bytes_per_ns = bytes_per_s / 1e9;
        Self {
            bytes_per_ns,
            pace: 1.0,
            latency_bytes: latency_ms * 1e6 * bytes_per_ns,
            work: 0.0,
            at: Time::ZERO,
            transfers: Vec::new(),
        }
    }

    pub(crate) fn begin(&mut self, now: Time, transfer: T, bytes: u64) {
        self.advance(now);
        let done_at = self.work + bytes as f64 + self.latency_bytes;
        self.transfers.push((done_at, transfer));
    }

    /// From now on the link goes at this share of its speed.
    pub(crate) fn set_pace(&mut self, now: Time, pace: f64) {
        self.advance(now);
        self.pace = pace;
    }

    /// When the next transfer is done, if nothing joins or leaves before.
    pub(crate) fn next(&self) -> Option<Time> {
        let (done_at, _) = self.transfers[self.first()?];
        let work = (done_at - self.work).max(0.0) * self.transfers.len() as f64;
        let ns = (work / (self.bytes_per_ns * self.pace)).ceil();
        Some(self.at + Span::from_ns(ns as u64))
    }

    /// Takes out the transfer that is done at `now`.
    pub(crate) fn finish(&mut self, now: Time) -> T {
        self.advance(now);
        let first = self.first().expect("a transfer is there to finish");
        self.work = self.work.max(self.transfers[first].0);
        self.take_out(first)
    }

    /// Takes out the first transfer that `is_hit` names before it is done.
    pub(crate) fn remove(&mut self, now: Time, is_hit: impl Fn(&T) -> bool) -> Option<T> {
        let at = self.transfers.iter().position(|(_, t)| is_hit(t))?;
        self.advance(now);
        Some(self.take_out(at))
    }

    fn take_out(&mut self, at: usize) -> T {
        if self.transfers.len() == 1 {
            // Work only matters relative to transfers that are there; starting over keeps it precise.
            self.work = 0.0;
            return self.transfers.pop().expect("one is there").1;
        }
        self.transfers.remove(at).1
    }

    /// Where the next to be done stands: the first of equals is the one that came first.
    fn first(&self) -> Option<usize> {
        let work = |at: usize| self.transfers[at].0;
        (0..self.transfers.len()).reduce(|a, b| if work(b) < work(a) { b } else { a })
    }

    fn advance(&mut self, now: Time) {
        let span = (now - self.at).as_ns() as f64;
        if !self.transfers.is_empty() {
            self.work += span * (self.bytes_per_ns * self.pace) / self.transfers.len() as f64;
        }
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    #[test]
    fn a_transfer_alone_takes_bytes_over_bandwidth() {
        let mut link = FairLink::new(1e9, 0.0);
        link.begin(ns(100), 7, 5_000);
        assert_eq!(link.next(), Some(ns(5_100)));
        assert_eq!(link.finish(ns(5_100)), 7);
        assert_eq!(link.next(), None);
    }

    #[test]
    fn two_transfers_share_and_the_one_left_speeds_up() {
        let mut link = FairLink::new(1e9, 0.0);
        link.begin(ns(0), 0, 1_000);
        link.begin(ns(500), 1, 1_000);
        // 500 B of the first are there; the other 500 take twice as long.
        assert_eq!(link.next(), Some(ns(1_500)));
        assert_eq!(link.finish(ns(1_500)), 0);
        assert_eq!(link.next(), Some(ns(2_000)));
        assert_eq!(link.finish(ns(2_000)), 1);
    }

    #[test]
    fn a_pace_holds_from_when_it_is_set() {
        let mut link = FairLink::new(1e9, 0.0);
        link.begin(ns(0), 0, 1_000);
        link.set_pace(ns(400), 0.5);
        assert_eq!(link.next(), Some(ns(1_600)));
        link.set_pace(ns(1_000), 1.0);
        assert_eq!(link.next(), Some(ns(1_300)));
    }

    #[test]
    fn latency_comes_on_top() {
        let mut link = FairLink::new(1e9, 0.001);
        link.begin(ns(0), 0, 1_000);
        assert_eq!(link.next(), Some(ns(2_000)));
    }
}
