//! A run as a Trace Event file (`trace.json.gz`), as Perfetto and Chrome's tracing page open it.
//!
//! One track a worker, one a link; counters for HS slots and bytes; arrows from each forward over its copies and its training to its
//! optimizer step; a track of the steps. It is made from records alone, so a simulation and an execution look the same.

mod flows;
mod lanes;
#[cfg(test)]
mod tests;
mod writer;

use crate::scenario::PolicyFile;
use flows::Flows;
use lanes::Lanes;
use serde_json::{Value, json};
use shared::core::{Action, Activity, Core, Event, Group, Outcome};
use shared::id::{DrafterId, MicrobatchId, StepId, TargetId};
use shared::time::Time;
use std::collections::BTreeMap;
use writer::{Slice, Track, Writer};

/// Its name.
pub(crate) const TRACE_EVENTS: &str = "trace.json.gz";

/// Processes of the file: groups of tracks.
const STEPS: u32 = 1;
const WORKERS: u32 = 2;
const LINKS: u32 = 3;
const HIDDEN_STATES: u32 = 4;

/// Number of the first worker's track, apart from those of processes: viewers take equal numbers for a main thread.
const FIRST_WORKER: u32 = 100;

/// The track of optimizer steps: each lasts from the one before to its own application.
const STEP_TRACK: Track = Track {
    process: STEPS,
    thread: 10,
};

/// Work under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    Forward(MicrobatchId),
    Stage(MicrobatchId),
    Fetch(MicrobatchId),
    Train(MicrobatchId),
    Apply(DrafterId),
}

#[derive(Clone, Copy, Debug)]
struct Open {
    track: Track,
    from: Time,
    step: Option<StepId>,
}

/// Turns records into trace events, one record after the other.
pub(crate) struct TraceEvents {
    writer: Writer,
    lanes: Lanes,
    flows: Flows,
    buckets: Vec<String>,
    targets: usize,
    open: BTreeMap<Piece, Open>,
    /// What each worker does, and since when.
    now: Vec<(Activity, Time)>,
    /// Slots, alive bytes and host bytes as last written.
    counted: Option<[u64; 3]>,
    /// When the last optimizer step was applied.
    applied: Time,
    end: Time,
}

impl TraceEvents {
    /// Begins the file of a run of `file`; `buckets` are the names of its buckets, `driver` is who ran it.
    pub(crate) fn new(file: &PolicyFile, buckets: Vec<String>, driver: &str) -> Self {
        let mut writer = Writer::begin(&json!({
            "program": format!("dflash {}", env!("CARGO_PKG_VERSION")),
            "driver": driver,
            "scenario": file.name,
            "policy": file.policy.name,
            "seed": file.seed,
        }));
        writer.name_process(STEPS, "optimizer steps");
        writer.name_track(STEP_TRACK, "steps", 0);
        writer.name_process(WORKERS, "workers");
        writer.name_process(LINKS, "links");
        writer.name_process(HIDDEN_STATES, "hidden states");
        let targets = usize::from(file.policy.targets);
        let drafters = usize::from(file.policy.drafters);
        for worker in 0..targets + drafters {
            let name = if worker < targets {
                format!("{} target", TargetId::from_index(worker))
            } else {
                format!("{} drafter", DrafterId::from_index(worker - targets))
            };
            writer.name_track(worker_track(worker), &name, worker as u32);
        }
        Self {
            writer,
            lanes: Lanes::new(file),
            flows: Flows::default(),
            buckets,
            targets,
            open: BTreeMap::new(),
            now: vec![(Activity::Starved, Time::ZERO); targets + drafters],
            counted: None,
            applied: Time::ZERO,
            end: Time::ZERO,
        }
    }

    /// Takes in one record, with the core after it.
    fn observe(&mut self, at: Time, event: &Event, actions: &[Action], core: &Core) {
        self.end = at;
        self.ended(at, event, core);
        for action in actions {
            self.begun(at, action, core);
        }
        self.waits(at, core);
        self.count(at, core);
    }

