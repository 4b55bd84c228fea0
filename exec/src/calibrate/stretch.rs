//! Stretches of a run of one target and one drafter, watched piece by piece.

use super::bench::{Done, Lane, Task};
use super::{
    CalibrateError, Calibration, Copied, DRAFTER, MicrobatchId, Pace, Request, Span, Spanned,
    Stage, StepId, TARGET, Time, legs,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Microbatches of an optimizer step in a stretch.
const STEP: u32 = 4;

/// A microbatch on its way from the target to the drafter.
struct Course<Hidden> {
    id: MicrobatchId,
    /// The measured one whose size it has.
    like: MicrobatchId,
    hidden: Option<Arc<Hidden>>,
    /// Copies that are behind it.
    copied: usize,
    /// When what it is in was ordered.
    since: Time,
    /// Whether that counts.
    is_watched: bool,
}

/// What is watched in a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Watch {
    /// Microbatches on their way at a time.
    pub(super) in_hand: usize,
    /// Forwards and trainings.
    pub(super) computes: bool,
    /// Copies.
    pub(super) copies: bool,
}

/// Who has what in hand.
struct InHand<Hidden> {
    watch: Watch,
    /// Trainings that were watched.
    watched: u32,
    /// Since when pieces are watched, and until when.
    over: Option<(Time, Time)>,
    /// Each lane's tasks, in the order in which they will end.
    busy: BTreeMap<Lane, VecDeque<Course<Hidden>>>,
    /// When each lane has last ended something.
    ended: BTreeMap<Lane, Time>,
    /// All copies so far, and whether each is watched.
    copies: Vec<(Spanned, bool)>,
    /// What the drafter may train on.
    ready: VecDeque<Course<Hidden>>,
    /// Microbatches on their way.
    count: usize,
    trained: u32,
    is_applying: bool,
}

const FORWARDS: Lane = Lane {
    worker: TARGET,
    copies: false,
};

const TRAININGS: Lane = Lane {
    worker: DRAFTER,
    copies: false,
};

const COPIES_OUT: Lane = Lane {
    worker: TARGET,
    copies: true,
};

impl<Hidden: Send + Sync + 'static> Calibration<'_, Hidden> {
    /// Watches a stretch of a run once that has gone on for a while: a device under load is a few percent slower than one that has just
    /// begun or has pauses, and whoever does the same thing again and again finds all of it in caches.
    pub(super) fn stretch(
        &mut self,
        request: &Request,
        watch: Watch,
    ) -> Result<(), CalibrateError> {
        let began = self.bench.clock.now();
        let both = request.window + request.window;
        let mut order = request.order.iter().cycle();
        let mut hands = InHand {
            watch,
            watched: 0,
            over: None,
            busy: BTreeMap::new(),
            ended: BTreeMap::new(),
            copies: Vec::new(),
            ready: VecDeque::new(),
            count: 0,
            trained: 0,
            is_applying: false,
        };
        loop {
            self.go_on()?;
            let so_far = self.bench.since(began);
            // The first half is not watched, nor what is left on its way at the end.
            let is_over = so_far >= both && hands.watched >= request.repeats;
            let is_watched = so_far >= request.window && !is_over;
            // As in a run, a target that still copies so much out begins nothing: its memory has no room.
            let sends_off = hands.count_in(COPIES_OUT) <= usize::from(self.policy.copies_beside);
            let has_room = hands.count < watch.in_hand && hands.is_idle(FORWARDS) && sends_off;
            if has_room && !is_over {
                let &(id, like) = order.next().expect("the order is not empty");
                hands.count += 1;
                let course = Course {
                    id,
                    like,
                    hidden: None,
                    copied: 0,
                    since: self.bench.send(TARGET, Task::Forward(id)),
                    is_watched,
                };
                hands.give(FORWARDS, course);
            }
            if hands.is_idle(TRAININGS)
                && !hands.is_applying
                && let Some(mut course) = hands.ready.pop_front()
            {
                let hidden = course.hidden.take().expect("what is ready has arrived");
                course.is_watched = is_watched;
                course.since = self.bench.send(DRAFTER, Task::Train(course.id, hidden));
                hands.give(TRAININGS, course);
            }
            if hands.count == 0 && !hands.is_applying {
                break;
            }
            let done = self.bench.receive()?;
            self.ended_in_stretch(done, &mut hands);
        }
        if let Some((from, to)) = hands.over {
            self.measured.paces.push(Pace {
                elapsed: to - from,
                pieces: self.measured.alone.clone(),
            });
        }
        self.measured.copies.extend(hands.watched_copies());
        // What has been accumulated since the last step is applied.
        self.train_at(request.sample[0], 1)?;
        self.ended(DRAFTER, Task::Apply(StepId(0), 1))?;
        Ok(())
    }

