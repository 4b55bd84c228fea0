//! A driver in forty lines of logic: an event list by (time, number), spans by stage, and faults at chosen moments.

use super::{Fault, Kind, Times, Worker};
use shared::core::{Action, Actions, Activity, Core, Event, Outcome, Presence, Stall, check};
use shared::draw::Stream;
use shared::id::{DrafterId, MicrobatchId, TargetId};
use shared::metrics::{Detail, Meter, Metrics};
use shared::record::{Encoder, Record};
use shared::time::{Span, Time};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Stalled(Stall),
}

/// A piece of work under way, with those whose loss ends it.
#[derive(Clone, Copy, Debug)]
struct Job {
    end: Event,
    target: Option<TargetId>,
    drafter: Option<DrafterId>,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Job(Job),
    Fault(Fault),
}

pub(crate) struct Driver {
    pub(crate) core: Core,
    pub(crate) records: Vec<Record>,
    pub(crate) now: Time,
    times: Times,
    always_fails: Vec<(Kind, MicrobatchId)>,
    list: BTreeMap<(Time, u64), Entry>,
    number: u64,
    actions: Actions,
    meter: Meter,
    watch: Option<fn(&Core)>,
    activities: Vec<Activity>,
}

impl Driver {
    pub(crate) fn new(core: Core, times: Times) -> Self {
        let detail = Detail {
            points: true,
            steps: true,
            timeline_steps: 3,
        };
        Self {
            meter: Meter::new(&core, detail),
            core,
            records: Vec::new(),
            now: Time::ZERO,
            times,
            always_fails: Vec::new(),
            list: BTreeMap::new(),
            number: 0,
            actions: Actions::new(),
            watch: None,
            activities: Vec::new(),
        }
    }

    pub(crate) fn at(mut self, ns: u64, fault: Fault) -> Self {
        self.push(Time::from_ns(ns), Entry::Fault(fault));
        self
    }

    pub(crate) fn failing(mut self, kind: Kind, microbatch: u32) -> Self {
        self.always_fails.push((kind, MicrobatchId(microbatch)));
        self
    }

    /// Calls `watch` with the core after every event.
    pub(crate) fn watched(mut self, watch: fn(&Core)) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Runs to the end, checking after every event.
    pub(crate) fn run(&mut self) -> End {
        self.tell(Event::Started);
        while !self.core.is_finished() {
            let is_at_work = self.list.values().any(|e| matches!(e, Entry::Job(_)));
            let stall = self.core.stall();
            assert_eq!(
                stall.is_none(),
                is_at_work,
                "a run stalls when nothing is under way, and only then: {stall:?}\n{:?}",
                self.core.state()
            );
            let Some(((at, _), entry)) = self.list.pop_first() else {
                return End::Stalled(stall.expect("nothing is under way"));
            };
            self.now = at;
            match entry {
                Entry::Job(job) => {
                    let event = self.with_outcome(job.end);
                    self.tell(event);
                }
                Entry::Fault(fault) => self.inject(fault),
            }
            assert!(self.records.len() < 200_000, "the run does not end");
        }
        self.check_end();
        End::Done
    }

    pub(crate) fn metrics(&self) -> Metrics {
        self.meter.clone().finish(&self.core)
    }

