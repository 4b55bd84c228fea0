//! What holds after every event, under any schedule: one list, checked in tests and in fuzzing.
//!
//! The state keeps sums so that decisions are cheap. Here each sum is taken again from the single microbatches and workers.

use super::{
    Actions, Core, DrafterState, Life, Phase, Presence, Slot, State, Status, TargetTask, Use,
};
use crate::core::sight::Sight;
use crate::id::{Bytes, DrafterId, MicrobatchId, TargetId};
use crate::policy::{Assignment, Barrier, Queue};

/// A promise, and whether it is kept.
type Rule = (&'static str, fn(&Core) -> bool);

const RULES: [Rule; 21] = [
    (
        "every microbatch is open, part of the weights, given up or skipped",
        is_conserved,
    ),
    (
        "untaken microbatches are those that no drafter took",
        counts_untaken,
    ),
    (
        "microbatches to be done again are those that were begun and are pending",
        again_is_pending,
    ),
    (
        "slots and bytes in use are those of the microbatches that have one",
        counts_slots,
    ),
    ("slots and bytes in use stay under every cap", respects_caps),
    (
        "hidden states are in a slot while they wait for a drafter",
        what_waits_has_a_slot,
    ),
    (
        "bytes in every memory are those of the hidden states that lie there",
        counts_memory,
    ),
    (
        "hidden states wait in a lane exactly while they are queued",
        lanes_hold_the_queued,
    ),
    (
        "hidden states of one lane leave in the order in which they came",
        lanes_are_in_order,
    ),
    (
        "each microbatch is in the hands that its status implies, and in no other",
        hands_agree,
    ),
    (
        "a drafter's window holds no more than it accumulates",
        windows_are_bounded,
    ),
    (
        "what was trained for the step of all drafters is in their windows",
        windows_add_up,
    ),
    (
        "work in flight is what workers and links have begun",
        counts_in_flight,
    ),
    (
        "samples in flight are those begun and not yet counted out",
        counts_samples,
    ),
    ("idle workers are listed once", idle_lists_agree),
    (
        "drafters that are there, train or apply a step are as many as counted",
        counts_drafters,
    ),
    (
        "the step under way is not ahead of what was trained",
        steps_are_in_order,
    ),
    (
        "of the plan the step under way and the next are in sight",
        sees_the_plan,
    ),
    (
        "under a plan with fixed assignment a drafter's cursor is at its next microbatch",
        cursors_are_exact,
    ),
    (
        "once all workers are told to stop nothing is left",
        the_end_is_clean,
    ),
    (
        "a settled core stays settled when it looks at everything again",
        is_settled,
    ),
];

/// The first invariant that does not hold, as a sentence.
///
/// Each line of the list is one promise: conservation, caps, memory, order, workers, windows, progress.
pub fn check(core: &Core) -> Result<(), String> {
    match RULES.iter().find(|(_, holds)| !holds(core)) {
        Some((rule, _)) => Err(format!("at {}: broken invariant: {rule}", core.state().now)),
        None => Ok(()),
    }
}

fn lives(state: &State) -> impl Iterator<Item = (MicrobatchId, &Life)> {
    state.lives.kept()
}

fn count(state: &State, pick: impl Fn(Status) -> bool) -> u32 {
    state
        .lives
        .statuses()
        .filter(|&status| pick(status))
        .count() as u32
}

fn is_conserved(core: &Core) -> bool {
    let is_done = |s| matches!(s, Status::Committed | Status::Failed | Status::Skipped);
    core.state().open == count(core.state(), |s| !is_done(s))
}

fn counts_untaken(core: &Core) -> bool {
    let state = core.state();
    let mut of_bucket = vec![0; state.untaken_of_bucket.len()];
    let mut of_drafter = vec![0; state.untaken_of_drafter.len()];
    let statuses = (0..).map(MicrobatchId).zip(state.lives.statuses());
    for (id, _) in statuses.filter(|(_, status)| status.is_untaken()) {
        of_bucket[core.plan().microbatch(id).bucket.index()] += 1;
        if core.policy().queue == Queue::PerDrafter
            && let Some(drafter) = core.consignee(id)
        {
            of_drafter[drafter.index()] += 1;
        }
    }
    state.untaken == count(state, Status::is_untaken)
        && state.untaken_of_bucket == of_bucket
        && state.untaken_of_drafter == of_drafter
}

fn again_is_pending(core: &Core) -> bool {
    let mut again = core.state().again.iter();
    again.all(|id| core.status(*id) == Status::Pending)
}

fn counts_slots(core: &Core) -> bool {
    let hs = &core.state().hs;
    let used = |pick: &dyn Fn(MicrobatchId, &Life) -> bool| -> Use {
        let mut used = Use::default();
        let in_slots = lives(core.state()).filter(|(_, life)| life.has_slot());
        in_slots
            .filter(|&(id, life)| pick(id, life))
            .for_each(|(id, _)| {
                used.add(core.plan().microbatch(id).bytes);
            });
        used
    };
    let bucket = |id| core.plan().microbatch(id).bucket.index();
    let mut by_bucket = hs.by_bucket.iter().enumerate();
    let mut by_drafter = hs.by_drafter.iter().enumerate();
    hs.slots == used(&|_, _| true)
        && by_bucket.all(|(b, &there)| there == used(&|id, _| bucket(id) == b))
        && by_drafter.all(|(d, &there)| {
            there == used(&|_, life| life.slot == Slot::Of(DrafterId::from_index(d)))
        })
}

fn respects_caps(core: &Core) -> bool {
    let under = |used: &Use, cap: (u32, Bytes)| used.count <= cap.0 && used.bytes <= cap.1;
    let hs = &core.state().hs;
    under(&hs.slots, core.caps.total)
        && hs.by_bucket.iter().all(|u| under(u, core.caps.bucket))
        && hs.by_drafter.iter().all(|u| under(u, core.caps.drafter))
}

fn what_waits_has_a_slot(core: &Core) -> bool {
    lives(core.state()).all(|(_, life)| match life.status {
        Status::Staging | Status::Queued => life.has_slot(),
        Status::Forwarding => {
            life.has_slot() == (core.policy().admission == crate::policy::Admission::Reserve)
        }
        Status::Held | Status::Fetching | Status::Ready | Status::Training => true,
        Status::Pending
        | Status::Trained
        | Status::Committed
        | Status::Failed
        | Status::Skipped => !life.has_slot(),
    })
}

fn counts_memory(core: &Core) -> bool {
    let hs = &core.state().hs;
    let sum = |pick: &dyn Fn(&Life) -> bool| -> Bytes {
        let there = lives(core.state()).filter(|(_, life)| pick(life));
        there.map(|(id, _)| core.plan().microbatch(id).bytes).sum()
    };
    let mut at_target = hs.at_target.iter().enumerate();
    let mut at_drafter = hs.at_drafter.iter().enumerate();
    hs.alive.bytes == sum(&|life| life.status.is_alive())
        && hs.alive.count == count(core.state(), Status::is_alive)
        && hs.at_host == sum(&|life| life.at_host)
        && at_target.all(|(t, &bytes)| {
            bytes == sum(&|life| life.at_target == Some(TargetId::from_index(t)))
        })
        && at_drafter.all(|(d, &bytes)| {
            bytes == sum(&|life| life.at_drafter == Some(DrafterId::from_index(d)))
        })
}

fn lanes_hold_the_queued(core: &Core) -> bool {
    let state = core.state();
    let mut waiting: Vec<_> = state.lanes.iter().flatten().copied().collect();
    waiting.sort_unstable();
    let count = waiting.len();
    let queued = lives(state)
        .filter(|(_, life)| life.status == Status::Queued)
        .map(|(id, _)| id);
    state.waiting as usize == count && waiting.into_iter().eq(queued)
}

fn lanes_are_in_order(core: &Core) -> bool {
    let ticket = |id: &MicrobatchId| core.state().lives[*id].ticket;
    let mut lanes = core.state().lanes.iter();
    lanes.all(|lane| {
        let next = lane.iter().skip(1);
        lane.iter().zip(next).all(|(a, b)| ticket(a) < ticket(b))
    })
}

fn hands_agree(core: &Core) -> bool {
    let state = core.state();
    let targets = state.targets.iter().filter_map(|t| match t.task {
        TargetTask::Idle | TargetTask::Copy(_) => None,
        TargetTask::Forward(id) => Some((id, Status::Forwarding)),
        TargetTask::Hold(id) => Some((id, Status::Held)),
    });
    let drafters = state.drafters.iter().flat_map(|d| {
        let training = d.training.map(|id| (id, Status::Training));
        let fetching = d.fetching.map(|id| (id, Status::Fetching));
        let ready = d.ready.iter().map(|&id| (id, Status::Ready));
        let trained = d.trained.iter().map(|&id| (id, Status::Trained));
        ready.chain(trained).chain(training).chain(fetching)
    });
    let mut in_hand: Vec<_> = targets.chain(drafters).collect();
    in_hand.sort_unstable();
    let is_in_hand = |status| {
        matches!(
            status,
            Status::Forwarding
                | Status::Held
                | Status::Fetching
                | Status::Ready
                | Status::Training
                | Status::Trained
        )
    };
    let implied = lives(state)
        .map(|(id, life)| (id, life.status))
        .filter(|&(_, status)| is_in_hand(status));
    in_hand.into_iter().eq(implied)
}

fn windows_are_bounded(core: &Core) -> bool {
    let is_fixed = core.policy().assignment == Assignment::Fixed;
    let most = core.grad_accum() as usize;
    let mut drafters = core.state().drafters.iter();
    core.plan().is_composed()
        || !is_fixed
        || drafters.all(|d| d.trained.len() + usize::from(d.training.is_some()) <= most)
}

fn windows_add_up(core: &Core) -> bool {
    let state = core.state();
    let trained: usize = state.drafters.iter().map(|d| d.trained.len()).sum();
    core.policy().barrier != Barrier::All || state.step_trained as usize == trained
}

fn counts_in_flight(core: &Core) -> bool {
    let state = core.state();
    let is_begun = |s| {
        matches!(
            s,
            Status::Forwarding | Status::Staging | Status::Fetching | Status::Training
        )
    };
    let applying = state.drafters.iter().filter(|d| d.applying).count() as u32;
    let applies = match core.policy().barrier {
        Barrier::All => applying.min(1),
        Barrier::None => applying,
    };
    state.in_flight == count(state, is_begun) + applies
}

fn counts_samples(core: &Core) -> bool {
    let begun = |life: &Life| life.status.is_alive() || life.status == Status::Trained;
    let lagging: u32 = core.state().lagging.iter().sum();
    let begun: u32 = lives(core.state())
        .filter(|(_, life)| begun(life))
        .map(|(id, _)| core.plan().microbatch(id).sample_count())
        .sum();
    core.state().samples_in_flight == begun + lagging
}

fn idle_lists_agree(core: &Core) -> bool {
    let state = core.state();
    let is_over = state.phase == Phase::Finished;
    let mut listed: Vec<_> = state.idle_targets.iter().copied().collect();
    listed.sort_unstable();
    let idle = (0..state.targets.len()).filter(|&t| {
        let t = &state.targets[t];
        !is_over && t.presence == Presence::Present && t.task == TargetTask::Idle
    });
    let mut holding: Vec<_> = state.holding.iter().copied().collect();
    holding.sort_unstable();
    let holds =
        (0..state.targets.len()).filter(|&t| matches!(state.targets[t].task, TargetTask::Hold(_)));
    let mut drafters: Vec<_> = state.idle_drafters.iter().copied().collect();
    let all = drafters.len();
    drafters.sort_unstable();
    drafters.dedup();
    listed.into_iter().eq(idle.map(TargetId::from_index))
        && holding.into_iter().eq(holds.map(TargetId::from_index))
        && drafters.len() == all
        && drafters
            .iter()
            .all(|d| state.drafters[d.index()].is_present())
        && drafters.into_iter().eq((0..state.drafters.len())
            .filter(|&d| state.drafters[d].listed)
            .map(DrafterId::from_index))
}

fn counts_drafters(core: &Core) -> bool {
    let state = core.state();
    let count =
        |is: &dyn Fn(&DrafterState) -> bool| state.drafters.iter().filter(|d| is(d)).count() as u32;
    state.drafters_present == count(&|d| d.is_present())
        && state.drafters_training == count(&|d| d.training.is_some())
        && state.drafters_applying == count(&|d| d.applying)
}

fn steps_are_in_order(core: &Core) -> bool {
    let state = core.state();
    let step_of = |id: &MicrobatchId| core.plan().step_of[id.index()];
    let Some(step) = core.plan().steps.get(state.step.index()) else {
        return true;
    };
    let (start, end) = (step.microbatches.start, step.microbatches.end);
    let status = |row| state.lives.status(MicrobatchId(row));
    let settled = (start..end).filter(|&row| !status(row).is_untaken());
    let is_over = state.phase == Phase::Finished;
    let failed = (start..end).filter(|&row| status(row) == Status::Failed);
    let is_counted = is_over
        || state.step_taken as usize == settled.count()
            && state.step_failed as usize == failed.count();
    is_counted
        && state.drafters.iter().all(|d| {
            let now = d.trained.iter().chain(&d.training);
            now.clone().all(|id| step_of(id) == state.step) && d.ready.iter().is_sorted()
        })
        && (0..start).all(|row| matches!(status(row), Status::Committed | Status::Failed))
}

fn sees_the_plan(core: &Core) -> bool {
    core.sight == Sight::of(core.plan(), core.state().step)
}

fn cursors_are_exact(core: &Core) -> bool {
    let state = core.state();
    let has_cursors = core.plan().is_composed()
        && core.policy().assignment == Assignment::Fixed
        && state.phase != Phase::Finished;
    let step = core.plan().steps.get(state.step.index());
    let from = step.map_or(0, |step| step.microbatches.start);
    let mut drafters = state.drafters.iter().enumerate();
    !has_cursors
        || drafters.all(|(i, d)| d.cursor == core.cursor_after(from, DrafterId::from_index(i)))
}

fn the_end_is_clean(core: &Core) -> bool {
    let state = core.state();
    let nobody = |presence| presence != Presence::Present;
    state.phase != Phase::Finished
        || state.open == 0
            && state.in_flight == 0
            && state.hs.slots == Use::default()
            && state.hs.alive == Use::default()
            && state.targets.iter().all(|t| nobody(t.presence))
            && state.drafters.iter().all(|d| nobody(d.presence))
}

/// Settling looks at what an event has touched. Here it is told that everything was.
fn is_settled(core: &Core) -> bool {
    let (mut again, mut out) = (core.clone(), Actions::new());
    again.touched.everything();
    again.settle(&mut out);
    out.is_empty() && again.state == core.state
}

#[cfg(test)]
mod planted;
