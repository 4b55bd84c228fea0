//! What holds after every event, under any schedule: one list, checked in tests and in fuzzing.

use super::{Core, Presence, State, Status, TargetTask, Use};
use crate::id::{Bytes, MicrobatchId};

/// The first invariant that does not hold, as a sentence.
///
/// Each line of the list is one promise:
/// conservation, caps, order, memory, workers, progress.
pub fn check(core: &Core) -> Result<(), String> {
    let rules: [(&str, fn(&Core) -> bool); 12] = [
        (
            "every microbatch is open, part of the weights, given up or skipped",
            is_conserved,
        ),
        (
            "untaken microbatches are those that no drafter took",
            counts_untaken,
        ),
        (
            "slots and bytes in use are those of the microbatches that have one",
            counts_slots,
        ),
        ("slots and bytes in use stay under every cap", respects_caps),
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
            "what a worker has in hand is in the state that its task implies",
            hands_agree,
        ),
        (
            "a drafter's window holds no more than it accumulates",
            windows_are_bounded,
        ),
        (
            "work in flight is what workers and links have begun",
            counts_in_flight,
        ),
        ("idle workers are listed once", idle_lists_agree),
        (
            "the step under way is not ahead of what was trained",
            steps_are_in_order,
        ),
    ];
    match rules.iter().find(|(_, holds)| !holds(core)) {
        Some((rule, _)) => Err(format!("at {}: broken invariant: {rule}", core.state().now)),
        None => Ok(()),
    }
}

fn lives(state: &State) -> impl Iterator<Item = (MicrobatchId, &super::Life)> {
    state
        .lives
        .iter()
        .enumerate()
        .map(|(i, life)| (MicrobatchId::from_index(i), life))
}

fn count(state: &State, pick: impl Fn(Status) -> bool) -> u32 {
    state.lives.iter().filter(|life| pick(life.status)).count() as u32
}

fn is_conserved(core: &Core) -> bool {
    let done = |s| matches!(s, Status::Committed | Status::Failed | Status::Skipped);
    core.state().open == count(core.state(), |s| !done(s))
}

fn counts_untaken(core: &Core) -> bool {
    let state = core.state();
    let by_bucket: u32 = state.untaken_of_bucket.iter().sum();
    let by_drafter: u32 = state.untaken_of_drafter.iter().sum();
    let untaken = count(state, Status::is_untaken);
    state.untaken == untaken && by_bucket == untaken && by_drafter == untaken
}

fn counts_slots(core: &Core) -> bool {
    let mut used = Use::default();
    for (id, _) in lives(core.state()).filter(|(_, life)| life.has_slot) {
        used.add(core.plan().microbatch(id).bytes);
    }
    let hs = &core.state().hs;
    let buckets = hs.by_bucket.iter().map(|u| u.count).sum::<u32>();
    used == hs.slots && buckets == used.count
}

fn respects_caps(core: &Core) -> bool {
    let under = |used: &Use, cap: (u32, Bytes)| used.count <= cap.0 && used.bytes <= cap.1;
    let hs = &core.state().hs;
    under(&hs.slots, core.caps.total())
        && hs.by_bucket.iter().all(|u| under(u, core.caps.bucket()))
        && hs.by_drafter.iter().all(|u| under(u, core.caps.drafter()))
}

fn counts_memory(core: &Core) -> bool {
    let hs = &core.state().hs;
    let sum = |pick: &dyn Fn(&super::Life) -> bool| -> Bytes {
        let there = lives(core.state()).filter(|(_, life)| pick(life));
        there.map(|(id, _)| core.plan().microbatch(id).bytes).sum()
    };
    let alive = sum(&|life| life.status.is_alive());
    let targets: Bytes = hs.at_target.iter().copied().sum();
    let drafters: Bytes = hs.at_drafter.iter().copied().sum();
    hs.alive.bytes == alive
        && hs.alive.count == count(core.state(), Status::is_alive)
        && hs.at_host == sum(&|life| life.at_host)
        && targets == sum(&|life| life.at_target.is_some())
        && drafters == sum(&|life| life.at_drafter.is_some())
}

fn lanes_hold_the_queued(core: &Core) -> bool {
    let state = core.state();
    let mut waiting: Vec<_> = state.lanes.iter().flatten().copied().collect();
    waiting.sort_unstable();
    let queued = lives(state)
        .filter(|(_, life)| life.status == Status::Queued)
        .map(|(id, _)| id);
    waiting.into_iter().eq(queued)
}

fn lanes_are_in_order(core: &Core) -> bool {
    let ticket = |id: &MicrobatchId| core.state().lives[id.index()].ticket;
    let lost = core
        .state()
        .drafters
        .iter()
        .any(|d| d.presence == Presence::Lost);
    // A lost drafter's lane is emptied into another's behind what already waits there.
    lost || core.state().lanes.iter().all(|lane| {
        lane.iter()
            .zip(lane.iter().skip(1))
            .all(|(a, b)| ticket(a) < ticket(b))
    })
}

fn hands_agree(core: &Core) -> bool {
    let state = core.state();
    let is = |id: MicrobatchId, status| state.lives[id.index()].status == status;
    state.targets.iter().all(|t| match t.task {
        TargetTask::Idle => true,
        TargetTask::Forward(id) => is(id, Status::Forwarding),
        TargetTask::Hold(id) => is(id, Status::Held),
        TargetTask::Copy(id) => is(id, Status::Staging),
    }) && state.drafters.iter().all(|d| {
        d.training.is_none_or(|id| is(id, Status::Training))
            && d.fetching.is_none_or(|id| is(id, Status::Fetching))
            && d.ready.iter().all(|&id| is(id, Status::Ready))
            && d.trained.iter().all(|&id| is(id, Status::Trained))
    })
}

fn windows_are_bounded(core: &Core) -> bool {
    let fixed = core.policy().assignment == crate::policy::Assignment::Fixed;
    let bounded = !core.plan().is_composed() && fixed;
    let most = core.grad_accum() as usize;
    !bounded
        || core
            .state()
            .drafters
            .iter()
            .all(|d| d.trained.len() <= most)
}

fn counts_in_flight(core: &Core) -> bool {
    let state = core.state();
    let begun = |s| {
        matches!(
            s,
            Status::Forwarding | Status::Staging | Status::Fetching | Status::Training
        )
    };
    let applying = state.drafters.iter().filter(|d| d.applying).count() as u32;
    let applies = match core.policy().barrier {
        crate::policy::Barrier::All => applying.min(1),
        crate::policy::Barrier::None => applying,
    };
    state.in_flight == count(state, begun) + applies
}

fn idle_lists_agree(core: &Core) -> bool {
    let state = core.state();
    let once = |list: &mut Vec<u16>| {
        let len = list.len();
        list.sort_unstable();
        list.dedup();
        list.len() == len
    };
    let idle = state.idle_targets.iter().all(|t| {
        let t = &state.targets[t.index()];
        t.presence == Presence::Present && t.task == TargetTask::Idle
    });
    idle && once(&mut state.idle_targets.iter().map(|t| t.0).collect())
        && once(&mut state.idle_drafters.iter().map(|d| d.0).collect())
        && once(&mut state.holding.iter().map(|t| t.0).collect())
}

fn steps_are_in_order(core: &Core) -> bool {
    let state = core.state();
    !core.plan().is_composed()
        || state.drafters.iter().all(|d| {
            d.trained
                .iter()
                .all(|id| core.plan().step_of[id.index()] == state.step)
        })
}
