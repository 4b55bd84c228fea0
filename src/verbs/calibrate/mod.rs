//! `dflash calibrate`: what work costs on this machine, as a file that `sim` and `exec --backend emulated` read.

mod fit;
mod measure;
mod measurement;
mod sample;
mod unsteady;
mod write;

use crate::cli::{CalibrateArgs, EffortArgs};
use crate::failure::Failure;
use crate::output::OutputDir;
use crate::scenario::{Case, PolicyFile, cases, open};
use crate::terminal::say;
use crate::verbs::exec::backend::{Choice, choose_for};
use crate::verbs::exec::{Models, for_libraries};
use crate::verbs::sim::{plain, stop_on_signal};
use exec::calibrate::{Stage, Together};
use fit::{FitError, Point};
pub(crate) use measure::models_of;
use measurement::{Measurement, RateBeside};
use shared::id::MicrobatchId;
use shared::load::Rests;
use shared::plan::Plan;
use shared::policy::Transport;
use shared::time::Span;
use sim::spec::{
    ByteSize, Costs, Distribution, Formula, Link, Rate, SharedRate, Sharing, StageCost,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// How much is measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Effort {
    /// Microbatches of each bucket.
    pub(crate) per_bucket: usize,
    /// Times that each piece is repeated.
    pub(crate) repeats: u32,
    /// How long workers are watched beside each other.
    pub(crate) window: Span,
}

impl From<EffortArgs> for Effort {
    fn from(args: EffortArgs) -> Self {
        Self {
            per_bucket: args.per_bucket.into(),
            repeats: args.repeats,
            window: Span::from_ms(args.window_ms),
        }
    }
}

/// The measured service times of one stage and bucket.
#[derive(Clone, Debug, PartialEq)]
struct Measure {
    stage: Stage,
    transport: Option<Transport>,
    /// Buckets by their upper edges, and which; empty for work without one.
    bucket: String,
    /// Pieces.
    count: usize,
    /// (ms)
    median: f64,
    /// Standard deviation of pieces around the median of their size, as a share of it.
    spread: f64,
    /// Mean of the first pieces of each size. (ms)
    first: f64,
    /// What the fit gives on average. (ms)
    fitted: f64,
    /// Mean of measured medians. (ms)
    mean: f64,
}

/// All that was found, ready to be put into a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Calibrated {
    pub(crate) costs: Costs,
    /// The same for one formation alone: target and drafter.
    own: BTreeMap<String, [Formula; 2]>,
    /// Workers that share a device; none where each has its own.
    pub(crate) sharing: Option<Sharing>,
    /// Devices that the workers were on, where they shared some.
    gpus: Option<u16>,
    /// What work gains by rests.
    rests: Rests,
    links: BTreeMap<Transport, Link>,
    together: Vec<Together>,
    beside: Vec<RateBeside>,
    measures: Vec<Measure>,
    errors: Vec<(&'static str, FitError)>,
    free: Vec<(String, ByteSize)>,
    backend: &'static str,
}

pub(crate) fn run(args: &CalibrateArgs) -> Result<(), Failure> {
    if args.backend != crate::cli::BackendArg::Emulated {
        for_libraries()?;
    }
    let input = open(&args.files, &args.sets, args.max_points)?;
    let cases = cases(&input)?;
    let choice = choose_for(args.backend, &cases[0])?;
    let out = args.out.clone().unwrap_or_else(|| {
        PathBuf::from("reports").join(plain(&cases[0].file.name) + "-calibration")
    });
    let effort = args.effort.into();
    let found = calibrated(&cases, choice, &effort, &stop_on_signal(), &mut None)?;
    let dir = OutputDir::create(&out)?;
    let names: Vec<String> = args.files.iter().map(|f| f.display().to_string()).collect();
    found.write(&dir, &names.join(" "))?;
    for line in found.lines() {
        say(line);
    }
    let costs = out.join("costs.toml");
    say(format!("wrote {} ({})", costs.display(), found.hash()));
    say(format!(
        "`dflash sim {} {}` predicts with it",
        names.join(" "),
        costs.display()
    ));
    Ok(())
}

