//! The timeline of a run's first optimizer steps: work as it was recorded, waiting as what lies between.

use super::quantity::count;
use super::run_figures::Shown;
use crate::figure::{Activity, Heading, StepMark, Timeline, TimelineSpan};
use shared::id::StepId;
use shared::metrics::{Interval, Work};

/// Steps shown.
const STEPS_SHOWN: usize = 3;

/// Steps to record, so that what the last step shown overlaps has ended, too.
pub(crate) const STEPS_RECORDED: u32 = STEPS_SHOWN as u32 + 2;

/// The timeline of a run that recorded [`STEPS_RECORDED`] steps.
pub(crate) fn timeline(run: &Shown<'_>, heading: impl Fn(&str, &str) -> Heading) -> Timeline {
    let names: Vec<String> = run
        .metrics
        .workers
        .iter()
        .map(|w| w.worker.clone())
        .collect();
    let bars = &run.metrics.timeline;
    let mut applied: Vec<&Interval> = bars.iter().filter(|b| b.work == Work::Apply).collect();
    applied.sort_by_key(|bar| bar.to);
    applied.truncate(STEPS_SHOWN);
    let end = applied.last().map_or(f64::INFINITY, |bar| seconds(bar).1);
    let mut spans: Vec<TimelineSpan> = Vec::new();
    for (worker, name) in names.iter().enumerate() {
        let own = |bar: &&Interval| bar.worker == *name;
        let own: Vec<&Interval> = bars.iter().filter(own).collect();
        spans.extend(own.iter().filter_map(|bar| work(worker, bar)));
        let is_target = worker < run.metrics.targets;
        spans.extend(if is_target {
            blocked(worker, &own)
        } else {
            applies_and_barriers(worker, &own, &applied)
        });
    }
    spans.retain(|span| span.start_s < end);
    for span in &mut spans {
        span.end_s = span.end_s.min(end);
    }
    let steps = count(applied.len(), "optimizer step");
    let shown = format!("policy {}, the first {steps}", run.name);
    Timeline {
        heading: heading("What the workers do", &shown),
        buckets: run.buckets.to_vec(),
        workers: names,
        spans,
        steps: applied.iter().map(|bar| mark(bar)).collect(),
    }
}

fn mark(bar: &Interval) -> StepMark {
    let number = bar.step.map_or(0, |step| step.index() + 1);
    StepMark {
        at_s: seconds(bar).1,
        label: format!("step {number}"),
    }
}

fn work(worker: usize, bar: &Interval) -> Option<TimelineSpan> {
    let bucket = bar.microbatch?.1.index();
    let activity = match bar.work {
        Work::Forward => Activity::Forward { bucket },
        Work::Train => Activity::Train { bucket },
        Work::Stage | Work::Fetch => Activity::Copy { bucket },
        Work::Apply => return None,
    };
    Some(span(worker, seconds(bar), activity))
}

/// A target between two pieces of its work waits for a slot.
fn blocked(worker: usize, own: &[&Interval]) -> Vec<TimelineSpan> {
    let mut bars = own.to_vec();
    bars.sort_by_key(|bar| bar.from);
    let mut spans = Vec::new();
    let mut free_from = 0.0_f64;
    for bar in bars {
        let (from, to) = seconds(bar);
        if from > free_from {
            spans.push(span(worker, (free_from, from), Activity::Blocked));
        }
        free_from = free_from.max(to);
    }
    spans
}

/// A drafter takes part in the steps it trained for: it waits for the others, then all apply.
fn applies_and_barriers(
    worker: usize,
    own: &[&Interval],
    applied: &[&Interval],
) -> Vec<TimelineSpan> {
    let mut spans = Vec::new();
    for apply in applied {
        let (start, end) = seconds(apply);
        if let Some(done) = last_trained(own, apply.step) {
            spans.push(span(worker, (start, end), Activity::Apply));
            if done < start {
                spans.push(span(worker, (done, start), Activity::Barrier));
            }
        }
    }
    spans
}

fn last_trained(own: &[&Interval], step: Option<StepId>) -> Option<f64> {
    own.iter()
        .filter(|bar| bar.work == Work::Train && bar.step == step)
        .map(|bar| seconds(bar).1)
        .reduce(f64::max)
}

fn span(worker: usize, (start_s, end_s): (f64, f64), activity: Activity) -> TimelineSpan {
    TimelineSpan {
        worker,
        start_s,
        end_s,
        activity,
    }
}

fn seconds(bar: &Interval) -> (f64, f64) {
    (bar.from.as_ns() as f64 / 1e9, bar.to.as_ns() as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::id::{BucketId, MicrobatchId};
    use shared::time::Time;

    fn bar(work: Work, step: Option<u32>, from: u64, to: u64) -> Interval {
        Interval {
            worker: "d0".to_owned(),
            work,
            microbatch: Some((MicrobatchId(0), BucketId(2))),
            step: step.map(StepId),
            from: Time::from_ns(from * 1_000_000_000),
            to: Time::from_ns(to * 1_000_000_000),
        }
    }

    fn shape(spans: &[TimelineSpan]) -> Vec<(Activity, f64, f64)> {
        let shape = |span: &TimelineSpan| (span.activity, span.start_s, span.end_s);
        spans.iter().map(shape).collect()
    }

    #[test]
    fn a_target_is_blocked_between_its_work() {
        let bars = [
            bar(Work::Stage, None, 4, 6),
            bar(Work::Forward, None, 0, 5),
            bar(Work::Forward, None, 9, 12),
        ];
        let spans = blocked(0, &bars.iter().collect::<Vec<_>>());
        assert_eq!(shape(&spans), [(Activity::Blocked, 6.0, 9.0)]);
    }

    #[test]
    fn a_drafter_waits_at_the_barrier_of_its_own_steps() {
        let bars = [
            bar(Work::Train, Some(0), 0, 3),
            bar(Work::Train, Some(1), 8, 9),
        ];
        let applied = [
            bar(Work::Apply, Some(0), 5, 6),
            bar(Work::Apply, Some(1), 9, 10),
            bar(Work::Apply, Some(2), 20, 21),
        ];
        let own: Vec<_> = bars.iter().collect();
        let spans = applies_and_barriers(0, &own, &applied.iter().collect::<Vec<_>>());
        assert_eq!(
            shape(&spans),
            [
                (Activity::Apply, 5.0, 6.0),
                (Activity::Barrier, 3.0, 5.0),
                (Activity::Apply, 9.0, 10.0),
            ]
        );
    }
}