    /// The records as lines of a trace.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let mut encoder = Encoder::default();
        for record in &self.records {
            encoder.record(&mut text, record.at, &record.event, &record.actions);
        }
        text
    }

    pub(crate) fn digest(&self) -> u64 {
        let mut digest = shared::record::Digest::default();
        digest.add(self.text().as_bytes());
        digest.finish()
    }

    pub(crate) fn tell(&mut self, event: Event) {
        let mut actions = std::mem::take(&mut self.actions);
        self.core.on(self.now, event, &mut actions);
        self.records.push(Record {
            at: self.now,
            event,
            actions: actions.as_slice().to_vec(),
        });
        if let Err(broken) = check(&self.core) {
            panic!(
                "{broken}\nafter\n{}{:#?}",
                self.last_lines(),
                self.core.state()
            );
        }
        self.check_untouched();
        if let Some(watch) = self.watch {
            watch(&self.core);
        }
        self.meter
            .observe(self.now, &event, actions.as_slice(), &self.core);
        for &action in actions.as_slice() {
            self.carry_out(action);
        }
        actions.clear();
        self.actions = actions;
    }

    /// Who was not touched by the event does what it did: metrics look at nobody else.
    fn check_untouched(&mut self) {
        let core = &self.core;
        let targets = (0..core.state().targets.len()).map(TargetId::from_index);
        let drafters = (0..core.state().drafters.len()).map(DrafterId::from_index);
        let targets = targets.map(|t| {
            let is_touched = core.touched_targets().any(|touched| touched == t);
            (t.to_string(), core.target_activity(t), is_touched)
        });
        let drafters = drafters.map(|d| {
            let is_touched = core.touched_drafters().any(|touched| touched == d);
            (d.to_string(), core.drafter_activity(d), is_touched)
        });
        let mut activities = Vec::with_capacity(self.activities.len());
        for (i, (worker, activity, is_touched)) in targets.chain(drafters).enumerate() {
            let before = self.activities.get(i);
            assert!(
                is_touched || before == Some(&activity),
                "{worker} was not touched, and goes from {before:?} to {activity:?}\n{}",
                self.last_lines()
            );
            activities.push(activity);
        }
        self.activities = activities;
    }

    fn last_lines(&self) -> String {
        let text = self.text();
        let lines: Vec<_> = text.lines().collect();
        let from = lines.len().saturating_sub(40);
        lines[from..].join("\n") + "\n"
    }

    fn carry_out(&mut self, action: Action) {
        let outcome = Outcome::Done;
        let times = self.times;
        let (span, end, target, drafter) = match action {
            Action::Forward { target, microbatch } => {
                let end = Event::ForwardEnded {
                    target,
                    microbatch,
                    outcome,
                };
                let span = times.forward + self.noise(Stream::Forward, microbatch);
                (span, end, Some(target), None)
            }
            Action::Stage {
                target,
                microbatch,
                drafter,
            } => {
                let end = Event::StageEnded {
                    microbatch,
                    outcome,
                };
                (times.stage, end, Some(target), drafter)
            }
            Action::Fetch {
                drafter,
                microbatch,
                target,
            } => {
                let end = Event::FetchEnded {
                    drafter,
                    microbatch,
                    outcome,
                };
                (times.fetch, end, target, Some(drafter))
            }
            Action::Train {
                drafter,
                microbatch,
                ..
            } => {
                let end = Event::TrainEnded {
                    drafter,
                    microbatch,
                    outcome,
                };
                let span = times.train + self.noise(Stream::Train, microbatch);
                (span, end, None, Some(drafter))
            }
            Action::Apply { step, group } => {
                (times.apply, Event::StepApplied { step, group }, None, None)
            }
            Action::Wake { at } => {
                let span = (at - self.now).as_ns() + times.late;
                (span, Event::WakeDue, None, None)
            }
            Action::Admit { .. }
            | Action::Discard { .. }
            | Action::StopTarget { .. }
            | Action::StopDrafter { .. } => return,
        };
        let job = Job {
            end,
            target,
            drafter,
        };
        self.push(self.now + Span::from_ns(span), Entry::Job(job));
    }

    fn push(&mut self, at: Time, entry: Entry) {
        self.list.insert((at, self.number), entry);
        self.number += 1;
    }

    fn noise(&self, stream: Stream, microbatch: MicrobatchId) -> u64 {
        let key = self.core.plan().microbatch(microbatch).key;
        let seed = self.times.seed;
        seed.below(stream, key.into(), self.times.spread + 1)
    }

    fn with_outcome(&self, end: Event) -> Event {
        let fails = |kind, microbatch| {
            let drawn = self
                .times
                .seed
                .below(Stream::Fault, self.records.len() as u64, 1000);
            drawn < self.times.fail_permille || self.always_fails.contains(&(kind, microbatch))
        };
        match end {
            Event::ForwardEnded { microbatch, .. } if fails(Kind::Forward, microbatch) => {
                failed(end)
            }
            Event::StageEnded { microbatch, .. } if fails(Kind::Stage, microbatch) => failed(end),
            Event::FetchEnded { microbatch, .. } if fails(Kind::Fetch, microbatch) => failed(end),
            Event::TrainEnded { microbatch, .. } if fails(Kind::Train, microbatch) => failed(end),
            _ => end,
        }
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Stop => self.tell(Event::StopAsked),
            Fault::Join(Worker::Target(t)) => {
                if self.core.state().targets[usize::from(t)].presence == Presence::Lost {
                    self.tell(Event::TargetJoined(TargetId(t)));
                }
            }
            Fault::Join(Worker::Drafter(d)) => {
                let drafter = &self.core.state().drafters[usize::from(d)];
                let is_lost = drafter.presence == Presence::Lost;
                if is_lost && drafter.applying {
                    // It comes back once the step that it was part of has ended.
                    self.push(self.now + Span::from_ns(1), Entry::Fault(fault));
                } else if is_lost {
                    self.tell(Event::DrafterJoined(DrafterId(d)));
                }
            }
            Fault::Lose(worker) => self.lose(worker, false),
            Fault::LoseLate(worker) => self.lose(worker, true),
        }
    }

    fn lose(&mut self, worker: Worker, failures_first: bool) {
        let (presence, event) = match worker {
            Worker::Target(t) => (
                self.core.state().targets[usize::from(t)].presence,
                Event::TargetLost(TargetId(t)),
            ),
            Worker::Drafter(d) => (
                self.core.state().drafters[usize::from(d)].presence,
                Event::DrafterLost(DrafterId(d)),
            ),
        };
        if presence != Presence::Present {
            return;
        }
        if failures_first {
            for job in self.open_work(worker) {
                self.fail(job);
            }
        }
        if !self.core.is_finished() {
            self.tell(event);
        }
        for job in self.open_work(worker) {
            self.fail(job);
        }
        assert!(
            self.open_work(worker).is_empty(),
            "who is lost gets no new work"
        );
    }

    fn open_work(&self, worker: Worker) -> Vec<(Time, u64)> {
        let is_hit = |job: &Job| match worker {
            Worker::Target(t) => job.target == Some(TargetId(t)),
            Worker::Drafter(d) => job.drafter == Some(DrafterId(d)),
        };
        let entries = self.list.iter();
        entries
            .filter(|(_, entry)| matches!(entry, Entry::Job(job) if is_hit(job)))
            .map(|(&key, _)| key)
            .collect()
    }

    fn fail(&mut self, key: (Time, u64)) {
        if let Some(Entry::Job(job)) = self.list.remove(&key) {
            self.tell(failed(job.end));
        }
    }
}

fn failed(end: Event) -> Event {
    let outcome = Outcome::Failed;
    match end {
        Event::ForwardEnded {
            target, microbatch, ..
        } => Event::ForwardEnded {
            target,
            microbatch,
            outcome,
        },
        Event::StageEnded { microbatch, .. } => Event::StageEnded {
            microbatch,
            outcome,
        },
        Event::FetchEnded {
            drafter,
            microbatch,
            ..
        } => Event::FetchEnded {
            drafter,
            microbatch,
            outcome,
        },
        Event::TrainEnded {
            drafter,
            microbatch,
            ..
        } => Event::TrainEnded {
            drafter,
            microbatch,
            outcome,
        },
        other => other,
    }
}
