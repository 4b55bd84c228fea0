//! Where a worker's time goes for each million trained tokens, and how two policies differ in it.
//!
//! A stage's share of an activity, times the length of the run over its tokens, is the time that one of its workers spends so for each
//! token. For one run the activities add up to the same sum in both stages: the inverse of throughput.

use shared::core::Activity;
use sim::{Estimate, Outcome, paired};

/// Targets or drafters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Targets,
    Drafters,
}

impl Stage {
    pub(super) const ALL: [Self; 2] = [Self::Targets, Self::Drafters];

    pub(super) const fn name(self) -> &'static str {
        ["targets", "drafters"][self as usize]
    }

    pub(super) const fn other(self) -> Self {
        match self {
            Self::Targets => Self::Drafters,
            Self::Drafters => Self::Targets,
        }
    }
}

/// What both policies spend on one activity, for each million trained tokens. (s)
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) stage: Stage,
    pub(super) activity: Activity,
    pub(super) a: Estimate,
    pub(super) b: Estimate,
    /// B less A, paired.
    pub(super) difference: Estimate,
}

/// Two policies' time, taken apart.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Account {
    /// Trained tokens a second over whole runs. (tok/s)
    pub(super) speed_a: Estimate,
    pub(super) speed_b: Estimate,
    /// By how much A is faster than B, as a share of B, paired. (1)
    pub(super) gain: Estimate,
    /// The whole time for a million tokens. (s)
    pub(super) total_a: Estimate,
    pub(super) total_b: Estimate,
    pub(super) total: Estimate,
    /// What takes any time at all, by stage.
    pub(super) entries: Vec<Entry>,
}

impl Account {
    /// From runs side by side.
    pub(super) fn of(a: &[Outcome], b: &[Outcome]) -> Self {
        let speed = |outcome: &Outcome| outcome.metrics.run_tokens_per_s();
        let alone =
            |side: &[Outcome], value: &dyn Fn(&Outcome) -> f64| paired(side, side, |o, _| value(o));
        let mut entries = Vec::new();
        for stage in Stage::ALL {
            for activity in Activity::ALL {
                let value = |outcome: &Outcome| share(outcome, stage, activity) * whole(outcome);
                let entry = Entry {
                    stage,
                    activity,
                    a: alone(a, &value),
                    b: alone(b, &value),
                    difference: paired(a, b, |b, a| value(b) - value(a)),
                };
                if entry.a.mean > 0.0 || entry.b.mean > 0.0 {
                    entries.push(entry);
                }
            }
        }
        Self {
            speed_a: alone(a, &speed),
            speed_b: alone(b, &speed),
            gain: gain(b, a),
            total_a: alone(a, &whole),
            total_b: alone(b, &whole),
            total: paired(a, b, |b, a| whole(b) - whole(a)),
            entries,
        }
    }

    /// The entry of an activity, if it takes any time.
    pub(super) fn entry(&self, stage: Stage, activity: Activity) -> Option<&Entry> {
        self.entries
            .iter()
            .find(|entry| entry.stage == stage && entry.activity == activity)
    }
}

/// By how much `other` is faster than `base` over whole runs, as a share of `base`, paired. (1)
pub(super) fn gain(base: &[Outcome], other: &[Outcome]) -> Estimate {
    paired(base, other, |other, base| {
        let before = base.metrics.run_tokens_per_s();
        if before > 0.0 {
            other.metrics.run_tokens_per_s() / before - 1.0
        } else {
            0.0
        }
    })
}

/// The run's length for each million trained tokens. (s)
fn whole(outcome: &Outcome) -> f64 {
    let speed = outcome.metrics.run_tokens_per_s();
    if speed > 0.0 { 1e6 / speed } else { 0.0 }
}

fn share(outcome: &Outcome, stage: Stage, activity: Activity) -> f64 {
    match stage {
        Stage::Targets => outcome.metrics.target_share(activity),
        Stage::Drafters => outcome.metrics.drafter_share(activity),
    }
}
