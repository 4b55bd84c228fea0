//! Measuring what a scenario's policies need: one backend after another, each made as a run makes it.

use super::sample::{order, sample};
use super::{Effort, Measurement};
use crate::failure::{Failure, code};
use crate::scenario::Case;
use crate::terminal::{bar, note};
use crate::verbs::exec::backend::Choice;
use crate::verbs::exec::{Models, Ready, ready};
use exec::backend::Backend;
use exec::calibrate::{CalibrateError, Request, measure, pieces};
use shared::policy::{Barrier, DeviceMap, Policy, Transport};
use shared::time::Span;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Hidden states that are alive at a time, at most, in one place, where workers are watched beside each other.
const SLOTS: u32 = 5;

/// The same where they are not.
const SLOTS_ALONE: u32 = 3;

/// What one backend is to measure.
struct Job<'a> {
    case: &'a Case,
    /// Whether compute is measured; copies alone else.
    computes: bool,
    /// Workers beside each other.
    states: Vec<(u16, u16)>,
}

/// Measures for all cases: compute once for each way to form microbatches, copies once for each transport, and all states that workers on
/// one device can be in.
pub(super) fn measured(
    cases: &[Case],
    choice: Choice,
    gpus: Option<usize>,
    effort: &Effort,
    stop: &AtomicBool,
    models: &mut Option<Models>,
) -> Result<Vec<Measurement>, Failure> {
    let are_apart = states(cases, gpus).is_empty();
    let jobs = jobs(cases, gpus);
    let count = jobs.len();
    let mut found = Vec::new();
    for (at, job) in jobs.into_iter().enumerate() {
        let ready = ready(job.case.clone())?;
        let policy = bench_policy(cases, gpus, &ready.case.file.policy);
        note(format!(
            "measuring {}/{count}: {}, {}{}",
            at + 1,
            job.case.file.policy.name,
            transport_name(policy.transport),
            if job.computes { "" } else { " (copies)" }
        ));
        let sample = sample(&ready.plan, effort.per_bucket);
        let request = Request {
            order: order(&ready.plan, &sample),
            sample,
            repeats: effort.repeats,
            copies_only: !job.computes,
            // A host's cores have other work too: what they gain by rests would be noise.
            rests: choice != Choice::Cpu,
            in_hand: if are_apart { SLOTS_ALONE as usize } else { 1 },
            states: job.states,
            window: effort.window,
        };
        let mut memory = Vec::new();
        let measured = match choice {
            Choice::Emulated => {
                let backend = crate::verbs::exec::emulated_backend(&ready, None, None)?;
                on(&Arc::new(backend), &policy, &request, stop)?
            }
            Choice::Cpu => {
                let models = models_of(models, &ready, choice)?;
                on(&models.on_cpu(&ready, &policy)?.0, &policy, &request, stop)?
            }
            Choice::Cuda => {
                let models = models_of(models, &ready, choice)?;
                let (backend, _steps) = models.on_gpus(&ready, &policy)?;
                memory = backend.memory().to_vec();
                on(&backend, &policy, &request, stop)?
            }
        };
        found.push(Measurement {
            measured,
            formation: formation(job.case),
            plan: Arc::clone(&ready.plan),
            edges: sim::edges(&ready.case.file.workload.buckets, &ready.case.lengths)
                .map_err(Failure::usage)?
                .as_slice()
                .to_vec(),
            transport: policy.transport,
            memory,
        });
    }
    Ok(found)
}

/// Data and models, loaded where that was not done before.
pub(crate) fn models_of<'a>(
    models: &'a mut Option<Models>,
    ready: &Ready,
    choice: Choice,
) -> Result<&'a Models, Failure> {
    if models.is_none() {
        *models = Some(Models::of(ready, choice)?);
    }
    Ok(models.as_ref().expect("they were just loaded"))
}

