//! What must hold of every run that ended, read off its records alone where that is possible.

use super::{Driver, Worker};
use shared::core::{Action, Event, Group, Outcome, Presence};
use shared::id::DrafterId;
use shared::time::Time;

impl Driver {
    /// What must hold of every finished run, whatever happened.
    pub(super) fn check_end(&self) {
        let state = self.core.state();
        let hs = &state.hs;
        assert_eq!(
            (hs.slots.count, hs.alive.count),
            (0, 0),
            "nothing is left over"
        );
        assert_eq!(state.in_flight, 0, "everything under way came home");
        assert!(state.holding.is_empty() && state.lanes.iter().all(|lane| lane.is_empty()));
        let mut stopped = Vec::new();
        for action in self.records.iter().flat_map(|r| &r.actions) {
            match *action {
                Action::StopTarget { target } => stopped.push(Worker::Target(target.0)),
                Action::StopDrafter { drafter } => stopped.push(Worker::Drafter(drafter.0)),
                _ => {}
            }
        }
        let targets =
            (0..state.targets.len()).filter(|&t| state.targets[t].presence != Presence::Lost);
        let drafters =
            (0..state.drafters.len()).filter(|&d| state.drafters[d].presence != Presence::Lost);
        let expected: Vec<_> = targets
            .map(|t| Worker::Target(t as u16))
            .chain(drafters.map(|d| Worker::Drafter(d as u16)))
            .collect();
        assert_eq!(
            stopped, expected,
            "each worker that is there is told to stop once"
        );
        self.check_training();
    }

    /// Replays the orders alone: what is committed was trained in the step that committed it, once.
    fn check_training(&self) {
        let drafters = self.core.state().drafters.len();
        let mut trained = vec![Vec::new(); drafters];
        let mut commits = vec![0_u32; self.core.plan().microbatches.len()];
        for record in &self.records {
            match record.event {
                Event::TrainEnded {
                    drafter,
                    microbatch,
                    outcome: Outcome::Done,
                } => trained[drafter.index()].push(microbatch),
                Event::DrafterLost(drafter) if !self.is_applying(record.at, drafter) => {
                    trained[drafter.index()].clear();
                }
                Event::StepApplied { group, .. } => {
                    for (d, done) in trained.iter_mut().enumerate() {
                        if group == Group::All || group == Group::One(DrafterId::from_index(d)) {
                            done.drain(..).for_each(|id| commits[id.index()] += 1);
                        }
                    }
                }
                _ => {}
            }
        }
        for (id, (status, &commits)) in self.core.state().lives.statuses().zip(&commits).enumerate()
        {
            let expected = u32::from(status == shared::core::Status::Committed);
            assert_eq!(
                commits, expected,
                "m{id} is trained on exactly once or listed: {status:?}"
            );
        }
    }

    /// Whether a step of a drafter was being applied when it was lost.
    fn is_applying(&self, at: Time, drafter: DrafterId) -> bool {
        let mut applying = false;
        for record in &self.records {
            let is_mine = |group| group == Group::All || group == Group::One(drafter);
            match record.event {
                Event::StepApplied { group, .. } if is_mine(group) => applying = false,
                Event::DrafterLost(lost) if lost == drafter && record.at == at => return applying,
                _ => {}
            }
            for action in &record.actions {
                if matches!(*action, Action::Apply { group, .. } if is_mine(group)) {
                    applying = true;
                }
            }
        }
        applying
    }
}
