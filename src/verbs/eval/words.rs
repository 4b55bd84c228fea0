//! What the terminal says before and after.

use super::measure::{Difference, Measured};
use super::setup::{Kind, Setup};
use super::sums::{Sum, sum};
use crate::report::quantity::{count, percent, whole};
use sim::Estimate;

/// What will be decoded.
pub(super) fn opening(setup: &Setup) -> String {
    let names: Vec<&str> = setup.drafters.iter().map(|d| d.name.as_str()).collect();
    let left_out = match (setup.source.too_long, setup.source.repeated) {
        (0, 0) => String::new(),
        (long, repeated) => format!(" ({long} too long and {repeated} repeated are left out)"),
    };
    format!(
        "{}: {} of {}{left_out}, answers of at most {} tokens, {} drafts a round: {}",
        setup.file.name,
        count(setup.prompts.len(), "prompt"),
        setup.source.name,
        setup.limits.new_tokens_max,
        setup.slots,
        names.join(", ")
    )
}

/// The drafter the answer is about: the newest checkpoint.
pub(super) fn newest(setup: &Setup) -> usize {
    let is_trained = |kind: &Kind| matches!(kind, Kind::Trained { .. });
    let last = setup.drafters.iter().rposition(|d| is_trained(&d.kind));
    last.expect("there is at least one checkpoint")
}

/// The answer, a sentence a line.
pub(super) fn answer(setup: &Setup, measured: &Measured) -> Vec<String> {
    let newest = newest(setup);
    let sums: Vec<Sum> = (0..setup.drafters.len())
        .map(|index| sum(measured, index, setup.slots, &setup.edges))
        .collect();
    let trained = &sums[newest];
    if trained.tally.rounds == 0 {
        return vec![
            "Every answer ended with its first token, so nothing was drafted; give other prompts or raise --max-new-tokens.".to_owned(),
        ];
    }
    let mut lines = vec![
        length(setup, &sums, newest),
        slots(trained),
        identity(setup, measured, newest),
    ];
    lines.extend(over_training(setup, &sums));
    lines.extend(over_length(trained));
    lines.extend(held_out_loss(setup, measured, newest));
    lines
}

fn length(setup: &Setup, sums: &[Sum], newest: usize) -> String {
    let drafter = match &setup.drafters[newest].kind {
        Kind::Trained {
            step: Some(step), ..
        } => format!("the drafter of step {step}"),
        _ => "the drafter".to_owned(),
    };
    let others = setup.drafters.iter().zip(sums).filter_map(|(named, sum)| {
        let what = match named.kind {
            Kind::Trained { .. } => return None,
            Kind::Untrained(_) => "untrained",
            Kind::Ngram => "from n-grams",
        };
        Some(format!("{:.2} {what}", sum.length.mean))
    });
    let others: Vec<String> = others.collect();
    format!(
        "Acceptance length: {} tokens a target forward with {drafter} (95 % interval over {}), against {} and 1 for the target alone.",
        with_interval(&sums[newest].length),
        count(sums[newest].length.count, "prompt"),
        others.join(", ")
    )
}

/// `2.31 ± 0.12`.
pub(super) fn with_interval(estimate: &Estimate) -> String {
    match estimate.count {
        0 => "–".to_owned(),
        1 => format!("{:.2}", estimate.mean),
        _ => format!("{:.2} ± {:.2}", estimate.mean, estimate.half_width),
    }
}

fn slots(trained: &Sum) -> String {
    let tally = &trained.tally;
    let share = |slot: usize| format!("{} %", percent(tally.slots[slot].cumulative()));
    let last = tally.slots.len() - 1;
    let mut shown = vec![format!("the first in {} of the rounds", share(0))];
    if last > 2 {
        shown.push(format!(
            "up to slot {} in {}",
            last / 2 + 1,
            share(last / 2)
        ));
    }
    if last > 0 && tally.slots[last].decided > 0 {
        shown.push(format!("whole blocks of {} in {}", last + 1, share(last)));
    }
    format!("Drafts are accepted: {}.", shown.join(", "))
}

fn identity(setup: &Setup, measured: &Measured, newest: usize) -> String {
    let prompts = &measured.prompts;
    let tokens: usize = prompts.iter().map(|prompt| prompt.answer).sum();
    let real: Vec<usize> = (0..setup.drafters.len())
        .filter(|&index| setup.drafters[index].is_real)
        .collect();
    let asked = format!(
        "{} ({} tokens)",
        count(prompts.len(), "answer"),
        whole(tokens as f64)
    );
    if real.is_empty() {
        return format!(
            "Drafts were judged by the target's own {asked}, recorded once: the counts are those of real decoding, whose identity was not tested (--verify newest does)."
        );
    }
    let differences: Vec<Difference> = prompts
        .iter()
        .flat_map(|prompt| {
            real.iter()
                .filter_map(|&index| prompt.drafted[index].difference)
        })
        .collect();
    let decoded = match real[..] {
        [one] if one == newest => "Decoded with the target itself".to_owned(),
        _ => format!("Decoded with the target itself by {} drafters", real.len()),
    };
    match measured.worst_difference() {
        None => format!("{decoded}, all {asked} are the target's own, token by token."),
        Some((_, worst)) => format!(
            "{decoded}, {} of {asked} leave the target's own at a near tie: its two best logits lay at most {:.1e} apart there.",
            differences.len(),
            worst.gap
        ),
    }
}

fn over_training(setup: &Setup, sums: &[Sum]) -> Option<String> {
    let steps = setup.drafters.iter().zip(sums).filter_map(|(named, sum)| {
        let Kind::Trained { step, .. } = &named.kind else {
            return None;
        };
        let step = step.map_or_else(|| named.name.clone(), |step| step.to_string());
        Some(format!("{:.2} at {step}", sum.length.mean))
    });
    let steps: Vec<String> = steps.collect();
    (steps.len() > 1).then(|| format!("Over training, by step: {}.", steps.join(", ")))
}

fn over_length(trained: &Sum) -> Option<String> {
    let bucket = |bucket: &super::sums::Bucket| {
        format!(
            "{} at {} tokens",
            with_interval(&bucket.length),
            bucket.name()
        )
    };
    let shown: Vec<String> = trained.by_length.iter().map(bucket).collect();
    (shown.len() > 1).then(|| format!("By length of prompt and answer: {}.", shown.join(", ")))
}

fn held_out_loss(setup: &Setup, measured: &Measured, newest: usize) -> Option<String> {
    let mean = |index: usize| Some(measured.losses.get(index)?.as_ref()?[0].1.mean());
    let is_untrained = |kind: &Kind| matches!(kind, Kind::Untrained(_));
    let untrained = setup.drafters.iter().position(|d| is_untrained(&d.kind))?;
    Some(format!(
        "Loss on held-out samples: {:.3} nats a slot, {:.3} untrained.",
        mean(newest)?,
        mean(untrained)?
    ))
}
