//! What a run's records say beside its metrics: the other side of each law, and quantities that only queueing theory asks for.

use crate::engine::Observe;
use shared::core::{Action, Core, Event, Outcome};
use shared::id::MicrobatchId;
use shared::policy::{Admission, Release};
use shared::time::{Span, Time};

/// Follows every item through a run without failures. All sums are exact.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    items: Vec<Item>,
    /// Bytes of each item.
    bytes: Vec<u64>,
    reserve: bool,
    until_trained: bool,
    /// Items between forward and end of training, the instant since, and the number whose share of time is asked for.
    level: (u32, Time),
    /// Time with at least [`CROWD`] items there.
    pub(super) crowded: Span,
    /// Sum over items of bytes x time from the beginning of the forward to the end of the training. (bytes x ns)
    pub(super) alive_byte_ns: u128,
    /// Sum over items of the time in a slot, where an item is trained as soon as it is taken. (ns)
    pub(super) slot_ns: u128,
    /// Items trained the instant they were there.
    pub(super) at_once: u32,
    pub(super) trained: u32,
    /// When the last of them was trained.
    pub(super) end: Time,
    /// Sum of times between the end of the forward and arrival at the drafter. (ns)
    pub(super) travel_ns: u128,
    /// Sum of times between the end of the forward and the end of the training. (ns)
    pub(super) stay_ns: u128,
    /// Times of that kind, by [`BIN`].
    stays: Vec<u32>,
    work: Work,
}

#[derive(Clone, Copy, Debug, Default)]
struct Item {
    begun: Time,
    computed: Time,
    granted: Time,
    train: Time,
}

/// The number of items in [`Probe::crowded`].
pub(super) const CROWD: u32 = 5;
/// Width of a bin of stays. (ns)
const BIN: u64 = 10_000;
const BINS: usize = 20_000;

/// Work that has been handed to drafters and not done: its integral over time, from both sides.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    left: u64,
    at: Time,
    /// Twice the integral, from what came in alone. (ns^2)
    from_input: u128,
    /// The same from waits: an item that waits w and takes s adds 2 s w + s^2. (ns^2)
    from_waits: u128,
}

impl Work {
    fn advance(&mut self, now: Time) {
        let span = (now - self.at).as_ns();
        let (before, after) = (u128::from(self.left), self.left.saturating_sub(span));
        self.from_input += before * before - u128::from(after) * u128::from(after);
        self.left = after;
        self.at = now;
    }
}

impl Probe {
    pub(super) fn new(core: &Core) -> Self {
        let plan = core.plan();
        Self {
            items: vec![Item::default(); plan.microbatches.len()],
            bytes: plan.microbatches.iter().map(|m| m.bytes.0).collect(),
            reserve: core.policy().admission == Admission::Reserve,
            until_trained: core.policy().release == Release::Trained,
            level: (0, Time::ZERO),
            crowded: Span::ZERO,
            alive_byte_ns: 0,
            slot_ns: 0,
            at_once: 0,
            trained: 0,
            end: Time::ZERO,
            travel_ns: 0,
            stay_ns: 0,
            stays: vec![0; BINS + 1],
            work: Work::default(),
        }
    }

    fn level(&mut self, at: Time, change: i32) {
        let (level, since) = self.level;
        if level >= CROWD {
            self.crowded += at - since;
        }
        self.level = (level.saturating_add_signed(change), at);
    }

    fn computed(&mut self, at: Time, id: MicrobatchId) {
        self.items[id.index()].computed = at;
        self.level(at, 1);
    }

    fn ended(&mut self, at: Time, id: MicrobatchId) {
        self.level(at, -1);
        let item = self.items[id.index()];
        let since = |then: Time| u128::from((at - then).as_ns());
        self.alive_byte_ns += since(item.begun) * u128::from(self.bytes[id.index()]);
        if self.until_trained {
            self.slot_ns += since(item.granted);
        }
        let stay = (at - item.computed).as_ns();
        self.stay_ns += u128::from(stay);
        self.stays[((stay / BIN) as usize).min(BINS)] += 1;
        self.trained += 1;
        self.end = at;
        let (wait, service) = (since(item.computed) - since(item.train), since(item.train));
        self.work.from_waits += 2 * service * wait + service * service;
        self.at_once += u32::from(wait == 0);
    }

    fn act(&mut self, at: Time, action: &Action) {
        match *action {
            Action::Forward { microbatch, .. } => {
                let item = &mut self.items[microbatch.index()];
                item.begun = at;
                if self.reserve {
                    item.granted = at;
                }
            }
            Action::Admit { microbatch } => self.items[microbatch.index()].granted = at,
            Action::Train { microbatch, .. } => {
                let item = &mut self.items[microbatch.index()];
                item.train = at;
                if !self.until_trained {
                    self.slot_ns += u128::from((at - item.granted).as_ns());
                }
            }
            _ => {}
        }
    }

    /// The time within which a share of the items was through with waiting and training. (ms)
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let mut left = share * f64::from(self.trained);
        for (bin, &count) in self.stays.iter().enumerate() {
            if left <= f64::from(count) {
                let within = left / f64::from(count.max(1));
                return (bin as f64 + within) * BIN as f64 / 1e6;
            }
            left -= f64::from(count);
        }
        f64::INFINITY
    }

    /// Twice the integral of unfinished work: from what came in, for one drafter that never rests, and from waits. `trainings` are the
    /// service times. (ns^2)
    pub(super) fn unfinished_work(&self, trainings: &[Span]) -> (u128, u128) {
        let mut arrivals: Vec<(Time, Span)> = (self.items.iter().zip(trainings))
            .map(|(item, &span)| (item.computed, span))
            .collect();
        arrivals.sort_unstable();
        let mut work = self.work;
        for (at, span) in arrivals {
            work.advance(at);
            work.left += span.as_ns();
        }
        work.advance(Time::from_ns(u64::MAX));
        (work.from_input, work.from_waits)
    }
}

impl Observe for Probe {
    fn record(&mut self, at: Time, event: &Event, actions: &[Action], _core: &Core) {
        match *event {
            Event::ForwardEnded {
                microbatch,
                outcome: Outcome::Done,
                ..
            } => self.computed(at, microbatch),
            Event::StageEnded {
                microbatch,
                outcome: Outcome::Done,
            } => {
                let since = self.items[microbatch.index()].computed;
                self.travel_ns += u128::from((at - since).as_ns());
            }
            Event::TrainEnded {
                microbatch,
                outcome: Outcome::Done,
                ..
            } => self.ended(at, microbatch),
            _ => {}
        }
        for action in actions {
            self.act(at, action);
        }
    }
}
