//! Service times from a recorded run: what the simulator needs to predict the same machine.

use shared::core::{Action, Event, Outcome};
use shared::id::MicrobatchId;
use shared::plan::Plan;
use shared::record::Record;
use shared::time::{Span, Time};
use sim::spec::{Costs, Distribution, Formula, StageCost};
use std::collections::BTreeMap;

/// The stages whose times are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// A target's forward.
    Forward,
    /// A drafter's forward and backward.
    Train,
    /// A copy of hidden states.
    Copy,
    /// An optimizer step.
    Apply,
}

/// One measured piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) stage: Stage,
    /// On what; none for an optimizer step.
    pub(crate) microbatch: Option<MicrobatchId>,
    pub(crate) span: Span,
}

/// First pieces of each stage that are left out: caches are cold and memory is not yet taken.
const WARM_UP: usize = 3;

/// The pieces of work in a run, from order to end.
pub(crate) fn pieces(records: &[Record]) -> Vec<Piece> {
    let mut open: BTreeMap<(Stage, u32), Time> = BTreeMap::new();
    let mut pieces = Vec::new();
    for record in records {
        let ended = match record.event {
            Event::ForwardEnded {
                microbatch,
                outcome: Outcome::Done,
                ..
            } => Some((Stage::Forward, microbatch.0)),
            Event::TrainEnded {
                microbatch,
                outcome: Outcome::Done,
                ..
            } => Some((Stage::Train, microbatch.0)),
            Event::StageEnded {
                microbatch,
                outcome: Outcome::Done,
            }
            | Event::FetchEnded {
                microbatch,
                outcome: Outcome::Done,
                ..
            } => Some((Stage::Copy, microbatch.0)),
            Event::StepApplied { step, .. } => Some((Stage::Apply, step.0)),
            _ => None,
        };
        if let Some((stage, number)) = ended
            && let Some(begun) = open.remove(&(stage, number))
        {
            let microbatch = (stage != Stage::Apply).then_some(MicrobatchId(number));
            pieces.push(Piece {
                stage,
                microbatch,
                span: record.at - begun,
            });
        }
        for action in &record.actions {
            let begun = match *action {
                Action::Forward { microbatch, .. } => (Stage::Forward, microbatch.0),
                Action::Train { microbatch, .. } => (Stage::Train, microbatch.0),
                Action::Stage { microbatch, .. } | Action::Fetch { microbatch, .. } => {
                    (Stage::Copy, microbatch.0)
                }
                Action::Apply { step, .. } => (Stage::Apply, step.0),
                _ => continue,
            };
            open.insert(begun, record.at);
        }
    }
    pieces
}

/// Costs a bucket from a recorded run of `plan`: time a padded token in each bucket, and the spread around that.
pub(crate) fn costs(records: &[Record], plan: &Plan) -> Costs {
    let pieces = pieces(records);
    let of = |stage| -> Vec<Piece> {
        pieces
            .iter()
            .copied()
            .filter(|p| p.stage == stage)
            .skip(WARM_UP)
            .collect()
    };
    let (forward, train, apply) = (of(Stage::Forward), of(Stage::Train), of(Stage::Apply));
    let (target, target_spread) = stage(&forward, plan);
    let (drafter, drafter_spread) = stage(&train, plan);
    let mean_apply: f64 = apply.iter().map(|p| ms(p.span)).sum::<f64>() / apply.len().max(1) as f64;
    Costs {
        target,
        drafter,
        step_ms: mean_apply,
        all_reduce_ms: 0.0,
        spread: target_spread.max(drafter_spread),
        distribution: Distribution::Lognormal,
    }
}

/// Mean copy speed of a recorded run, if it copied anything. (bytes/s)
pub(crate) fn copy_bytes_per_s(records: &[Record], plan: &Plan) -> Option<f64> {
    let copies = pieces(records)
        .into_iter()
        .filter(|p| p.stage == Stage::Copy)
        .skip(WARM_UP);
    let (mut bytes, mut span) = (0, Span::ZERO);
    for copy in copies {
        bytes += copy.microbatch.map_or(0, |m| plan.microbatch(m).bytes.0);
        span += copy.span;
    }
    (span > Span::ZERO).then(|| bytes as f64 / (ms(span) / 1e3))
}

/// Mean time a padded token by bucket, and the relative spread of single pieces around it.
fn stage(pieces: &[Piece], plan: &Plan) -> (StageCost, f64) {
    let buckets = usize::from(plan.buckets);
    let mut sums = vec![(0.0, 0.0); buckets + 1];
    for piece in pieces {
        let Some(microbatch) = piece.microbatch.map(|m| plan.microbatch(m)) else {
            continue;
        };
        for row in [microbatch.bucket.index(), buckets] {
            sums[row].0 += ms(piece.span);
            sums[row].1 += microbatch.padded.0 as f64;
        }
    }
    let rate = |(ms, tokens): (f64, f64)| {
        if tokens > 0.0 {
            Some(1e3 * ms / tokens)
        } else {
            None
        }
    };
    let overall = rate(sums[buckets]).unwrap_or(0.0);
    let rows: Vec<Formula> = sums[..buckets]
        .iter()
        // A bucket that did not come up costs what the others do.
        .map(|&sum| Formula {
            per_token_us: rate(sum).unwrap_or(overall),
            ..Formula::default()
        })
        .collect();
    let ratios: Vec<f64> = pieces
        .iter()
        .filter_map(|piece| {
            let microbatch = plan.microbatch(piece.microbatch?);
            let expected =
                rows[microbatch.bucket.index()].per_token_us * microbatch.padded.0 as f64;
            (expected > 0.0).then(|| 1e3 * ms(piece.span) / expected)
        })
        .collect();
    let variance =
        ratios.iter().map(|r| (r - 1.0).powi(2)).sum::<f64>() / ratios.len().max(1) as f64;
    (StageCost::Table(rows), variance.sqrt())
}

fn ms(span: Span) -> f64 {
    span.as_ns() as f64 / 1e6
}
