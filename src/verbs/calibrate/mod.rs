//! `dflash calibrate`: what work costs on this machine, as a file that `sim` and `exec --backend emulated` read.

mod fit;
mod measure;
mod sample;
mod write;

use crate::cli::{CalibrateArgs, EffortArgs};
use crate::failure::Failure;
use crate::output::OutputDir;
use crate::scenario::{Case, PolicyFile, cases, open};
use crate::terminal::say;
use crate::verbs::exec::backend::{Choice, choose_for};
use crate::verbs::exec::{Models, for_libraries};
use crate::verbs::sim::{plain, stop_on_signal};
use exec::backend::cuda::DeviceMemory;
use exec::calibrate::{BesideCopies, Measured, Spanned, Stage, Timed, Together};
use fit::{FitError, Overlapped, Point};
pub(crate) use measure::models_of;
use shared::id::MicrobatchId;
use shared::plan::Plan;
use shared::policy::Transport;
use shared::time::Span;
use sim::spec::{
    ByteSize, Costs, Distribution, Formula, Link, Rate, SharedRate, Sharing, StageCost,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
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

/// What one backend gave.
struct Measurement {
    measured: Measured,
    /// What its microbatches are, as [`measure::formation`] writes it.
    formation: String,
    plan: Arc<Plan>,
    /// Upper edges of the buckets. (tokens)
    edges: Vec<u32>,
    transport: Transport,
    /// Of each GPU.
    memory: Vec<DeviceMemory>,
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

/// How fast one kind of work goes beside one kind of copies.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RateBeside {
    stage: Stage,
    copies: Stage,
    transport: Transport,
    /// As a share of its speed alone.
    rate: f64,
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

impl Measurement {
    /// Times of a stage by microbatch. (ms)
    fn times(&self, list: &[Timed], stage: Stage) -> BTreeMap<MicrobatchId, Vec<f64>> {
        let mut times: BTreeMap<MicrobatchId, Vec<f64>> = BTreeMap::new();
        for timed in list.iter().filter(|timed| timed.stage == stage) {
            if let Some(id) = timed.microbatch {
                times.entry(id).or_default().push(ms(timed.span));
            }
        }
        times
    }

    /// Where copies were measured beside compute, that is what counts: so they run.
    fn list(&self, stage: Stage) -> &[Timed] {
        match stage {
            Stage::CopyOut | Stage::CopyIn => &self.measured.beside,
            Stage::Forward | Stage::Train | Stage::Apply | Stage::ApplyTogether => {
                &self.measured.alone
            }
        }
    }

    /// Formulas of forwards and trainings fitted to this measurement alone.
    fn formulas(&self) -> [Formula; 2] {
        [Stage::Forward, Stage::Train].map(|stage| fit::formula(&self.points(stage)).0)
    }

    fn points(&self, stage: Stage) -> Vec<Point> {
        let times = self.times(self.list(stage), stage);
        let ids: Vec<MicrobatchId> = times.keys().copied().collect();
        let weights = self.weights(&ids);
        let point = |(id, times): (&MicrobatchId, &Vec<f64>)| {
            let microbatch = self.plan.microbatch(*id);
            let samples = microbatch.sample_count().max(1);
            Point {
                padded: microbatch.padded.0,
                samples,
                longest: (microbatch.padded.0 / u64::from(samples)) as u32,
                ms: median(times),
                weight: weights.get(id).copied().unwrap_or(0.0).max(WEIGHT_MIN),
            }
        };
        times.iter().map(point).collect()
    }

    /// The share of the plan's microbatches that each measured one stands for: those of its bucket that come nearest to its size.
    fn weights(&self, measured: &[MicrobatchId]) -> BTreeMap<MicrobatchId, f64> {
        let mut weights = BTreeMap::new();
        let share = 1.0 / self.plan.microbatches.len().max(1) as f64;
        for microbatch in &self.plan.microbatches {
            let distance = |id: &&MicrobatchId| {
                let other = self.plan.microbatch(**id);
                let is_other = other.bucket != microbatch.bucket;
                (is_other, other.padded.0.abs_diff(microbatch.padded.0))
            };
            if let Some(nearest) = measured.iter().min_by_key(distance) {
                *weights.entry(*nearest).or_insert(0.0) += share;
            }
        }
        weights
    }

    /// What copies leave of the speed of compute; none where that is all of it.
    fn compute_rate(&self) -> Option<f64> {
        let rate = rate_beside(self.measured.beside_copies.iter());
        rate.filter(|rate| *rate < COMPUTE_RATE_TOLD).map(rounded)
    }

    /// The same for forwards and trainings beside either kind of copies.
    fn rates_beside(&self) -> Vec<RateBeside> {
        let kinds = [Stage::Forward, Stage::Train]
            .into_iter()
            .flat_map(|stage| WAYS.map(|copies| (stage, copies)));
        let rate = |(stage, copies)| {
            let all = self.measured.beside_copies.iter();
            let mine = all.filter(|b| (b.stage, b.copies) == (stage, copies));
            Some(RateBeside {
                stage,
                copies,
                transport: self.transport,
                rate: rate_beside(mine)?,
            })
        };
        kinds.filter_map(rate).collect()
    }

    /// Pieces of a forward beside a training, by what they overlapped with.
    fn overlaps(&self) -> Vec<Overlapped> {
        let alone = |stage| -> BTreeMap<MicrobatchId, f64> {
            let times = self.times(&self.measured.alone, stage).into_iter();
            times.map(|(id, times)| (id, median(&times))).collect()
        };
        let (forwards, trains) = (alone(Stage::Forward), alone(Stage::Train));
        let of = |s: &Spanned| match s.stage {
            Stage::Forward => forwards.get(&s.microbatch).copied(),
            _ => trains.get(&s.microbatch).copied(),
        };
        let spans = &self.measured.side_by_side;
        let mut overlaps = Vec::new();
        for (piece, mine) in spans.iter().enumerate() {
            for other in spans.iter().filter(|other| other.stage != mine.stage) {
                let (from, to) = (mine.from.max(other.from), mine.to.min(other.to));
                if let (true, Some(a), Some(b)) = (from < to, of(mine), of(other)) {
                    overlaps.push(Overlapped {
                        alone: a,
                        is_forward: mine.stage == Stage::Forward,
                        other: b,
                        together: ms(to - from),
                        took: ms(mine.to - mine.from),
                        piece,
                    });
                }
            }
        }
        overlaps
    }

    fn copies(&self, stage: Stage) -> Vec<(u64, f64)> {
        let times = self.times(self.list(stage), stage);
        let copy = |(id, times): (&MicrobatchId, &Vec<f64>)| {
            (self.plan.microbatch(*id).bytes.0, median(times))
        };
        times.iter().map(copy).collect()
    }

    fn by_bucket(
        &self,
        stage: Stage,
        transport: Option<Transport>,
        fitted: &dyn Fn(&Plan, MicrobatchId) -> f64,
    ) -> Vec<Measure> {
        let times = self.times(self.list(stage), stage);
        let first = self.times(&self.measured.first, stage);
        let in_bucket = |bucket: usize| {
            let mine: Vec<_> = times
                .iter()
                .filter(|(id, _)| self.plan.microbatch(**id).bucket.index() == bucket)
                .collect();
            let mean = |value: &dyn Fn(&MicrobatchId, &Vec<f64>) -> f64| {
                mine.iter().map(|(id, times)| value(id, times)).sum::<f64>() / mine.len() as f64
            };
            let relative = mine.iter().flat_map(|(_, times)| {
                let middle = median(times);
                times.iter().map(move |time| time / middle)
            });
            let all: Vec<f64> = mine
                .iter()
                .flat_map(|(_, times)| times.iter().copied())
                .collect();
            (!mine.is_empty()).then(|| Measure {
                stage,
                transport,
                bucket: self.bucket_name(bucket),
                count: all.len(),
                median: median(&all),
                spread: spread(relative),
                first: mean(&|id, _| first.get(id).map_or(0.0, |times| median(times))),
                fitted: mean(&|id, _| fitted(&self.plan, *id)),
                mean: mean(&|_, times| median(times)),
            })
        };
        (0..usize::from(self.plan.buckets))
            .filter_map(in_bucket)
            .collect()
    }

    /// A bucket by its edge, and of which buckets it is one.
    fn bucket_name(&self, bucket: usize) -> String {
        let edge = self.edges.get(bucket).copied().unwrap_or_default();
        format!("<={edge} of {}", self.edges.len())
    }
}

/// Copies out of targets, and into drafters.
const WAYS: [Stage; 2] = [Stage::CopyOut, Stage::CopyIn];

/// The speed of work beside copies, as a share of its speed alone; none where nothing was watched.
fn rate_beside<'a>(pieces: impl Iterator<Item = &'a BesideCopies>) -> Option<f64> {
    let (alone, beside) = pieces.fold((0.0, 0.0), |(alone, beside), piece| {
        (alone + ms(piece.alone), beside + ms(piece.beside))
    });
    (beside > 0.0).then(|| alone / beside)
}

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

/// A measured size counts for as much as this at least: sizes between are asked for too.
const WEIGHT_MIN: f64 = 0.01;

/// Copies that leave compute this speed or more slow nothing worth telling.
const COMPUTE_RATE_TOLD: f64 = 0.97;

/// Six digits: more would be noise.
fn rounded(x: f64) -> f64 {
    (x * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests;
