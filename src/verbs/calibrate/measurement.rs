//! What one backend gave, and what it says of times, copies and speeds.

use super::fit::{self, Crossed, Overlapped, Point};
use super::{Measure, WAYS, median, ms, rounded, spread};
use exec::backend::cuda::DeviceMemory;
use exec::calibrate::{BesideCopies, Copied, Measured, Spanned, Stage, Timed};
use shared::id::MicrobatchId;
use shared::load::Rest;
use shared::plan::Plan;
use shared::policy::Transport;
use shared::time::Span;
use sim::spec::Formula;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What one backend gave.
pub(super) struct Measurement {
    pub(super) measured: Measured,
    /// What its microbatches are, as [`formation`](super::measure::formation) writes it.
    pub(super) formation: String,
    pub(super) plan: Arc<Plan>,
    /// Upper edges of the buckets. (tokens)
    pub(super) edges: Vec<u32>,
    pub(super) transport: Transport,
    /// Of each GPU.
    pub(super) memory: Vec<DeviceMemory>,
}

/// How fast one kind of work goes beside one kind of copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RateBeside {
    pub(super) stage: Stage,
    pub(super) copies: Stage,
    pub(super) transport: Transport,
    /// As a share of its speed alone.
    pub(super) rate: f64,
}

impl Measurement {
    /// Times of a stage by microbatch. (ms)
    pub(super) fn times(&self, list: &[Timed], stage: Stage) -> BTreeMap<MicrobatchId, Vec<f64>> {
        let mut times: BTreeMap<MicrobatchId, Vec<f64>> = BTreeMap::new();
        for timed in list.iter().filter(|timed| timed.stage == stage) {
            if let Some(id) = timed.microbatch {
                times.entry(id).or_default().push(ms(timed.span));
            }
        }
        times
    }

    /// Median time alone by microbatch. (ms)
    fn alone(&self, stage: Stage) -> BTreeMap<MicrobatchId, f64> {
        let times = self.times(&self.measured.alone, stage).into_iter();
        times.map(|(id, times)| (id, median(&times))).collect()
    }