/// Measures for `cases` on the backend chosen; `models` are loaded if they are needed and not there yet, and stay.
pub(crate) fn calibrated(
    cases: &[Case],
    choice: Choice,
    effort: &Effort,
    stop: &AtomicBool,
    models: &mut Option<Models>,
) -> Result<Calibrated, Failure> {
    let gpus = match choice {
        // All workers share the host's cores.
        Choice::Cpu => Some(1),
        Choice::Cuda => Some(exec::cuda::Gpu::count().map_err(|error| {
            Failure::new(
                crate::failure::code::GPU,
                format!("--backend cuda: {error}"),
            )
        })?),
        Choice::Emulated => None,
    };
    let found = measure::measured(cases, choice, gpus, effort, stop, models)?;
    Ok(summed(&found, choice, gpus))
}

/// Costs from measurements.
fn summed(found: &[Measurement], choice: Choice, gpus: Option<usize>) -> Calibrated {
    let mut measures = Vec::new();
    let mut errors = Vec::new();
    let mut spreads = Vec::new();
    let mut stage = |stage: Stage| {
        let points: Vec<Point> = found.iter().flat_map(|m| m.points(stage)).collect();
        let (formula, error) = fit::formula(&points);
        errors.push((stage.name(), error));
        for measurement in found {
            let rows = measurement.by_bucket(stage, None, &|plan, id| ms_of(&formula, plan, id));
            spreads.extend(rows.iter().map(|row| row.spread));
            measures.extend(rows);
        }
        formula
    };
    let (target, drafter) = (stage(Stage::Forward), stage(Stage::Train));
    let steps = |stage: Stage| -> Vec<f64> {
        let all = found.iter().flat_map(|m| m.measured.alone.iter());
        let mine = all.filter(|timed| timed.stage == stage);
        mine.map(|timed| ms(timed.span)).collect()
    };
    let step_ms = median(&steps(Stage::Apply));
    for stage in [Stage::Apply, Stage::ApplyTogether] {
        measures.extend(step_measure(stage, &steps(stage)));
    }
    let all_reduce_ms = (median(&steps(Stage::ApplyTogether)) - step_ms).max(0.0);
    let together: Vec<Together> = found
        .iter()
        .flat_map(|m| m.measured.together.iter().copied())
        .collect();
    let rates = together.iter().map(|t| SharedRate {
        forwards: t.forwards,
        trains: t.trains,
        forward_rate: rounded(t.forward_rate.min(2.0)),
        train_rate: rounded(t.train_rate.min(2.0)),
    });
    let overlaps: Vec<_> = found.iter().flat_map(Measurement::overlaps).collect();
    let sharing = (!together.is_empty()).then(|| Sharing {
        rates: rates.collect(),
        kernel_ratio: fit::kernel_ratio(&overlaps).map(rounded),
        step_rate: step_rate(found, step_ms),
    });
    let links = links(found, gpus == Some(1), &mut measures, &mut errors);
    let spread = spreads.iter().sum::<f64>() / spreads.len().max(1) as f64;
    let gpus = sharing.as_ref().and(gpus);
    let memory = found.iter().flat_map(|m| m.memory.iter());
    let free: BTreeMap<usize, (String, ByteSize)> = memory
        .map(|m| {
            (
                m.gpu,
                (format!("GPU {} ({})", m.gpu, m.name), ByteSize(m.free.0)),
            )
        })
        .collect();
    Calibrated {
        costs: Costs {
            target: StageCost::Formula(target),
            drafter: StageCost::Formula(drafter),
            step_ms: rounded(step_ms),
            all_reduce_ms: rounded(all_reduce_ms),
            spread: rounded(spread),
            distribution: Distribution::Lognormal,
        },
        own: found
            .iter()
            .filter(|m| !m.points(Stage::Train).is_empty())
            .map(|m| (m.formation.clone(), m.formulas()))
            .collect(),
        rests: rests(found, sharing.is_some()),
        gpus: gpus.and_then(|count| u16::try_from(count).ok()),
        sharing,
        links,
        together,
        beside: found.iter().flat_map(Measurement::rates_beside).collect(),
        measures,
        errors,
        free: free.into_values().collect(),
        backend: match choice {
            Choice::Emulated => "emulated",
            Choice::Cpu => "cpu",
            Choice::Cuda => "cuda",
        },
    }
}

/// Speed of an optimizer step beside forwards, as a share of that alone, which takes `step_ms`.
fn step_rate(found: &[Measurement], step_ms: f64) -> Option<f64> {
    let all = found.iter().flat_map(|m| &m.measured.steps_beside);
    let beside: Vec<f64> = all.map(|&span| ms(span)).collect();
    // What ends between two kernels of a forward may look faster than alone.
    (step_ms > 0.0 && !beside.is_empty()).then(|| rounded((step_ms / median(&beside)).min(1.0)))
}

