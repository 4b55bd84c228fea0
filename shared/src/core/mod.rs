//! The scheduling core: a state machine with one mutator, [`Core::on`].
//!
//! ```text
//!            target                       where HS wait              drafter
//! Pending -> Forwarding -> Held -> Staging -> Queued -> Fetching -> Ready -> Training -> Trained -> Committed
//!                 |  (block: waits for a slot)   ^ lanes of the policy's Dispatch           optimizer step
//!                 +-- slot reserved before (reserve)
//! ```
//!
//! A driver reports an [`Event`] with its time; the core believes it ([`facts`](self)), then settles: it grants slots, feeds targets, lets
//! drafters take and train, and applies optimizer steps until nothing more is legal, writing the orders into [`Actions`]. It looks only at
//! what the event has `touched`. What is legal
//! stands in `rules`, what is preferred in [`policy`](crate::policy).
//!
//! The core knows sizes and identities, no tensors. It cannot fail: bad plans and policies are refused before, failed work is an event,
//! and a broken rule is a bug that panics with the rule as its message.

mod action;
mod activity;
mod again;
mod bucket_set;
mod caps;
mod event;
mod facts;
mod finish;
mod invariant;
mod line;
mod lives;
mod memory;
mod presence;
mod rules;
mod settle;
mod sight;
mod stall;
mod state;
mod step;
mod take;
mod touched;
mod view;

use crate::draw::Seed;
use crate::id::{DrafterId, StepId, TargetId};
use crate::plan::Plan;
use crate::policy::{Dispatch, Policy, Queue};
use crate::time::Time;
use caps::Caps;
use sight::Sight;
use std::collections::BTreeSet;
use std::sync::Arc;
use touched::Touched;

pub use action::{Action, Actions};
pub use activity::Activity;
pub use bucket_set::BucketSet;
pub use caps::Most;
pub use event::{Event, Group, Outcome};
pub use invariant::check;
pub use line::Line;
pub use lives::Lives;
pub use rules::Takeable;
pub use stall::{Stall, Wait};
pub use state::{
    DrafterState, HsUse, Life, Memo, Phase, Presence, Slot, State, Status, TargetState, TargetTask,
    Use,
};

/// One run's scheduler: the plan, the policy, and what happened so far.
#[derive(Clone, Debug)]
pub struct Core {
    plan: Arc<Plan>,
    policy: Policy,
    caps: Caps,
    /// Of a composed plan.
    sight: Sight,
    /// Whether the policy knows the drafter of hidden states before anybody takes them.
    knows_drafter: bool,
    grad_accum: u32,
    seed: Seed,
    state: State,
    touched: Touched,
    most: Most,
}

impl Core {
    /// A core before its first event.
    ///
    /// The caller has had plan and policy [checked](crate::policy::check); what fails here is a bug of the caller.
    ///
    /// # Panics
    /// When there is no worker of either kind, nothing is accumulated, or the policy composes steps and the plan does not.
    pub fn new(plan: Arc<Plan>, policy: Policy, grad_accum: u32, seed: Seed) -> Self {
        assert!(
            policy.targets > 0 && policy.drafters > 0,
            "a run has workers of both kinds"
        );
        assert!(grad_accum > 0, "an optimizer step accumulates something");
        let is_composed = policy.queue == Queue::Composed;
        assert!(
            plan.microbatches.is_empty() || plan.is_composed() == is_composed,
            "composed steps are dispatched by plan, and only they are"
        );
        let state = State::new(&plan, &policy, policy.queue.lanes(&plan, &policy));
        let caps = Caps::of(&policy);
        let touched = Touched::new(state.targets.len(), state.drafters.len());
        let mut core = Self {
            sight: Sight::of(&plan, state.step),
            knows_drafter: policy.knows_drafter(),
            plan,
            policy,
            caps,
            grad_accum,
            seed,
            state,
            touched,
            most: Most::default(),
        };
        core.keep_what_is_next();
        core.deal_out_untaken();
        core.advance_cursors();
        core
    }

    /// Takes in one fact and orders what follows from it. The only mutator.
    ///
    /// Contracts, asserted here and below:
    /// 1. `now` never goes back; equal times keep the order of the calls.
    /// 2. `out` is empty on entry; the driver carries out or records all of it before the next call.
    /// 3. Every started piece of work ends exactly once, done or failed.
    /// 4. What a policy prefers must be legal.
    /// 5. A worker that is lost gets no new work; the ends of its open work are still reported, as failed, after the loss.
    #[inline(always)]
    pub fn on(&mut self, now: Time, event: Event, out: &mut Actions) {
        assert!(now >= self.state.now, "time never goes back");
        assert!(
            out.is_empty(),
            "all orders of the last event were carried out before the next"
        );
        self.state.now = now;
        self.touched.clear();
        self.take_in(event, out);
        self.settle(out);
        self.state.is_awake = false;
    }

    /// Whether every worker was told to stop.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.state.phase == Phase::Finished
    }

    /// The work.
    #[inline]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The choices.
    #[inline]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What happened so far.
    #[inline]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The most that was in slots at once.
    pub fn most(&self) -> &Most {
        &self.most
    }

    /// Microbatches a drafter accumulates in one optimizer step.
    #[inline]
    pub fn grad_accum(&self) -> u32 {
        self.grad_accum
    }

    /// The optimizer step under way.
    pub fn step(&self) -> StepId {
        self.state.step
    }
}

impl State {
    fn new(plan: &Plan, policy: &Policy, lanes: usize) -> Self {
        let targets = usize::from(policy.targets);
        let drafters = usize::from(policy.drafters);
        let total =
            u32::try_from(plan.microbatches.len()).expect("microbatches are counted in u32");
        let target = TargetState {
            presence: Presence::Present,
            task: TargetTask::Idle,
            copies_out: 0,
            begun: 0,
        };
        let drafter = DrafterState {
            presence: Presence::Present,
            training: None,
            fetching: None,
            ready: Line::default(),
            applying: false,
            listed: true,
            trained: Vec::new(),
            own_steps: 0,
            cursor: 0,
        };
        Self {
            now: Time::ZERO,
            phase: Phase::New,
            lives: Lives::new(total),
            again: BTreeSet::new(),
            next: 0,
            targets: vec![target; targets],
            idle_targets: (0..targets).map(TargetId::from_index).collect(),
            holding: Line::default(),
            lanes: vec![Line::default(); lanes],
            drafters: vec![drafter; drafters],
            idle_drafters: (0..drafters).map(DrafterId::from_index).collect(),
            waiting: 0,
            drafters_present: u32::from(policy.drafters),
            drafters_training: 0,
            drafters_applying: 0,
            hs: HsUse::new(usize::from(plan.buckets()), targets, drafters),
            untaken: total,
            untaken_of_bucket: plan.bucket_counts.clone(),
            untaken_of_drafter: vec![0; drafters],
            open: total,
            in_flight: 0,
            step: StepId(0),
            step_taken: 0,
            step_trained: 0,
            step_failed: 0,
            memo: Memo::default(),
            paused: false,
            samples_in_flight: 0,
            lagging: (0..policy.gate_lag).map(|_| 0).collect(),
            wake: None,
            is_awake: false,
            tickets: 0,
        }
    }
}