    /// What times of a stage are made of.
    fn list(&self, stage: Stage) -> Cow<'_, [Timed]> {
        match stage {
            Stage::CopyOut | Stage::CopyIn => Cow::Owned(self.copies_alone()),
            Stage::Forward | Stage::Train | Stage::Apply | Stage::ApplyTogether => {
                Cow::Borrowed(&self.measured.alone)
            }
        }
    }

    /// What copies would have taken, had none gone the other way meanwhile.
    fn copies_alone(&self) -> Vec<Timed> {
        let rate = self.both_ways_rate().unwrap_or(1.0);
        let alone = |copy: &Copied| Timed {
            stage: copy.stage,
            microbatch: Some(copy.microbatch),
            span: Span::from_ns(crossed(copy).alone(rate, copy.span.as_ns() as f64) as u64),
        };
        self.measured.copies.iter().map(alone).collect()
    }

    /// The speed of copies in one direction while others go in the other, as a share of their speed alone; none where that is all of it.
    pub(super) fn both_ways_rate(&self) -> Option<f64> {
        let copies = &self.measured.copies;
        let each = WAYS.map(|way| {
            let mine = copies.iter().filter(|copy| copy.stage == way);
            let per_byte = |copy: &Copied| {
                let bytes = self.plan.microbatch(copy.microbatch).bytes.0.max(1);
                (crossed(copy), ms(copy.span) / bytes as f64)
            };
            mine.map(per_byte).collect::<Vec<_>>()
        });
        fit::both_ways(&each).map(rounded)
    }

    /// Formulas of forwards and trainings fitted to this measurement alone.
    pub(super) fn formulas(&self) -> [Formula; 2] {
        [Stage::Forward, Stage::Train].map(|stage| fit::formula(&self.points(stage)).0)
    }

    pub(super) fn points(&self, stage: Stage) -> Vec<Point> {
        let times = self.times(&self.list(stage), stage);
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
    pub(super) fn weights(&self, measured: &[MicrobatchId]) -> BTreeMap<MicrobatchId, f64> {
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
    pub(super) fn compute_rate(&self) -> Option<f64> {
        let rate = rate_beside(self.measured.beside_copies.iter());
        rate.filter(|rate| *rate < COMPUTE_RATE_TOLD).map(rounded)
    }

    /// The same for forwards and trainings beside either kind of copies.
    pub(super) fn rates_beside(&self) -> Vec<RateBeside> {
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
    pub(super) fn overlaps(&self) -> Vec<Overlapped> {
        let (forwards, trains) = (self.alone(Stage::Forward), self.alone(Stage::Train));
        let of = |s: &Spanned| match s.stage {
            Stage::Forward => forwards.get(&s.microbatch).copied(),
            _ => trains.get(&s.microbatch).copied(),
        };
        let spans = &self.measured.side_by_side;
        let mut overlaps = Vec::new();
        for (piece, mine) in spans.iter().enumerate() {
            for other in spans.iter().filter(|other| other.stage != mine.stage) {
                let together = mine.common(other);
                if let (true, Some(a), Some(b)) = (together > Span::ZERO, of(mine), of(other)) {
                    overlaps.push(Overlapped {
                        alone: a,
                        is_forward: mine.stage == Stage::Forward,
                        other: b,
                        together: ms(together),
                        took: ms(mine.to - mine.from),
                        piece,
                    });
                }
            }
        }
        overlaps
    }

    /// What a kind of work gains by rests of its device; none where that was not watched or is next to nothing.
    pub(super) fn rest(&self, stage: Stage, shares_a_device: bool) -> Option<Rest> {
        let alone = self.alone(stage);
        let paces = self.measured.paces.iter();
        let mine = paces.filter(|pace| pace.pieces.iter().any(|piece| piece.stage == stage));
        let each: Vec<fit::Paced> = mine
            .map(|pace| {
                let (mut computed, mut without, mut with) = (0.0, 0.0, 0.0);
                for piece in &pace.pieces {
                    let is_mine = piece.stage == stage;
                    computed += if is_mine || shares_a_device {
                        ms(piece.span)
                    } else {
                        0.0
                    };
                    let known = piece.microbatch.filter(|_| is_mine);
                    if let Some(alone) = known.and_then(|id| alone.get(&id)) {
                        without += alone;
                        with += ms(piece.span);
                    }
                }
                fit::Paced {
                    busy: computed / ms(pace.elapsed),
                    gain: without / with,
                }
            })
            .collect();
        fit::rest(&each)
    }

    pub(super) fn copies(&self, stage: Stage) -> Vec<(u64, f64)> {
        let times = self.times(&self.list(stage), stage);
        let copy = |(id, times): (&MicrobatchId, &Vec<f64>)| {
            (self.plan.microbatch(*id).bytes.0, median(times))
        };
        times.iter().map(copy).collect()
    }

    pub(super) fn by_bucket(
        &self,
        stage: Stage,
        transport: Option<Transport>,
        fitted: &dyn Fn(&Plan, MicrobatchId) -> f64,
    ) -> Vec<Measure> {
        let times = self.times(&self.list(stage), stage);
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
        (0..usize::from(self.plan.buckets()))
            .filter_map(in_bucket)
            .collect()
    }

    /// A bucket by its edge, and of which buckets it is one.
    pub(super) fn bucket_name(&self, bucket: usize) -> String {
        let edge = self.edges.get(bucket).copied().unwrap_or_default();
        format!("<={edge} of {}", self.edges.len())
    }
}

/// How much of a copy's time another went the other way.
fn crossed(copy: &Copied) -> Crossed {
    Crossed(copy.both_ways.as_ns() as f64 / copy.span.as_ns().max(1) as f64)
}

/// The speed of work beside copies, as a share of its speed alone; none where nothing was watched.
fn rate_beside<'a>(pieces: impl Iterator<Item = &'a BesideCopies>) -> Option<f64> {
    let (alone, beside) = pieces.fold((0.0, 0.0), |(alone, beside), piece| {
        (alone + ms(piece.alone), beside + ms(piece.beside))
    });
    (beside > 0.0).then(|| alone / beside)
}

/// A measured size counts for as much as this at least: sizes between are asked for too.
const WEIGHT_MIN: f64 = 0.01;

/// Copies that leave compute this speed or more slow nothing worth telling.
const COMPUTE_RATE_TOLD: f64 = 0.97;
