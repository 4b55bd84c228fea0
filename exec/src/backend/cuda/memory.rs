//! What a run takes of each GPU and of the host, worked out before anything is taken.

use crate::cuda::drafter::{CudaDrafter, DrafterLimits};
use crate::cuda::target::{Captures, TargetShape};
use crate::cuda::{CudaError, HiddenCheck};
use crate::model::DrafterConfig;
use shared::id::Bytes;
use shared::plan::Plan;
use shared::policy::{Admission, Placement, Policy, Release, Transport};
use std::fmt;

use super::checks::RowSize;
use super::hidden::DeviceSlots;
use super::placing::Placing;

/// Query slots that a drafter works on at a time; larger microbatches are cut by rows into several passes. It bounds memory, not the
/// result.
const PASS_SLOTS_MAX: usize = 65_536;

/// Slots whose logits exist at a time.
const LOGITS_MAX: usize = 8192;

/// What the driver and libraries take of a GPU beside what is asked for.
const DRIVER: Bytes = Bytes(1 << 30);

/// Sizes of a run's largest microbatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Largest {
    /// Padded tokens.
    pub(super) tokens: usize,
    /// Tokens of a row.
    pub(super) width: usize,
    /// Rows.
    pub(super) rows: usize,
}

impl Largest {
    pub(super) fn of(plan: &Plan) -> Self {
        let mut largest = Self {
            tokens: 1,
            width: 1,
            rows: 1,
        };
        for microbatch in &plan.microbatches {
            let (tokens, rows) = (
                microbatch.padded.0 as usize,
                microbatch.sample_count() as usize,
            );
            largest.tokens = largest.tokens.max(tokens);
            largest.width = largest.width.max(tokens / rows.max(1));
            largest.rows = largest.rows.max(rows);
        }
        largest
    }

    /// Limits of a drafter whose rows have up to `anchors` blocks of `slots` slots.
    pub(super) fn limits(&self, anchors: usize, slots: usize) -> DrafterLimits {
        let row = (anchors * slots).max(1);
        DrafterLimits {
            slots_max: (row * self.rows).min(PASS_SLOTS_MAX).max(row),
            context_max: self.tokens,
            row_max: self.width,
            logits_max: LOGITS_MAX,
        }
    }
}

/// Slots for hidden states by place, as the policy's caps allow at worst.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotCounts {
    /// On each GPU.
    pub(super) gpus: Vec<usize>,
    /// In host memory.
    pub(super) host: usize,
}

impl SlotCounts {
    /// # Errors
    /// A policy without any cap: there is nothing to set aside.
    pub(super) fn new(policy: &Policy, work: &Work, placing: &Placing) -> Result<Self, String> {
        let total = total(policy, work)?;
        let is_local = policy.transport == Transport::Local;
        let is_blocking = policy.admission == Admission::Block;
        let prefetched = usize::from(policy.prefetch) + 1;
        // Its own forward and, beside it, copies; under block, one more that waits to be admitted.
        let copies = if policy.overlap {
            policy.copies_beside
        } else {
            0
        };
        let in_hand = 1 + usize::from(copies) + usize::from(is_blocking);
        // What a drafter has taken may stand where it waited after its slot is given back.
        let taken = match policy.release {
            Release::Trained => 0,
            Release::Taken | Release::Fetched => prefetched * usize::from(policy.drafters),
        };
        let own = match policy.depth_per_drafter {
            Some(depth) => (depth as usize).min(total),
            None => total,
        };
        let gpus = (0..placing.gpus()).map(|gpu| {
            let (targets, drafters) = (placing.targets_on(gpu), placing.drafters_on(gpu));
            let held = targets * in_hand;
            let fetched = drafters * prefetched;
            match policy.placement {
                Placement::Target => {
                    let waiting = if targets > 0 { total + taken } else { 0 };
                    let held = if is_blocking { held } else { 0 };
                    waiting + held + if is_local { 0 } else { fetched }
                }
                Placement::Host => held + fetched,
                Placement::Drafter => held + drafters * own + fetched,
            }
        });
        Ok(Self {
            gpus: gpus.collect(),
            host: match policy.placement {
                Placement::Host => total + taken,
                Placement::Target | Placement::Drafter => 0,
            },
        })
    }
}

/// What caps are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) microbatches: usize,
    pub(super) buckets: usize,
    /// Hidden states of the smallest microbatch: a cap on bytes lets so many more stand.
    pub(super) smallest: Bytes,
}

impl Work {
    pub(super) fn of(plan: &Plan) -> Self {
        Self {
            microbatches: plan.microbatches.len(),
            buckets: plan.buckets().into(),
            smallest: plan
                .microbatches
                .iter()
                .map(|m| m.bytes)
                .min()
                .unwrap_or_default(),
        }
    }
}