    /// The compressed file, once the last record is taken in.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        for (piece, open) in std::mem::take(&mut self.open) {
            self.slice(piece, open, self.end, json!({ "unfinished": true }));
        }
        for worker in 0..self.now.len() {
            self.wait_ended(worker, self.end);
        }
        self.writer.end()
    }

    fn ended(&mut self, at: Time, event: &Event, core: &Core) {
        let (piece, outcome) = match *event {
            Event::ForwardEnded {
                microbatch,
                outcome,
                ..
            } => (Piece::Forward(microbatch), outcome),
            Event::StageEnded {
                microbatch,
                outcome,
            } => (Piece::Stage(microbatch), outcome),
            Event::FetchEnded {
                microbatch,
                outcome,
                ..
            } => (Piece::Fetch(microbatch), outcome),
            Event::TrainEnded {
                microbatch,
                outcome,
                ..
            } => (Piece::Train(microbatch), outcome),
            Event::StepApplied { step, group } => return self.apply_ended(at, step, group),
            Event::DrafterLost(drafter) => {
                self.close(Piece::Apply(drafter), at, json!({ "outcome": "lost" }));
                return self.flows.forget(self.drafter_track(drafter));
            }
            Event::Started
            | Event::WakeDue
            | Event::TargetJoined(_)
            | Event::TargetLost(_)
            | Event::DrafterJoined(_)
            | Event::StopAsked => return,
        };
        let args = match outcome {
            Outcome::Done => self.described(piece, core),
            Outcome::Failed => json!({ "outcome": "failed" }),
        };
        let Some(open) = self.close(piece, at, args) else {
            return;
        };
        if outcome == Outcome::Failed {
            return;
        }
        match piece {
            Piece::Forward(id) => self.flows.begin(id, open.track, open.from, at),
            Piece::Stage(id) | Piece::Fetch(id) => self.flows.pass(id, open.track, open.from),
            Piece::Train(id) => self.flows.trained(id, open.track, open.from, open.step),
            Piece::Apply(_) => {}
        }
    }

    /// Ends the optimizer step on the tracks that take part, with an arrow from every training to it, and closes the step.
    fn apply_ended(&mut self, at: Time, step: StepId, group: Group) {
        let drafters: Vec<DrafterId> = match group {
            Group::All => (0..self.now.len() - self.targets)
                .map(DrafterId::from_index)
                .collect(),
            Group::One(drafter) => vec![drafter],
        };
        let mut microbatches = 0;
        for drafter in drafters {
            let args = json!({ "step": step.index() });
            let applied = self.close(Piece::Apply(drafter), at, args);
            let ends = applied.map(|open| (open.track, open.from));
            let track = self.drafter_track(drafter);
            microbatches += self.flows.end(&mut self.writer, step, track, ends);
        }
        let number = step.index() + 1;
        let name = match group {
            Group::All => format!("step {number}"),
            Group::One(drafter) => format!("step {number} of {drafter}"),
        };
        self.writer.slice(&Slice {
            track: STEP_TRACK,
            category: "step",
            name: &name,
            from: self.applied,
            to: at,
            args: &json!({ "step": step.index(), "microbatches": microbatches }),
        });
        self.applied = at;
    }

    fn begun(&mut self, at: Time, action: &Action, core: &Core) {
        match *action {
            Action::Forward { target, microbatch } => {
                let track = worker_track(target.index());
                self.open(Piece::Forward(microbatch), track, at, None);
            }
            Action::Stage {
                target, microbatch, ..
            } => {
                let track = self.lanes.out_of(target, &mut self.writer);
                self.open(Piece::Stage(microbatch), track, at, None);
            }
            Action::Fetch {
                drafter,
                microbatch,
                ..
            } => {
                let track = self.lanes.toward(drafter, &mut self.writer);
                self.open(Piece::Fetch(microbatch), track, at, None);
            }
            Action::Train {
                drafter,
                microbatch,
                step,
            } => {
                let track = self.drafter_track(drafter);
                self.open(Piece::Train(microbatch), track, at, Some(step));
            }
            Action::Apply { step, .. } => {
                for (i, drafter) in core.state().drafters.iter().enumerate() {
                    let id = DrafterId::from_index(i);
                    if drafter.applying && !self.open.contains_key(&Piece::Apply(id)) {
                        let track = self.drafter_track(id);
                        self.open(Piece::Apply(id), track, at, Some(step));
                    }
                }
            }
            Action::Admit { .. }
            | Action::Discard { .. }
            | Action::Wake { .. }
            | Action::StopTarget { .. }
            | Action::StopDrafter { .. } => {}
        }
    }

    fn open(&mut self, piece: Piece, track: Track, from: Time, step: Option<StepId>) {
        self.open.insert(piece, Open { track, from, step });
    }

    fn close(&mut self, piece: Piece, to: Time, args: Value) -> Option<Open> {
        let open = self.open.remove(&piece)?;
        self.slice(piece, open, to, args);
        Some(open)
    }

    fn slice(&mut self, piece: Piece, open: Open, to: Time, args: Value) {
        if matches!(piece, Piece::Stage(_) | Piece::Fetch(_)) {
            self.lanes.free(open.track);
        }
        let bucket = args["bucket"].as_str().unwrap_or_default();
        let (category, name) = match piece {
            Piece::Forward(_) => ("compute", format!("forward {bucket}")),
            Piece::Train(_) => ("compute", format!("train {bucket}")),
            Piece::Apply(_) => ("compute", "apply".to_owned()),
            Piece::Stage(_) | Piece::Fetch(_) => ("copy", format!("copy {bucket}")),
        };
        let name = name.trim_end();
        self.writer.slice(&Slice {
            track: open.track,
            category,
            name,
            from: open.from,
            to,
            args: &args,
        });
    }

    /// What a slice is about.
    fn described(&self, piece: Piece, core: &Core) -> Value {
        let (Piece::Forward(id) | Piece::Stage(id) | Piece::Fetch(id) | Piece::Train(id)) = piece
        else {
            return Value::Null;
        };
        let microbatch = core.plan().microbatch(id);
        let bucket = self.buckets.get(microbatch.bucket.index());
        let mut args = json!({
            "microbatch": id.index(),
            "bucket": bucket.map_or("", String::as_str),
            "samples": microbatch.sample_count(),
            "tokens": microbatch.tokens.0,
            "bytes": microbatch.bytes.0,
        });
        let step = self.open.get(&piece).and_then(|open| open.step);
        if let Some(step) = step {
            args["step"] = json!(step.index());
        }
        args
    }

    /// Workers that wait show what for.
    fn waits(&mut self, at: Time, core: &Core) {
        for worker in 0..self.now.len() {
            let activity = if worker < self.targets {
                core.target_activity(TargetId::from_index(worker))
            } else {
                core.drafter_activity(DrafterId::from_index(worker - self.targets))
            };
            if activity != self.now[worker].0 {
                self.wait_ended(worker, at);
                self.now[worker] = (activity, at);
            }
        }
    }

    fn wait_ended(&mut self, worker: usize, to: Time) {
        let (activity, from) = self.now[worker];
        if activity != Activity::Busy && to > from {
            self.writer.slice(&Slice {
                track: worker_track(worker),
                category: "wait",
                name: activity.name(),
                from,
                to,
                args: &Value::Null,
            });
        }
    }

    fn count(&mut self, at: Time, core: &Core) {
        let hs = &core.state().hs;
        let counts = [u64::from(hs.slots.count), hs.alive.bytes.0, hs.at_host.0];
        if self.counted == Some(counts) {
            return;
        }
        self.counted = Some(counts);
        let [slots, alive, host] = counts;
        let count = |writer: &mut Writer, name, args| {
            writer.counter(HIDDEN_STATES, at, name, &args);
        };
        count(&mut self.writer, "HS", json!({ "slots": slots }));
        let bytes = json!({ "alive": alive, "host": host });
        count(&mut self.writer, "HS bytes", bytes);
    }

    fn drafter_track(&self, drafter: DrafterId) -> Track {
        worker_track(self.targets + drafter.index())
    }
}

impl sim::Observe for TraceEvents {
    fn record(&mut self, at: Time, event: &Event, actions: &[Action], core: &Core) {
        self.observe(at, event, actions, core);
    }
}

/// The track of a worker; targets come first.
fn worker_track(worker: usize) -> Track {
    Track {
        process: WORKERS,
        thread: worker as u32 + FIRST_WORKER,
    }
}
