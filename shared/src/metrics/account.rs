//! What became of the work.

use super::Ledger;
use crate::core::{Core, Status};
use crate::id::{SampleId, Tokens};
use crate::plan::Plan;
use std::ops::Range;

/// What a run has done with its plan's microbatches.
pub(super) struct Account {
    /// Where every sample is.
    pub(super) ledger: Ledger,
    /// Real tokens that are part of the weights.
    pub(super) tokens: Tokens,
    /// Tokens computed for them, padding included.
    pub(super) padded: Tokens,
    /// Microbatches that are part of the weights.
    pub(super) microbatches: u32,
}

impl Account {
    pub(super) fn of(core: &Core) -> Self {
        let plan = core.plan();
        let mut ledger = Ledger {
            over_long: over_long(plan),
            ..Ledger::default()
        };
        ledger.planned = ledger.over_long.len() as u64;
        for dropped in &plan.dropped {
            ledger.planned += u64::from(dropped.sample_count());
            ledger.dropped.extend(samples_of(plan, &dropped.samples));
        }
        let (mut tokens, mut padded, mut microbatches) = (Tokens(0), Tokens(0), 0);
        for (status, microbatch) in core.state().lives.statuses().zip(&plan.microbatches) {
            let count = u64::from(microbatch.sample_count());
            ledger.planned += count;
            match status {
                Status::Committed => {
                    ledger.trained += count;
                    tokens += microbatch.tokens;
                    padded += microbatch.padded;
                    microbatches += 1;
                }
                Status::Failed => ledger.failed.extend(samples_of(plan, &microbatch.samples)),
                Status::Skipped => ledger.skipped += count,
                Status::Pending => ledger.waiting += count,
                _ => ledger.in_flight += count,
            }
        }
        Self {
            ledger,
            tokens,
            padded,
            microbatches,
        }
    }
}

/// Over-long samples are left out of every epoch.
fn over_long(plan: &Plan) -> Vec<SampleId> {
    if plan.over_long.is_empty() {
        return Vec::new();
    }
    let all = plan.microbatches.iter().chain(&plan.dropped);
    let epochs = all.map(|m| m.epoch + 1).max().unwrap_or(1);
    plan.over_long.repeat(epochs.into())
}

/// Samples of a microbatch, where a plan lists them.
fn samples_of(plan: &Plan, range: &Range<u32>) -> Vec<SampleId> {
    let flat = plan.samples.get(range.start as usize..range.end as usize);
    flat.map(<[SampleId]>::to_vec).unwrap_or_default()
}