    /// Notes what has ended and sends its microbatch on.
    fn ended_in_stretch(&mut self, done: Done<Hidden>, hands: &mut InHand<Hidden>) {
        let Some(mut course) = hands.busy.get_mut(&done.lane).and_then(VecDeque::pop_front) else {
            // An optimizer step is nobody's course.
            hands.is_applying = false;
            return;
        };
        let stage = match done.lane {
            FORWARDS => Some(Stage::Forward),
            TRAININGS => Some(Stage::Train),
            _ => None,
        };
        // A copy that was ordered while another was under way has waited for that.
        let before = hands.ended.insert(done.lane, done.at);
        let from = before.map_or(course.since, |before| before.max(course.since));
        match stage {
            Some(stage) if hands.watch.computes && course.is_watched => {
                self.note(stage, Some(course.like), 1, done.at - from);
                let (from, to) = hands.over.unwrap_or((course.since, done.at));
                hands.over = Some((from.min(course.since), to.max(done.at)));
            }
            None => {
                let copy = Spanned {
                    stage: legs(self.policy)[course.copied].0,
                    microbatch: course.like,
                    from,
                    to: done.at,
                };
                let is_watched = hands.watch.copies && course.is_watched;
                hands.copies.push((copy, is_watched));
            }
            _ => {}
        }
        if stage == Some(Stage::Train) {
            hands.count -= 1;
            hands.watched += u32::from(course.is_watched);
            hands.trained += 1;
            if hands.trained.is_multiple_of(STEP) {
                self.bench.send(DRAFTER, Task::Apply(StepId(0), 1));
                hands.is_applying = true;
            }
            return;
        }
        course.copied += usize::from(stage.is_none());
        let hidden = done.hidden.expect("forwards and copies make hidden states");
        match legs(self.policy).get(course.copied) {
            Some(&(_, leg)) => {
                let copy = self.copying(course.id, leg, &hidden);
                course.since = self.bench.send(leg.0, copy);
                let lane = Lane {
                    worker: leg.0,
                    copies: true,
                };
                course.hidden = Some(hidden);
                hands.give(lane, course);
            }
            None => {
                course.hidden = Some(hidden);
                hands.ready.push_back(course);
            }
        }
    }
}

impl<Hidden> InHand<Hidden> {
    fn is_idle(&self, lane: Lane) -> bool {
        self.count_in(lane) == 0
    }

    fn count_in(&self, lane: Lane) -> usize {
        self.busy.get(&lane).map_or(0, VecDeque::len)
    }

    /// The copies that were watched, each with what went the other way meanwhile, watched or not.
    fn watched_copies(&self) -> impl Iterator<Item = Copied> {
        let watched = self.copies.iter().filter(|(_, is_watched)| *is_watched);
        watched.map(|(copy, _)| Copied {
            stage: copy.stage,
            microbatch: copy.microbatch,
            span: copy.to - copy.from,
            both_ways: self
                .copies
                .iter()
                .filter(|(other, _)| other.stage != copy.stage)
                .map(|(other, _)| copy.common(other))
                .fold(Span::ZERO, |sum, span| sum + span),
        })
    }

    fn give(&mut self, lane: Lane, course: Course<Hidden>) {
        self.busy.entry(lane).or_default().push_back(course);
    }
}
