//! The answer in sentences: which policy, how fast, in which memory, what limits it and what would help.

use super::Detailed;
use super::quantity::{count, gib, percent, whole};
use crate::results::bound_share;
use crate::scenario::PolicyFile;
use crate::verbs::sim::Searched;
use shared::core::Activity;
use sim::Outcome;

/// Share of the bound from which on compute, not dispatch, is what limits a run.
const NEAR_BOUND: f64 = 0.97;

/// Share of its time that the stage that binds computes, from which on the same holds for a short run.
const NEAR_BUSY: f64 = 0.93;

/// Changes of throughput below this share are not worth a word.
const WORTH_IT: f64 = 0.01;

/// The answer, a sentence a line: the best policy, its memory and mixing, what limits it, what the others lose to.
pub(crate) fn answer(
    searched: &Searched,
    best: Option<&PolicyFile>,
    detailed: &[Detailed],
) -> Vec<String> {
    let chosen = searched
        .choice
        .best
        .and_then(|row| detailed.iter().find(|detail| detail.row == row));
    let (Some(file), Some(chosen)) = (best, chosen) else {
        return vec![no_answer(searched)];
    };
    let mut lines = vec![
        speed(&chosen.name, file, &chosen.outcome),
        needs(&chosen.outcome),
        limit(&chosen.outcome, file.policy.targets, file.policy.drafters),
    ];
    lines.extend(comparison(searched, chosen, detailed));
    lines
}

fn no_answer(searched: &Searched) -> String {
    if searched.choice.refusal().is_some() {
        return "No policy is named the best: the runs do not carry an order.".to_owned();
    }
    format!(
        "No policy qualifies: of {}, none is done and keeps the constraints of [search].",
        count(searched.rows.len(), "point")
    )
}

fn speed(name: &str, file: &PolicyFile, outcome: &Outcome) -> String {
    let expect = &file.expect;
    let half = (expect.throughput_ci_high - expect.throughput_ci_low) / 2.0;
    format!(
        "Best policy: {name} with {} and {}, {} ± {} tok/s (95 % interval on fresh seeds); the whole run, start and end included, reaches {} % of the bound of {} tok/s.",
        count(file.policy.targets.into(), "target"),
        count(file.policy.drafters.into(), "drafter"),
        whole(expect.throughput_tok_s),
        whole(half.ceil()),
        percent(bound_share(outcome)),
        whole(expect.bound_tok_s),
    )
}

fn needs(outcome: &Outcome) -> String {
    let metrics = &outcome.metrics;
    let (peaks, mix) = (&metrics.peaks, &metrics.mix);
    let in_hand = if peaks.alive_bytes > peaks.slot_bytes {
        format!(
            " ({} GiB with those in the hands of workers)",
            gib(peaks.alive_bytes.0)
        )
    } else {
        String::new()
    };
    let mut text = format!(
        "It needs {} with {} GiB of hidden states{in_hand} and {} GiB of host memory in all.",
        count(peaks.slots as usize, "HS slot"),
        gib(peaks.slot_bytes.0),
        gib(outcome.memory.host.total().0),
    );
    if mix.full > 0 {
        let buckets = metrics.delays.len();
        let held = if mix.distinct_min as usize == buckets {
            format!("all {}", count(buckets, "bucket"))
        } else {
            format!(
                "at least {} of {}",
                mix.distinct_min,
                count(buckets, "bucket")
            )
        };
        text.push_str(&format!(
            " Each full optimizer step holds {held}, at a total variation distance of {:.2} on average and {:.2} at worst.",
            mix.tv_mean,
            mix.tv_max
        ));
    }
    text
}

/// What limits a run and what would help.
fn limit(outcome: &Outcome, targets: u16, drafters: u16) -> String {
    let busy = if outcome.bound.bottleneck() == "targets" {
        outcome.metrics.target_share(Activity::Busy)
    } else {
        outcome.metrics.drafter_share(Activity::Busy)
    };
    if bound_share(outcome) >= NEAR_BOUND || busy >= NEAR_BUSY {
        compute_limit(outcome, targets, drafters)
    } else {
        dispatch_limit(outcome)
    }
}

