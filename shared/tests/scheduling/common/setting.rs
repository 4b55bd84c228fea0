//! What a run is set up with: spans of work, and what goes wrong.

use shared::draw::Seed;

/// How long work takes. (ns)
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) forward: u64,
    pub(crate) stage: u64,
    pub(crate) fetch: u64,
    pub(crate) train: u64,
    pub(crate) apply: u64,
    /// Forwards and trainings take up to so much longer, drawn by the seed.
    pub(crate) spread: u64,
    /// A wake-up comes so much later than asked for.
    pub(crate) late: u64,
    /// Of a thousand pieces of work, so many fail.
    pub(crate) fail_permille: u64,
    pub(crate) seed: Seed,
}

impl Times {
    pub(crate) const ZERO: Self = Self {
        forward: 0,
        stage: 0,
        fetch: 0,
        train: 0,
        apply: 0,
        spread: 0,
        late: 0,
        fail_permille: 0,
        seed: Seed(0),
    };

    pub(crate) const STEADY: Self = Self {
        forward: 100,
        stage: 10,
        fetch: 10,
        train: 60,
        apply: 5,
        ..Self::ZERO
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worker {
    Target(u16),
    Drafter(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A worker is lost.
    Lose(Worker),
    /// A worker is lost by a driver that reports its open work as failed first.
    LoseLate(Worker),
    /// A lost worker comes back.
    Join(Worker),
    /// The user asks for a stop.
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Forward,
    Stage,
    Fetch,
    Train,
}
