//! When nothing can happen any more although work remains: which item waits for what.

use super::{Core, Phase, Status, TargetTask};
use crate::id::{BucketId, DrafterId, MicrobatchId, TargetId};
use crate::time::Time;
use std::fmt;

/// One thing that waits, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A target holds hidden states for which no slot comes free.
    SlotFor {
        /// Who holds them.
        target: TargetId,
        /// Which.
        microbatch: MicrobatchId,
        /// Their bucket.
        bucket: BucketId,
    },
    /// A target may not begin its next microbatch.
    Begin {
        /// Who is idle.
        target: TargetId,
        /// What comes next.
        microbatch: MicrobatchId,
        /// The reason.
        because: &'static str,
    },
    /// Hidden states wait, and no drafter may take them.
    Taker {
        /// Which.
        microbatch: MicrobatchId,
        /// Their bucket.
        bucket: BucketId,
    },
    /// A drafter waits in the middle of its window.
    HiddenStates {
        /// Who.
        drafter: DrafterId,
        /// Microbatches it has taken for the window.
        taken: u32,
        /// Buckets among them.
        buckets: Vec<BucketId>,
        /// Microbatches in a window.
        window: u32,
        /// Distinct buckets that the mixing rule demands, if it acts on taking.
        distinct_min: u8,
    },
    /// A drafter has done its share and waits for the others at the optimizer step.
    Barrier {
        /// Who.
        drafter: DrafterId,
    },
    /// No worker of a kind is left.
    Workers {
        /// Which kind.
        kind: &'static str,
    },
}

/// A run that cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Since when.
    pub at: Time,
    /// Microbatches not part of the weights.
    pub open: u32,
    /// Slots in use. (slots)
    pub slots: u32,
    /// Who waits for what.
    pub waits: Vec<Wait>,
}

impl Core {
    /// The reason why nothing can happen any more although work remains; `None` while something is in flight.
    pub fn stall(&self) -> Option<Stall> {
        let state = self.state();
        let is_under_way = matches!(state.phase, Phase::Running | Phase::Closing);
        if !is_under_way || state.in_flight > 0 || state.wake.is_some() || state.open == 0 {
            return None;
        }
        let mut waits = Vec::new();
        if !state
            .targets
            .iter()
            .any(|t| t.presence == super::Presence::Present)
        {
            waits.push(Wait::Workers { kind: "target" });
        }
        if !state.drafters.iter().any(|d| d.is_present()) {
            waits.push(Wait::Workers { kind: "drafter" });
        }
        waits.extend(self.waiting_targets());
        waits.extend(state.lanes.iter().flatten().map(|&microbatch| Wait::Taker {
            microbatch,
            bucket: self.plan().microbatch(microbatch).bucket,
        }));
        waits.extend(self.waiting_drafters());
        Some(Stall {
            at: state.now,
            open: state.open,
            slots: state.hs.slots.count,
            waits,
        })
    }

    fn waiting_targets(&self) -> impl Iterator<Item = Wait> {
        (0..self.state().targets.len()).map(TargetId::from_index).filter_map(|target| {
            let t = &self.state().targets[target.index()];
            match t.task {
                TargetTask::Hold(microbatch) => Some(Wait::SlotFor {
                    target,
                    microbatch,
                    bucket: self.plan().microbatch(microbatch).bucket,
                }),
                TargetTask::Idle if t.presence == super::Presence::Present => {
                    let microbatch = self.next_input(target)?;
                    let because = if self.state().paused {
                        "the watermark holds targets back until samples in flight fall to gate_low"
                    } else if !self.is_next_for_slot(microbatch) {
                        "slots are granted in plan order, and earlier work has none yet"
                    } else {
                        "no slot is free"
                    };
                    Some(Wait::Begin { target, microbatch, because })
                }
                TargetTask::Idle | TargetTask::Forward(_) | TargetTask::Copy(_) => None,
            }
        })
    }

    fn waiting_drafters(&self) -> impl Iterator<Item = Wait> {
        let rule_acts = self.policy().mix_enforce == crate::policy::Enforce::Take;
        self.present_drafters().map(move |drafter| {
            if self.share_is_done(drafter) {
                return Wait::Barrier { drafter };
            }
            let d = &self.state().drafters[drafter.index()];
            let buckets = self.window_buckets(d).iter().collect();
            Wait::HiddenStates {
                drafter,
                taken: d.taken(),
                buckets,
                window: self.grad_accum(),
                distinct_min: if rule_acts {
                    self.policy().mix_window_min
                } else {
                    0
                },
            }
        })
    }

    /// Microbatches in each state, for reports: (status, count), only those that occur.
    pub fn census(&self) -> Vec<(Status, u32)> {
        let mut counts = std::collections::BTreeMap::new();
        for status in self.state().lives.statuses() {
            *counts.entry(status).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SlotFor {
                target,
                microbatch,
                bucket,
            } => {
                write!(
                    f,
                    "{target} holds {microbatch} (bucket {bucket}) and waits for a slot"
                )
            }
            Self::Begin {
                target,
                microbatch,
                because,
            } => {
                write!(f, "{target} waits to begin {microbatch}: {because}")
            }
            Self::Taker { microbatch, bucket } => {
                write!(
                    f,
                    "{microbatch} (bucket {bucket}) waits for a drafter that may take it"
                )
            }
            Self::HiddenStates {
                drafter,
                taken,
                buckets,
                window,
                distinct_min,
            } => {
                let held: Vec<_> = buckets.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "{drafter} has {taken} of {window} in its window, from {{{}}}, and waits for ",
                    held.join(", ")
                )?;
                if *distinct_min > 0 {
                    let missing = usize::from(*distinct_min).saturating_sub(held.len());
                    write!(
                        f,
                        "{missing} more distinct bucket(s): the rule asks for {distinct_min}"
                    )
                } else {
                    write!(f, "hidden states")
                }
            }
            Self::Barrier { drafter } => write!(f, "{drafter} waits for the others at the barrier"),
            Self::Workers { kind } => write!(f, "no {kind} worker is left"),
        }
    }
}

impl fmt::Display for Stall {
    /// One line of summary, then one line for each that waits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "deadlock at {}: {} microbatches are undone, {} slots are in use, nothing is in flight",
            self.at, self.open, self.slots
        )?;
        for wait in &self.waits {
            write!(f, "\n  {wait}")?;
        }
        Ok(())
    }
}