fn on<B: Backend>(
    backend: &Arc<B>,
    policy: &Policy,
    request: &Request,
    stop: &AtomicBool,
) -> Result<exec::calibrate::Measured, Failure> {
    let progress = bar(pieces(policy, request), "measuring");
    let measured = measure(backend, policy, request, &|| progress.inc(1), stop);
    progress.finish_and_clear();
    measured.map_err(|error| match error {
        CalibrateError::Stopped => Failure::new(code::INTERRUPTED, error),
        CalibrateError::Worker { .. } => Failure::new(code::WORKER, error),
    })
}

/// The fewest backends that cover everything.
fn jobs(cases: &[Case], gpus: Option<usize>) -> Vec<Job<'_>> {
    let mut jobs: Vec<Job<'_>> = Vec::new();
    let mut formed = BTreeSet::new();
    let mut carried = BTreeSet::new();
    for case in cases {
        let transport = case.file.policy.transport;
        let computes = formed.insert(formation(case));
        let copies = transport != Transport::Local && carried.insert(transport);
        if computes || copies {
            jobs.push(Job {
                case,
                computes,
                states: Vec::new(),
            });
        }
    }
    if let Some(first) = jobs.iter_mut().find(|job| job.computes) {
        first.states = states(cases, gpus).into_iter().collect();
    }
    jobs
}

/// What makes microbatches what they are: cases that agree in it have the same ones.
pub(super) fn formation(case: &Case) -> String {
    let file = &case.file;
    format!("{:?} {:?} {:?}", file.workload, file.training, case.lengths)
}

/// Forwards and trainings that can be under way on one device in some case. `gpus` is how many there are where it is not the
/// scenario's word.
fn states(cases: &[Case], gpus: Option<usize>) -> BTreeSet<(u16, u16)> {
    let mut states = BTreeSet::new();
    for case in cases {
        let gpus = gpus.unwrap_or_else(|| usize::from(case.file.hardware.gpus));
        let map = DeviceMap::of(&case.file.policy, gpus);
        for gpu in 0..map.gpus() {
            let (targets, drafters) = map.on(gpu);
            for forwards in 0..=targets as u16 {
                for trains in 0..=drafters as u16 {
                    if forwards + trains >= 2 {
                        states.insert((forwards, trains));
                    }
                }
            }
        }
    }
    states
}

/// A policy with the workers that are measured and room for what a measurement holds: those of the largest case where workers share a
/// device; else one target and as many drafters as there are devices for, so that each is alone as in a run.
fn bench_policy(cases: &[Case], gpus: Option<usize>, of: &Policy) -> Policy {
    let most = |count: fn(&Policy) -> u16| cases.iter().map(|case| count(&case.file.policy)).max();
    let targets = most(|p| p.targets).unwrap_or(of.targets);
    let drafters = most(|p| p.drafters).unwrap_or(of.drafters);
    let are_apart = states(cases, gpus).is_empty();
    let (targets, drafters, slots) = match gpus {
        Some(gpus) if are_apart => {
            let free = u16::try_from(gpus.saturating_sub(1)).unwrap_or(u16::MAX);
            (1, drafters.min(free.max(1)), SLOTS_ALONE)
        }
        _ => (targets, drafters, SLOTS),
    };
    Policy {
        targets,
        drafters,
        barrier: Barrier::All,
        overlap: true,
        prefetch: slots as u8,
        depth_total: Some(slots),
        depth_per_bucket: None,
        depth_per_drafter: None,
        bytes_total: None,
        bytes_per_bucket: None,
        bytes_per_drafter: None,
        ..of.clone()
    }
}

/// A transport as policies write it.
pub(super) const fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::HostPageable => "host-pageable",
        Transport::HostPinned => "host-pinned",
        Transport::P2p => "p2p",
        Transport::Local => "local",
    }
}

impl Effort {
    /// As much as a few seconds give.
    pub(crate) const fn short() -> Self {
        Self {
            per_bucket: 3,
            repeats: 3,
            window: Span::from_ms(1_500),
        }
    }
}
