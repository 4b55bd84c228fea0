//! Service times by stage and bucket, from a run's timeline.

use shared::core::{Event, Outcome};
use shared::id::{BucketId, MicrobatchId};
use shared::metrics::{Interval, Work};
use shared::record::Record;
use shared::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// A stage, and the bucket of its work where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind(Work, Option<BucketId>);

/// Pieces of work and the time from order to end, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::verbs) struct Service {
    pub(in crate::verbs) count: u32,
    /// (ns)
    pub(super) sum: u64,
}

impl Kind {
    /// The stage's name in tables.
    pub(super) fn stage(self) -> &'static str {
        match self.0 {
            Work::Forward => "target forward",
            Work::Stage => "copy out",
            Work::Fetch => "copy in",
            Work::Train => "drafter train",
            Work::Apply => "optimizer step",
        }
    }

    /// The bucket's name by its upper edge; empty where work has no bucket.
    pub(super) fn bucket(self, edges: &[u32]) -> String {
        let edge = self.1.and_then(|bucket| edges.get(bucket.index()));
        edge.map(|edge| format!("<={edge}")).unwrap_or_default()
    }
}

impl Service {
    /// Mean time of one piece. (ms)
    pub(in crate::verbs) fn mean_ms(self) -> f64 {
        self.sum as f64 / f64::from(self.count.max(1)) / 1e6
    }
}

/// The work of a run by kind; what failed is left out.
pub(super) fn services(timeline: &[Interval], records: &[Record]) -> BTreeMap<Kind, Service> {
    let failed: BTreeSet<_> = records.iter().filter_map(failure).collect();
    let mut services = BTreeMap::<Kind, Service>::new();
    for bar in timeline {
        let id = bar.microbatch.map(|(id, _)| id);
        if id.is_some_and(|id| failed.contains(&(bar.work, id, bar.to))) {
            continue;
        }
        let kind = Kind(bar.work, bar.microbatch.map(|(_, bucket)| bucket));
        let service = services.entry(kind).or_default();
        service.count += 1;
        service.sum += (bar.to - bar.from).as_ns();
    }
    services
}

fn failure(record: &Record) -> Option<(Work, MicrobatchId, Time)> {
    let (work, microbatch, outcome) = match record.event {
        Event::ForwardEnded {
            microbatch,
            outcome,
            ..
        } => (Work::Forward, microbatch, outcome),
        Event::StageEnded {
            microbatch,
            outcome,
        } => (Work::Stage, microbatch, outcome),
        Event::FetchEnded {
            microbatch,
            outcome,
            ..
        } => (Work::Fetch, microbatch, outcome),
        Event::TrainEnded {
            microbatch,
            outcome,
            ..
        } => (Work::Train, microbatch, outcome),
        _ => return None,
    };
    (outcome == Outcome::Failed).then_some((work, microbatch, record.at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::id::TargetId;

    fn bar(id: u32, to: u64) -> Interval {
        Interval {
            worker: "t0".into(),
            work: Work::Forward,
            microbatch: Some((MicrobatchId(id), BucketId(1))),
            step: None,
            from: Time::from_ns(1_000_000),
            to: Time::from_ns(to),
        }
    }

    #[test]
    fn times_are_averaged_and_failures_left_out() {
        let failed = Record {
            at: Time::from_ns(9_000_000),
            event: Event::ForwardEnded {
                target: TargetId(0),
                microbatch: MicrobatchId(2),
                outcome: Outcome::Failed,
            },
            actions: Vec::new(),
        };
        let bars = [bar(0, 3_000_000), bar(1, 5_000_000), bar(2, 9_000_000)];
        let services = services(&bars, &[failed]);
        let (kind, service) = services.first_key_value().unwrap();
        assert_eq!(services.len(), 1);
        assert_eq!((service.count, service.mean_ms()), (2, 3.0));
        assert_eq!(
            (kind.stage(), kind.bucket(&[512, 1024])),
            ("target forward", "<=1024".to_owned())
        );
    }
}
