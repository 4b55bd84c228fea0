//! The first cause: what the slower policy's limiting stage spends more time on.
//!
//! Waiting is company: targets are blocked because drafters or copies are slow, drafters starve because targets are. So the stage that
//! waits least in the slower policy is the one that limits it, and what grows most there is the cause. Only where waiting itself grows
//! most there, and in both stages, is dispatch to blame: each waits for the other.

use super::Side;
use super::account::{Account, Entry, Stage};
use shared::core::Activity;
use sim::{Estimate, is_tie};

/// Why the slower policy is slower.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cause {
    /// The stage that limits the slower policy.
    pub(super) stage: Stage,
    /// What it spends more time on.
    pub(super) activity: Activity,
    /// How much more for each million tokens, slower less faster, paired. (s)
    pub(super) excess: Estimate,
    /// That as a share of the whole difference. (1)
    pub(super) share: f64,
    /// In words.
    pub(super) text: String,
}

/// The first cause; `None` for a tie.
pub(super) fn first(account: &Account, a: &Side, b: &Side) -> Option<Cause> {
    if is_tie(&account.gain) {
        return None;
    }
    let a_is_faster = account.gain.mean > 0.0;
    let slower = |entry: &Entry| if a_is_faster { entry.b } else { entry.a };
    let excess = |entry: &Entry| {
        let sign = if a_is_faster { 1.0 } else { -1.0 };
        Estimate {
            mean: sign * entry.difference.mean,
            ..entry.difference
        }
    };
    let waiting = |stage: Stage| {
        let waits = [Activity::Blocked, Activity::Starved];
        let entries = waits.iter().filter_map(|&what| account.entry(stage, what));
        entries.map(|entry| slower(entry).mean).sum::<f64>()
    };
    let stage = if waiting(Stage::Targets) <= waiting(Stage::Drafters) {
        Stage::Targets
    } else {
        Stage::Drafters
    };
    let own = account.entries.iter().filter(|entry| entry.stage == stage);
    let most = own.max_by(|x, y| excess(x).mean.total_cmp(&excess(y).mean))?;
    let (fast, slow) = if a_is_faster { (a, b) } else { (b, a) };
    let grown = excess(most);
    Some(Cause {
        stage,
        activity: most.activity,
        excess: grown,
        share: grown.mean / account.total.mean.abs(),
        text: words(stage, most.activity, fast, slow),
    })
}

fn words(stage: Stage, activity: Activity, fast: &Side, slow: &Side) -> String {
    let (f, s) = (&fast.case.file.policy, &slow.case.file.policy);
    let name = stage.name();
    match activity {
        Activity::Copying => format!(
            "the {name} of {} stand still while hidden states are copied ({}, {})",
            slow.letter,
            kebab(&s.transport),
            if s.overlap {
                "beside compute"
            } else {
                "copies stop compute"
            }
        ),
        Activity::Busy => {
            let workers = |policy: &shared::policy::Policy| match stage {
                Stage::Targets => policy.targets,
                Stage::Drafters => policy.drafters,
            };
            if workers(f) == workers(s) {
                format!(
                    "the {name} of {} compute longer for the same tokens",
                    slow.letter
                )
            } else {
                format!(
                    "the {name} limit {}, and it has {} of them where {} has {}",
                    slow.letter,
                    workers(s),
                    fast.letter,
                    workers(f)
                )
            }
        }
        Activity::Barrier => format!(
            "the drafters of {} wait for each other before optimizer steps: their shares of a step are uneven ({} assignment)",
            slow.letter,
            kebab(&s.assignment)
        ),
        Activity::Blocked => format!(
            "both stages of {} wait for each other, its targets for HS slots: what fills the slots is not what drafters may take, or there are too few",
            slow.letter
        ),
        Activity::Starved => format!(
            "both stages of {} wait for each other, its drafters for hidden states: too few are under way, or not those that they may take",
            slow.letter
        ),
        Activity::Absent => format!("workers of {} are absent longer", slow.letter),
    }
}

/// What a worker does, as a verb.
pub(super) const fn does(activity: Activity) -> &'static str {
    match activity {
        Activity::Busy => "compute",
        Activity::Copying => "copy",
        Activity::Blocked => "are blocked",
        Activity::Starved => "starve",
        Activity::Barrier => "wait at the barrier",
        Activity::Absent => "are absent",
    }
}

/// A choice as files write it.
fn kebab(choice: &impl serde::Serialize) -> String {
    match serde_json::to_value(choice) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}