/// The policy's cap on all slots, and never more than there are microbatches.
fn total(policy: &Policy, work: &Work) -> Result<usize, String> {
    let by_depth = policy.depth_total.map(u64::from);
    let by_drafter = policy
        .depth_per_drafter
        .map(|depth| u64::from(depth) * u64::from(policy.drafters));
    let by_bytes = policy
        .bytes_total
        .map(|bytes| (bytes.0 / work.smallest.0.max(1)).max(1));
    let per_bucket = policy
        .depth_per_bucket
        .map(|depth| u64::from(depth) * work.buckets as u64);
    let caps = [by_depth, by_drafter, by_bytes, per_bucket];
    match caps.into_iter().flatten().min() {
        Some(cap) => Ok((cap as usize).min(work.microbatches).max(1)),
        None => Err(
            "the policy has no cap on hidden states, so no memory can be set aside for them; set policy.depth_total"
                .to_owned(),
        ),
    }
}

/// What a run takes of one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Which, from 0.
    pub gpu: usize,
    /// The model.
    pub name: String,
    /// What is free before the run takes anything.
    pub free: Bytes,
    /// What is taken, and what for.
    pub parts: Vec<(String, Bytes)>,
}

impl DeviceMemory {
    /// All of it.
    pub fn needed(&self) -> Bytes {
        Bytes(self.parts.iter().map(|(_, bytes)| bytes.0).sum())
    }
}

impl fmt::Display for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gpu, name) = (self.gpu, &self.name);
        write!(
            f,
            "GPU {gpu} ({name}): {} of {} free: ",
            self.needed(),
            self.free
        )?;
        let parts: Vec<String> = self
            .parts
            .iter()
            .filter(|(_, bytes)| bytes.0 > 0)
            .map(|(what, bytes)| format!("{what} {bytes}"))
            .collect();
        f.write_str(&parts.join(", "))
    }
}

/// Everything that sizes depend on.
#[derive(Debug)]
pub(super) struct Sizes<'a> {
    pub(super) target: &'a TargetShape,
    pub(super) tied: bool,
    pub(super) captures: &'a Captures,
    pub(super) drafter: &'a DrafterConfig,
    pub(super) largest: Largest,
    pub(super) limits: DrafterLimits,
}

impl Sizes<'_> {
    /// Elements of the largest microbatch's hidden states.
    pub(super) fn slot_elements(&self) -> usize {
        self.largest.tokens * self.captures.elements_per_token(self.target.hidden)
    }

    /// What rows that are computed again need.
    pub(super) fn rows_again(&self, placing: &Placing) -> RowSize {
        RowSize {
            width: self.largest.width,
            per_token: self.captures.elements_per_token(self.target.hidden),
            travels: placing.gpus() > 1,
        }
    }

    /// Looking at hidden states before training.
    fn checks(&self, gpu: usize, placing: &Placing) -> Bytes {
        let looks = HiddenCheck::bytes_needed(self.largest.rows, 1).0;
        let again = match placing.targets[0] == gpu {
            true => self.rows_again(placing).bytes(self.target).0,
            false => 0,
        };
        Bytes(placing.drafters_on(gpu) as u64 * looks + again)
    }

    /// What the workers on `gpu` take, by purpose.
    pub(super) fn parts(
        &self,
        gpu: usize,
        placing: &Placing,
        slots: &SlotCounts,
    ) -> Result<Vec<(String, Bytes)>, CudaError> {
        let (targets, drafters) = (placing.targets_on(gpu), placing.drafters_on(gpu));
        let times = |count: usize, bytes: Bytes| Bytes(count as u64 * bytes.0);
        let layers = match targets {
            0 => 0,
            _ => self.captures.depth(self.target.layers),
        };
        let weights = self.target.weight_bytes(layers, self.tied, drafters > 0);
        let scratch = self
            .target
            .scratch_bytes(self.largest.tokens, self.largest.width);
        let drafter = CudaDrafter::bytes_needed(self.drafter, &self.limits)?;
        let hidden = DeviceSlots::bytes(slots.gpus[gpu], self.slot_elements());
        Ok(vec![
            ("the target's weights".to_owned(), weights),
            (
                format!("activations of {targets} target workers"),
                times(targets, scratch),
            ),
            (
                format!("{drafters} drafters with optimizer"),
                times(drafters, drafter),
            ),
            (
                format!("{} slots of hidden states", slots.gpus[gpu]),
                hidden,
            ),
            (
                "checks of hidden states".to_owned(),
                self.checks(gpu, placing),
            ),
            ("driver".to_owned(), DRIVER),
        ])
    }
}

#[cfg(test)]
mod tests;