/// What work gains by rests, by the first measurement that says so.
fn rests(found: &[Measurement], share_a_device: bool) -> Rests {
    let of = |stage| found.iter().find_map(|m| m.rest(stage, share_a_device));
    Rests {
        forward: of(Stage::Forward),
        train: of(Stage::Train),
    }
}

/// Optimizer steps in a row of their own; none where there were none.
fn step_measure(stage: Stage, times: &[f64]) -> Option<Measure> {
    let middle = median(times);
    (!times.is_empty()).then(|| Measure {
        stage,
        transport: None,
        bucket: String::new(),
        count: times.len(),
        median: middle,
        spread: spread(times.iter().map(|x| x / middle)),
        first: middle,
        fitted: middle,
        mean: middle,
    })
}

/// A link for each transport that copied.
fn links(
    found: &[Measurement],
    is_one_device: bool,
    measures: &mut Vec<Measure>,
    errors: &mut Vec<(&'static str, FitError)>,
) -> BTreeMap<Transport, Link> {
    let mut links = BTreeMap::new();
    for measurement in found {
        let copies = WAYS.map(|stage| measurement.copies(stage));
        let fitted = fit::link([&copies[0], &copies[1]]);
        let measured = [0, 1].into_iter().filter(|&way| !copies[way].is_empty());
        for way in measured.clone() {
            errors.push((WAYS[way].name(), fitted.errors[way]));
            measures.extend(measurement.by_bucket(
                WAYS[way],
                Some(measurement.transport),
                &|plan, id| fitted.ms(way, plan.microbatch(id).bytes.0),
            ));
        }
        let mut rates = measured.filter_map(|way| Rate::new(fitted.speeds[way].round()));
        let Some(bandwidth) = rates.next() else {
            continue;
        };
        links.entry(measurement.transport).or_insert_with(|| Link {
            bandwidth,
            bandwidth_in: rates.next(),
            latency_ms: rounded(fitted.latency),
            compute_rate: measurement.compute_rate().filter(|_| is_one_device),
            shared: is_one_device,
            duplex: true,
            both_ways_rate: measurement.both_ways_rate(),
        });
    }
    links
}

impl Calibrated {
    /// Puts what was measured in place of what a case assumed. One drafter sums nothing, and a formation that was measured itself has its
    /// own formulas: those of all are a compromise.
    pub(crate) fn put_into_case(&self, case: &mut Case) {
        let own = self.own.get(&measure::formation(case));
        self.put_into(&mut case.file);
        if let Some([target, drafter]) = own {
            case.file.costs.target = StageCost::Formula(*target);
            case.file.costs.drafter = StageCost::Formula(*drafter);
        }
        if case.file.policy.drafters == 1 {
            case.file.costs.all_reduce_ms = 0.0;
        }
    }

    /// Puts what was measured in place of what the file assumed.
    pub(crate) fn put_into(&self, file: &mut PolicyFile) {
        file.costs = self.costs.clone();
        let hardware = &mut file.hardware;
        hardware.sharing.clone_from(&self.sharing);
        hardware.rests = self.rests;
        hardware.gpus = self.gpus.unwrap_or(hardware.gpus);
        for (transport, link) in &self.links {
            let place = match transport {
                Transport::HostPageable => &mut hardware.host_pageable,
                Transport::HostPinned => &mut hardware.host_pinned,
                Transport::P2p => &mut hardware.p2p,
                Transport::Local => &mut hardware.local,
            };
            *place = Some(link.clone());
        }
    }
}

/// Copies out of targets, and into drafters.
const WAYS: [Stage; 2] = [Stage::CopyOut, Stage::CopyIn];

fn ms_of(formula: &Formula, plan: &Plan, id: MicrobatchId) -> f64 {
    let microbatch = plan.microbatch(id);
    let samples = microbatch.sample_count().max(1);
    let longest = (microbatch.padded.0 / u64::from(samples)) as u32;
    formula.ms(microbatch.padded.0, samples, longest)
}

fn ms(span: Span) -> f64 {
    span.as_ns() as f64 / 1e6
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Standard deviation of ratios around 1, those beyond the double left out: the machine did something else then.
fn spread(ratios: impl Iterator<Item = f64>) -> f64 {
    let squares: Vec<f64> = ratios
        .filter(|ratio| *ratio < 2.0)
        .map(|ratio| (ratio - 1.0).powi(2))
        .collect();
    (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt()
}

/// Six digits: more would be noise.
fn rounded(x: f64) -> f64 {
    (x * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests;