fn compute_limit(outcome: &Outcome, targets: u16, drafters: u16) -> String {
    let bound = &outcome.bound;
    let of_targets = bound.target_tokens_per_s();
    let of_drafters = bound.drafter_tokens_per_s();
    let (stage, other, slack) = if of_targets <= of_drafters {
        ("targets", "drafters", of_drafters / of_targets - 1.0)
    } else {
        ("drafters", "targets", of_targets / of_drafters - 1.0)
    };
    let metrics = &outcome.metrics;
    let mut text = format!(
        "The {stage} limit it: targets are busy {} % of the time, drafters {} % (without hidden states {} %, at the barrier {} %).",
        percent(metrics.target_share(Activity::Busy)),
        percent(metrics.drafter_share(Activity::Busy)),
        percent(metrics.drafter_share(Activity::Starved)),
        percent(metrics.drafter_share(Activity::Barrier)),
    );
    if slack < WORTH_IT {
        text.push_str(" Both stages are in balance: only more or faster GPUs for both would help.");
        return text;
    }
    text.push_str(&format!(
        " Faster {stage} would buy up to {} %, then the {other} limit it",
        percent(slack)
    ));
    text.push_str(&moved(bound, stage, (targets, drafters)));
    text.push('.');
    text
}

/// What one GPU moved to the stage that limits would do, if capacity goes with the number of GPUs.
fn moved(bound: &sim::Bound, stage: &str, (targets, drafters): (u16, u16)) -> String {
    let (more_targets, more_drafters) = if stage == "targets" { (1, -1) } else { (-1, 1) };
    let scaled = |capacity: f64, gpus: u16, more: i32| {
        capacity * f64::from(i32::from(gpus) + more) / f64::from(gpus)
    };
    let of_targets = scaled(bound.target_tokens_per_s(), targets, more_targets);
    let of_drafters = scaled(bound.drafter_tokens_per_s(), drafters, more_drafters);
    let change = of_targets.min(of_drafters) / bound.tokens_per_s() - 1.0;
    let split = format!(
        "{} + {}",
        i32::from(targets) + more_targets,
        i32::from(drafters) + more_drafters
    );
    if change > WORTH_IT {
        format!(
            "; a split of {split} would raise the bound by about {} %",
            percent(change)
        )
    } else if change > -1.0 {
        format!(
            "; a split of {split} would not help (bound about {} %)",
            signed_percent(change)
        )
    } else {
        String::new()
    }
}

fn signed_percent(share: f64) -> String {
    format!("{:+.0}", 100.0 * share).replace('-', "−")
}

fn dispatch_limit(outcome: &Outcome) -> String {
    let metrics = &outcome.metrics;
    let copying = metrics
        .target_share(Activity::Copying)
        .max(metrics.drafter_share(Activity::Copying));
    let advice = if metrics.target_share(Activity::Starved) > 0.1 {
        "the run is so short that its start and end count most"
    } else if copying > 0.05 {
        "a faster transport, or copies that run beside compute, would help"
    } else if metrics.target_share(Activity::Blocked) > 0.05
        && metrics.drafter_share(Activity::Starved) > 0.05
    {
        "more HS slots would help"
    } else if metrics.drafter_share(Activity::Barrier) > 0.05 {
        "the barrier of the optimizer step costs most: a larger grad_accum or shared assignment evens it out"
    } else {
        "its workers are uneven, or its start and end count"
    };
    format!(
        "Dispatch limits it, not compute: targets are {}; drafters are {}; {advice}.",
        shares(outcome, Worker::Target),
        shares(outcome, Worker::Drafter)
    )
}

#[derive(Clone, Copy)]
enum Worker {
    Target,
    Drafter,
}

/// Where a stage's time goes: `busy 53.5 %, blocked 42.1 %`, shares below half a percent left out.
fn shares(outcome: &Outcome, worker: Worker) -> String {
    let share = |activity| match worker {
        Worker::Target => outcome.metrics.target_share(activity),
        Worker::Drafter => outcome.metrics.drafter_share(activity),
    };
    let parts = Activity::ALL
        .into_iter()
        .map(|activity| (activity.name(), share(activity)))
        .filter(|&(_, share)| share >= 0.005)
        .map(|(name, share)| format!("{name} {} %", percent(share)));
    parts.collect::<Vec<_>>().join(", ")
}

/// Why the first other policy is slower, if it is.
fn comparison(searched: &Searched, chosen: &Detailed, detailed: &[Detailed]) -> Option<String> {
    let speed = |detail: &Detailed| searched.rows[detail.row].throughput.mean;
    let other = detailed.iter().find(|detail| {
        detail.row != chosen.row
            && detail.outcome.end == sim::End::Done
            && speed(detail) > 0.0
            && speed(chosen) / speed(detail) > 1.05
    })?;
    Some(format!(
        "That is {:.2} times {} ({} tok/s), whose targets are {} and whose drafters are {}.",
        speed(chosen) / speed(other),
        other.name,
        whole(speed(other)),
        shares(&other.outcome, Worker::Target),
        shares(&other.outcome, Worker::Drafter)
    ))
}
