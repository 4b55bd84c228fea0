//! Prepared work, shared by all points of a sweep or search that describe the same one.
//!
//! Forming microbatches and drawing what they cost takes as long as simulating them. It depends on the seed, the workload, the training
//! parameters and the costs, and not on the policy, so a sweep does it once; the plans that policies make of it are shared in [`Work`].

use crate::run::{Resolved, RunError, Work, prepare};
use crate::sweep::{Point, replicate};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

/// Made once by whoever asks first; the others wait for it.
type Shared = Arc<OnceLock<Result<Work, RunError>>>;

/// Work by what it depends on, each kept until it was asked for as often as was expected.
#[derive(Debug, Default)]
pub(crate) struct Works(Mutex<BTreeMap<String, Expected>>);

#[derive(Debug, Default)]
struct Expected {
    work: Shared,
    /// Times that it will still be asked for.
    uses: usize,
}

impl Works {
    /// Work for these replications of points, which will be asked for once each.
    pub(crate) fn expecting<'a>(runs: impl Iterator<Item = (&'a Point, u32)>) -> Self {
        let mut works: BTreeMap<String, Expected> = BTreeMap::new();
        for (point, replication) in runs {
            let resolved = replicate(&point.resolved, replication);
            works
                .entry(key(&resolved, &point.lengths))
                .or_default()
                .uses += 1;
        }
        Self(Mutex::new(works))
    }

    /// The work of `point`, whose samples have these lengths.
    pub(crate) fn get(&self, point: &Resolved, lengths: &Arc<Vec<u32>>) -> Result<Work, RunError> {
        let key = key(point, lengths);
        let shared = {
            let mut works = self.0.lock().expect("no thread panicked");
            let expected = works.entry(key.clone()).or_default();
            expected.uses = expected.uses.saturating_sub(1);
            let shared = Arc::clone(&expected.work);
            if expected.uses == 0 {
                works.remove(&key);
            }
            shared
        };
        shared.get_or_init(|| prepare(point, lengths)).clone()
    }
}

/// All that [`prepare`] reads, as text.
fn key(point: &Resolved, lengths: &Arc<Vec<u32>>) -> String {
    format!(
        "{:?}|{:?}|{:?}|{:?}|{:?}|{:p}",
        point.seed,
        point.workload,
        point.training,
        point.model.bytes_per_token(),
        point.costs,
        Arc::as_ptr(lengths)
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::run::plan;
    use shared::draw::Seed;
    use shared::policy::preset;

    pub(crate) fn point(name: &str) -> Resolved {
        let file = include_str!("../../scenarios/reference.toml");
        let table: toml::Table = toml::from_str(file).expect("a scenario");
        fn section<T: serde::de::DeserializeOwned>(table: &toml::Table, key: &str) -> T {
            table[key].clone().try_into().expect("a section")
        }
        Resolved {
            seed: Seed(1),
            workload: section(&table, "workload"),
            training: section(&table, "training"),
            model: section(&table, "model"),
            hardware: section(&table, "hardware"),
            costs: section(&table, "costs"),
            faults: Vec::new(),
            policy: preset(name).expect("a preset"),
        }
    }

    #[test]
    fn points_that_differ_in_policy_alone_share_work_and_those_that_order_alike_share_plans() {
        let lengths = Arc::new(vec![500; 3_000]);
        let (staged, bucketed, composed) =
            (point("staged-fifo"), point("bucketed"), point("composed"));
        let expected: Vec<Point> = [&staged; 9]
            .map(|resolved| Point {
                resolved: resolved.clone(),
                lengths: Arc::clone(&lengths),
            })
            .into();
        let works = Works::expecting(expected.iter().map(|point| (point, 0)));
        let work = |point: &Resolved| works.get(point, &lengths).expect("work");
        assert!(Arc::ptr_eq(
            &work(&staged).service,
            &work(&composed).service
        ));
        let of = |point: &Resolved| plan(point, &work(point)).expect("a plan");
        assert!(Arc::ptr_eq(&of(&staged), &of(&bucketed)));
        assert!(!Arc::ptr_eq(&of(&staged), &of(&composed)));
        let other = Resolved {
            seed: Seed(2),
            ..staged.clone()
        };
        assert!(!Arc::ptr_eq(&work(&staged).service, &work(&other).service));
        assert!(!Arc::ptr_eq(&of(&staged), &of(&other)));
    }

    #[test]
    fn work_is_let_go_with_the_last_run_that_needs_it() {
        let staged = Point {
            resolved: point("staged-fifo"),
            lengths: Arc::new(vec![500; 300]),
        };
        let works = Works::expecting([(&staged, 0), (&staged, 0)].into_iter());
        let get = || works.get(&staged.resolved, &staged.lengths).expect("work");
        let kept = || works.0.lock().expect("no thread panicked").len();
        let first = get();
        assert_eq!(kept(), 1);
        assert!(Arc::ptr_eq(&first.service, &get().service));
        assert_eq!(kept(), 0);
    }
}
