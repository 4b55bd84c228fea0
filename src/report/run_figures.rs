//! Figures of single runs, simulated or real: slots over time, time by activity, mixing, timeline.

use crate::failure::Failure;
use crate::figure::{
    Heading, Mixing, MixingSeries, Named, SlotsOverTime, SlotsSeries, Utilisation,
    UtilisationGroup, WorkerShares, save_all,
};
use shared::core::Activity;
use shared::metrics::Metrics;
use std::path::Path;

use super::run_timeline::timeline;

/// One run as figures show it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    /// Name of the run: its policy.
    pub(crate) name: &'a str,
    /// Its numbers, with points and timeline.
    pub(crate) metrics: &'a Metrics,
    /// Names of its buckets, from the shortest.
    pub(crate) buckets: &'a [String],
    /// Its colour, by the place of its policy among all.
    pub(crate) color: usize,
    /// The most HS slots that may be in use.
    pub(crate) slots_max: Option<u32>,
}

/// Draws the figures of one run into `dir`, under the scenario and the seed of `heading`, and returns them as SVG.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn run_figures(
    dir: &Path,
    heading: &Heading,
    run: &Shown<'_>,
) -> Result<Vec<String>, Failure> {
    let headed = |title: &str, shown: &str| Heading {
        title: title.to_owned(),
        shown: shown.to_owned(),
        ..heading.clone()
    };
    let runs = [*run];
    let figures: [Named<'_>; 4] = [
        ("slots-over-time", Box::new(slots_over_time(&runs, headed))),
        ("utilisation", Box::new(utilisation(&runs, headed))),
        ("mixing", Box::new(mixing(&runs, headed))),
        ("timeline", Box::new(timeline(run, headed))),
    ];
    Ok(save_all(dir, &figures)?)
}

/// Slots in use over the whole of each run.
pub(crate) fn slots_over_time(
    runs: &[Shown<'_>],
    heading: impl Fn(&str, &str) -> Heading,
) -> SlotsOverTime {
    let series = |run: &Shown<'_>| SlotsSeries {
        name: format!(
            "{}: mean {}, peak {}",
            run.name,
            tenths(run.metrics.peaks.slots_mean(run.metrics.end())),
            run.metrics.peaks.slots
        ),
        points: run
            .metrics
            .points
            .iter()
            .map(|point| (point.at.as_ns() as f64 / 1e9, f64::from(point.slots)))
            .collect(),
        cap: run.slots_max.map(f64::from),
        color: run.color,
    };
    SlotsOverTime {
        heading: heading(
            "HS slots over time",
            "from grant to release; the line is a sample of the run, the peak is that of all of it",
        ),
        series: runs.iter().map(series).collect(),
    }
}

/// One decimal, and a second one below 1.
fn tenths(value: f64) -> String {
    if value < 0.995 {
        format!("{value:.2}")
    } else {
        format!("{value:.1}")
    }
}

/// What each worker of each run spent its time on.
pub(crate) fn utilisation(
    runs: &[Shown<'_>],
    heading: impl Fn(&str, &str) -> Heading,
) -> Utilisation {
    let worker = |shares: &shared::metrics::WorkerShares| WorkerShares {
        worker: shares.worker.clone(),
        busy: shares.share(Activity::Busy),
        copying: shares.share(Activity::Copying),
        blocked: shares.share(Activity::Blocked),
        starved: shares.share(Activity::Starved),
        barrier: shares.share(Activity::Barrier),
    };
    let group = |run: &Shown<'_>| UtilisationGroup {
        policy: run.name.to_owned(),
        workers: run.metrics.workers.iter().map(worker).collect(),
    };
    Utilisation {
        heading: heading(
            "What the workers spend their time on",
            "t: targets, d: drafters; whole run, filling and draining included",
        ),
        groups: runs.iter().map(group).collect(),
    }
}

/// How the full optimizer steps of each run mix lengths.
pub(crate) fn mixing(runs: &[Shown<'_>], heading: impl Fn(&str, &str) -> Heading) -> Mixing {
    let series = |run: &Shown<'_>| {
        let full: Vec<_> = run
            .metrics
            .step_mixes
            .iter()
            .filter(|s| s.is_full)
            .collect();
        // Without a full step there is nothing to show.
        let most = if full.is_empty() {
            0
        } else {
            run.buckets.len()
        };
        let mut share_by_distinct = vec![0.0; most];
        for step in &full {
            let place = (step.distinct as usize).clamp(1, most.max(1)) - 1;
            if let Some(share) = share_by_distinct.get_mut(place) {
                *share += 1.0 / full.len() as f64;
            }
        }
        MixingSeries {
            policy: run.name.to_owned(),
            color: run.color,
            tv: full.iter().map(|step| step.tv).collect(),
            share_by_distinct,
        }
    };
    Mixing {
        heading: heading(
            "How optimizer steps mix lengths",
            "full steps: their bucket mix against the data's",
        ),
        policies: runs.iter().map(series).collect(),
    }
}
