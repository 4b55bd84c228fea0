//! The answer in sentences: which policy, how fast, in which memory, what limits it and what would help.

use super::Detailed;
use super::outlook;
use super::prospects::Prospects;
use super::quantity::{amount, count, duration, gib, gib_short, percent, plus_minus, whole};
use crate::results::bound_share;
use crate::scenario::PolicyFile;
use crate::verbs::sim::Searched;
use shared::core::Activity;
use sim::spec::Hardware;
use sim::{Bottleneck, Outcome, Part};

/// Share of the bound from which on compute, not dispatch, is what limits a run.
const NEAR_BOUND: f64 = 0.97;

/// Share of its time that the stage that binds computes, from which on the same holds for a short run.
const NEAR_BUSY: f64 = 0.93;

/// Capacities within this share of each other are in balance.
const BALANCED: f64 = 0.01;

/// The answer, a sentence or two a line: the best policy, its memory and mixing, what limits it, what would change it, what the others
/// lose to. It reads as one paragraph.
pub(crate) fn answer(
    searched: &Searched,
    best: Option<&PolicyFile>,
    prospects: Option<&Prospects>,
    detailed: &[Detailed],
) -> Vec<String> {
    let chosen = searched
        .choice
        .best
        .and_then(|row| detailed.iter().find(|detail| detail.row == row));
    let (Some(file), Some(chosen)) = (best, chosen) else {
        return vec![no_answer(searched)];
    };
    let outcome = &chosen.outcome;
    let mut lines = vec![speed(&chosen.name, file, outcome, searched)];
    lines.extend(prospects.map(|prospects| takes(outcome, file, prospects)));
    lines.push(needs(outcome, &file.hardware));
    lines.extend(mixes(outcome));
    lines.push(limit(outcome));
    lines.extend(
        prospects
            .into_iter()
            .flat_map(|found| outlook::sentences(found, file)),
    );
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

fn speed(name: &str, file: &PolicyFile, outcome: &Outcome, searched: &Searched) -> String {
    let expect = &file.expect;
    let half = (expect.throughput_ci_high - expect.throughput_ci_low) / 2.0;
    let confirmed = searched.confirmation.as_ref();
    let seeds = confirmed.map_or_else(String::new, |(_, confirmed)| {
        format!(", {}", count(confirmed.throughput.count, "fresh seed"))
    });
    format!(
        "Best policy: {name} with {} and {}, {} tok/s (95 % interval{}); the whole run reaches {} % of the bound of {} tok/s.",
        count(file.policy.targets.into(), "target"),
        count(file.policy.drafters.into(), "drafter"),
        plus_minus(expect.throughput_tok_s, half),
        seeds,
        percent(bound_share(outcome)),
        whole(expect.bound_tok_s),
    )
}

/// How long the data set takes.
fn takes(outcome: &Outcome, file: &PolicyFile, prospects: &Prospects) -> String {
    let epochs = match file.workload.epochs {
        0 | 1 => String::new(),
        epochs => format!(" over {epochs} epochs"),
    };
    format!(
        "The data set of {} ({} tokens trained{epochs}) takes {}.",
        count(outcome.metrics.ledger.planned as usize, "sample"),
        amount(outcome.metrics.tokens.0 as f64),
        duration(&prospects.makespan)
    )
}

/// Memory by place at its peak; of GPUs alike, the fullest.
fn needs(outcome: &Outcome, hardware: &Hardware) -> String {
    let peaks = &outcome.metrics.peaks;
    let in_hand = if peaks.alive_bytes > peaks.slot_bytes {
        format!(
            " ({} GiB with those in the hands of workers)",
            gib(peaks.alive_bytes.0)
        )
    } else {
        String::new()
    };
    let fullest = |parts: &[Part]| parts.iter().map(|part| part.total().0).max().unwrap_or(0);
    let memory = &outcome.memory;
    format!(
        "It needs {} with {} GiB of hidden states{in_hand}; memory peaks at {} GiB on a target GPU and {} GiB on a drafter GPU, of {} GiB each, and at {} of {} GiB on the host.",
        count(peaks.slots as usize, "HS slot"),
        gib(peaks.slot_bytes.0),
        gib_short(fullest(&memory.targets)),
        gib_short(fullest(&memory.drafters)),
        gib_short(hardware.gpu_memory.bytes().0),
        gib_short(memory.host.total().0),
        gib_short(hardware.host_memory.bytes().0),
    )
}

/// How its full optimizer steps mix lengths, if it has any.
fn mixes(outcome: &Outcome) -> Option<String> {
    let mix = &outcome.metrics.mix;
    let buckets = outcome.metrics.delays.len();
    let held = if mix.distinct_min as usize == buckets {
        format!("all {}", count(buckets, "bucket"))
    } else {
        format!(
            "at least {} of {}",
            mix.distinct_min,
            count(buckets, "bucket")
        )
    };
    (mix.full > 0).then(|| {
        format!(
            "Each full optimizer step holds {held}, at a total variation distance of {:.2} on average and {:.2} at worst.",
            mix.tv_mean, mix.tv_max
        )
    })
}

/// What limits a run and what would help.
fn limit(outcome: &Outcome) -> String {
    let busy = match outcome.bound.bottleneck() {
        Bottleneck::Targets => outcome.metrics.target_share(Activity::Busy),
        Bottleneck::Drafters => outcome.metrics.drafter_share(Activity::Busy),
        // Its workers slow each other, so that they are busy longer than their work is long.
        Bottleneck::Device => 0.0,
    };
    if bound_share(outcome) >= NEAR_BOUND || busy >= NEAR_BUSY {
        compute_limit(outcome)
    } else {
        dispatch_limit(outcome)
    }
}

fn compute_limit(outcome: &Outcome) -> String {
    let bound = &outcome.bound;
    let of_targets = bound.target_tokens_per_s();
    let of_drafters = bound.drafter_tokens_per_s();
    let (stage, other, spare) = if of_targets <= of_drafters {
        ("targets", "drafters", of_drafters / of_targets - 1.0)
    } else {
        ("drafters", "targets", of_targets / of_drafters - 1.0)
    };
    let metrics = &outcome.metrics;
    let limits = if bound.bottleneck() == Bottleneck::Device {
        "The GPUs that targets and drafters share limit it".to_owned()
    } else if spare < BALANCED {
        "Both stages are in balance, and compute limits them".to_owned()
    } else {
        format!(
            "The {stage} limit it (the {other} could do {} % more)",
            percent(spare)
        )
    };
    format!(
        "{limits}: targets are busy {} % of the time, drafters {} % (without hidden states {} %, at the barrier {} %).",
        percent(metrics.target_share(Activity::Busy)),
        percent(metrics.drafter_share(Activity::Busy)),
        percent(metrics.drafter_share(Activity::Starved)),
        percent(metrics.drafter_share(Activity::Barrier)),
    )
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
