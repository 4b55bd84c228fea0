//! Recorded events fed to a core again, up to the first thing that differs.
//!
//! It cannot go wrong before that: while all orders were equal and meant the same microbatches, the core has seen a history it
//! ordered itself. Still, equal orders can leave another policy in another state, and a forged trace can hold events that nothing
//! led to. So each event is checked for [possibility](super::possible) before the core sees it; the core never panics on a trace.

use super::possible::impossible;
use super::recorded::Recorded;
use crate::scenario::PolicyFile;
use shared::core::{Action, Actions, Core, Stall};
use shared::draw::Seed;
use shared::id::MicrobatchId;
use shared::metrics::{Detail, Meter, Metrics};
use shared::plan::Plan;
use shared::record::{Encoder, Record};
use sim::Observe;
use std::fmt;
use std::sync::Arc;

/// What all records of a trace amount to.
#[derive(Debug)]
pub(crate) struct Retraced {
    /// Every number of the run.
    pub(crate) metrics: Metrics,
    /// Whether the records lead to the end of the run.
    pub(crate) is_finished: bool,
    /// Why the run could not go on after the last record, if it could not.
    pub(crate) stall: Option<Stall>,
}

/// The first record that the core does not confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Divergence {
    /// Its number, from 0.
    pub(crate) index: usize,
    /// As it was recorded.
    recorded: Record,
    /// What is different.
    difference: Difference,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Difference {
    /// The core orders this instead.
    Orders(Vec<Action>),
    /// The orders read the same and mean another microbatch.
    Work(String),
    /// The event cannot happen after what the core ordered.
    Event(&'static str),
}

/// Feeds the records to a core of `file` and `plan`; compares every order, and the microbatches it names where the plan is another.
///
/// # Errors
/// The first divergence.
pub(crate) fn retrace(
    recorded: &Recorded,
    file: &PolicyFile,
    plan: &Arc<Plan>,
    detail: Detail,
) -> Result<Retraced, Box<Divergence>> {
    retrace_watched(recorded, file, plan, detail, &mut sim::Nobody)
}

/// As [`retrace`]; `observer` sees every record that the core confirms, with the core after it.
///
/// # Errors
/// The first divergence.
pub(crate) fn retrace_watched(
    recorded: &Recorded,
    file: &PolicyFile,
    plan: &Arc<Plan>,
    detail: Detail,
    observer: &mut impl Observe,
) -> Result<Retraced, Box<Divergence>> {
    let grad_accum = file.training.grad_accum;
    let mut core = Core::new(
        Arc::clone(plan),
        file.policy.clone(),
        grad_accum,
        Seed(file.seed),
    );
    let mut meter = Meter::new(&core, detail);
    let mut actions = Actions::new();
    for (index, record) in recorded.records.iter().enumerate() {
        let diverges = |difference| {
            Box::new(Divergence {
                index,
                recorded: record.clone(),
                difference,
            })
        };
        if let Some(reason) = impossible(&core, record.at, &record.event) {
            return Err(diverges(Difference::Event(reason)));
        }
        core.on(record.at, record.event, &mut actions);
        if actions.as_slice() != record.actions {
            let replayed = actions.as_slice().to_vec();
            return Err(diverges(Difference::Orders(replayed)));
        }
        if let Some(work) = other_work(&recorded.plan, plan, &record.actions) {
            return Err(diverges(Difference::Work(work)));
        }
        meter.observe(record.at, &record.event, actions.as_slice(), &core);
        observer.record(record.at, &record.event, actions.as_slice(), &core);
        actions.clear();
    }
    Ok(Retraced {
        is_finished: core.is_finished(),
        stall: core.stall(),
        metrics: meter.finish(&core),
    })
}

/// The first microbatch of these orders that is another in the two plans: rows of a plan read the same whatever they hold.
fn other_work(recorded: &Arc<Plan>, replayed: &Arc<Plan>, actions: &[Action]) -> Option<String> {
    if Arc::ptr_eq(recorded, replayed) {
        return None;
    }
    let described = |plan: &Plan, id: MicrobatchId| {
        let microbatch = plan.microbatches.get(id.index())?;
        Some((microbatch.clone(), plan.samples_of(id).to_vec()))
    };
    let id = actions
        .iter()
        .filter_map(microbatch_of)
        .find(|&id| described(recorded, id) != described(replayed, id))?;
    let shown = |plan: &Plan| match described(plan, id) {
        None => "nothing".to_owned(),
        Some((microbatch, samples)) => {
            let first: Vec<_> = samples.iter().take(3).map(ToString::to_string).collect();
            format!(
                "bucket {}, {} samples ({}, ...), {}",
                microbatch.bucket,
                microbatch.sample_count(),
                first.join(", "),
                microbatch.tokens
            )
        }
    };
    Some(format!(
        "{id} is {} when recorded and {} when replayed",
        shown(recorded),
        shown(replayed)
    ))
}

fn microbatch_of(action: &Action) -> Option<MicrobatchId> {
    match *action {
        Action::Forward { microbatch, .. }
        | Action::Admit { microbatch }
        | Action::Stage { microbatch, .. }
        | Action::Fetch { microbatch, .. }
        | Action::Train { microbatch, .. }
        | Action::Discard { microbatch } => Some(microbatch),
        Action::Apply { .. }
        | Action::Wake { .. }
        | Action::StopTarget { .. }
        | Action::StopDrafter { .. } => None,
    }
}

/// A record as its trace writes it.
pub(crate) fn line(record: &Record) -> String {
    let mut text = String::new();
    Encoder::default().record(&mut text, record.at, &record.event, &record.actions);
    text.trim_end().to_owned()
}

impl fmt::Display for Divergence {
    /// One line, then the record as written and what is different now.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, at) = (self.index, self.recorded.at);
        writeln!(f, "diverges at record {index}, {at} into the run")?;
        writeln!(f, "  recorded: {}", line(&self.recorded))?;
        match &self.difference {
            Difference::Orders(actions) => {
                let replayed = Record {
                    actions: actions.clone(),
                    ..self.recorded.clone()
                };
                write!(f, "  replayed: {}", line(&replayed))
            }
            Difference::Work(work) => write!(f, "  the orders mean other work: {work}"),
            Difference::Event(reason) => write!(f, "  replayed: cannot happen here: {reason}"),
        }
    }
}
