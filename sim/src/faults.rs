//! Faults by schedule: who slows down, is lost or comes back, and when.

use crate::spec::{self, FaultKind as Said};
use shared::time::{Span, Time};

pub(crate) use crate::spec::Worker;

/// Something that happens to a worker at an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) at: Time,
    pub(crate) worker: Worker,
    pub(crate) kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    Lost,
    Joined,
}

/// A span in which a worker is slower.
#[derive(Clone, Copy, Debug)]
struct Slow {
    worker: Worker,
    from: Time,
    until: Time,
    factor: f64,
}

/// All faults of a run.
#[derive(Clone, Debug, Default)]
pub struct FaultList {
    /// Latest first.
    pending: Vec<Fault>,
    slow: Vec<Slow>,
}

impl FaultList {
    /// The faults that a scenario lists.
    pub fn new(said: &[spec::Fault]) -> Self {
        let at = |s: f64| Time::from_ns((s * 1e9).round() as u64);
        let mut list = Self::default();
        for fault in said {
            let (worker, from) = (fault.worker, at(fault.at_s));
            let until = fault.until_s.map(at);
            match fault.kind {
                Said::Slow { factor } => {
                    let until = until.unwrap_or(Time::from_ns(u64::MAX));
                    list.slow.push(Slow {
                        worker,
                        from,
                        until,
                        factor,
                    });
                }
                Said::Lost => {
                    list.pending.push(Fault {
                        at: from,
                        worker,
                        kind: FaultKind::Lost,
                    });
                    if let Some(at) = until {
                        list.pending.push(Fault {
                            at,
                            worker,
                            kind: FaultKind::Joined,
                        });
                    }
                }
                Said::Joined => {
                    list.pending.push(Fault {
                        at: from,
                        worker,
                        kind: FaultKind::Joined,
                    });
                }
            }
        }
        list.sort();
        list
    }

    fn sort(&mut self) {
        self.pending
            .sort_by_key(|fault| std::cmp::Reverse(fault.at));
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.pending.last().map(|fault| fault.at)
    }

    pub(crate) fn pop(&mut self, now: Time) -> Option<Fault> {
        self.pending.pop_if(|fault| fault.at <= now)
    }

    /// Whether a worker will still join.
    pub(crate) fn can_help(&self) -> bool {
        self.pending
            .iter()
            .any(|fault| fault.kind == FaultKind::Joined)
    }

    /// How long work of `span` takes a worker that begins it now.
    #[inline]
    pub(crate) fn slowed(&self, span: Span, worker: Worker, now: Time) -> Span {
        if self.slow.is_empty() {
            return span;
        }
        let factor: f64 = self
            .slow
            .iter()
            .filter(|slow| slow.worker == worker && (slow.from..slow.until).contains(&now))
            .map(|slow| slow.factor)
            .product();
        if factor == 1.0 {
            return span;
        }
        Span::from_ns((span.as_ns() as f64 * factor).round() as u64)
    }
}
