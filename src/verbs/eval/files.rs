//! `eval.json` with all numbers, `prompts.csv` with a row a prompt and drafter.

use super::measure::{Answered, Drafted, Measured};
use super::setup::{Kind, Named, Setup};
use super::sums::{Bucket, Sum, sum};
use super::words::newest;
use crate::failure::Failure;
use crate::output::{OutputDir, OutputError};
use exec::decode::Tally;
use serde_json::{Value, json};
use sim::Estimate;

/// Writes both files.
pub(super) fn write(dir: &OutputDir, setup: &Setup, measured: &Measured) -> Result<(), Failure> {
    let mut text = format!("{:#}", numbers(setup, measured)).into_bytes();
    text.push(b'\n');
    dir.write("eval.json", &text)?;
    dir.write("prompts.csv", &rows(setup, measured)?)?;
    Ok(())
}

fn numbers(setup: &Setup, measured: &Measured) -> Value {
    let geometry = &setup.target.config().geometry;
    let prompts = &measured.prompts;
    let tokens = |of: fn(&Answered) -> usize| prompts.iter().map(of).sum::<usize>();
    let drafters = setup.drafters.iter().enumerate().map(|(index, named)| {
        drafter(
            named,
            &sum(measured, index, setup.slots, &setup.edges),
            measured,
            index,
        )
    });
    let newest = newest(setup);
    let of_newest = sum(measured, newest, setup.slots, &setup.edges);
    let group = |name: String, value: f64| json!({ "group": name, "value": value });
    let by_length = of_newest.by_length.iter();
    let acceptance = std::iter::once(group("all".to_owned(), of_newest.length.mean))
        .chain(by_length.map(|bucket| group(bucket.name(), bucket.length.mean)));
    let losses = measured.losses.get(newest).cloned().flatten();
    let loss = losses.map(|groups| {
        let shown = groups
            .into_iter()
            .map(|(name, loss)| group(name, loss.mean()));
        shown.collect::<Vec<_>>()
    });
    json!({
        // The newest checkpoint: acceptance length by length of prompt and answer, loss by length of the sample. (nats)
        "acceptance": acceptance.collect::<Vec<_>>(),
        "loss": loss,
        "version": env!("CARGO_PKG_VERSION"),
        "commit": option_env!("DFLASH_COMMIT").unwrap_or("unknown"),
        "name": setup.file.name,
        "seed": setup.file.seed,
        "target": {
            "path": &setup.file.exec.target.path,
            "layers": geometry.num_hidden_layers,
            "hidden_size": geometry.hidden_size,
            "vocab_size": geometry.vocab_size,
            "captured_layers": setup.target.captured(),
        },
        "prompts": {
            "from": setup.source.name,
            "given": setup.prompts.len(),
            "decoded": prompts.len(),
            "too_long": setup.source.too_long,
            "repeated": setup.source.repeated,
            "prompt_tokens": tokens(|prompt| prompt.prompt),
            "answer_tokens": tokens(|prompt| prompt.answer),
            "ended_by_themselves": tokens(|prompt| usize::from(prompt.ended)),
        },
        "max_new_tokens": setup.limits.new_tokens_max,
        "end_tokens": setup.limits.ends,
        "drafts_per_round": setup.slots,
        "temperature": 0,
        "target_alone": { "acceptance_length": 1.0, "tokens_per_forward": 1.0 },
        "drafters": drafters.collect::<Vec<_>>(),
    })
}

fn drafter(named: &Named, sum: &Sum, measured: &Measured, index: usize) -> Value {
    let (kind, step, path) = match &named.kind {
        Kind::Trained { step, path, .. } => ("trained", *step, Some(path)),
        Kind::Untrained(_) => ("untrained", None, None),
        Kind::Ngram => ("n-gram", None, None),
    };
    let differences = measured.prompts.iter().filter_map(|prompt| {
        let difference = prompt.drafted[index].difference?;
        Some(json!({
            "prompt": prompt.id,
            "token": difference.at,
            "logit_gap": difference.gap,
        }))
    });
    let tally = &sum.tally;
    json!({
        "name": named.name,
        "kind": kind,
        "step": step,
        "checkpoint": path,
        "verified_by": if named.is_real { "target" } else { "recorded answers" },
        "acceptance_length": estimate(&sum.length),
        "acceptance_length_pooled": tally.acceptance_length(),
        "tokens_per_forward": sum.tokens_per_forward,
        "rounds": tally.rounds,
        "tokens_gained": tally.gained,
        "drafts_offered": tally.offered,
        "drafts_accepted": tally.accepted,
        "slots": slots(tally),
        "by_length": sum.by_length.iter().map(bucket).collect::<Vec<_>>(),
        "by_context": sum.by_context.iter().map(bucket).collect::<Vec<_>>(),
        "held_out_loss": measured.losses.get(index).cloned().flatten().map(|groups| {
            let shown = groups.into_iter().map(|(name, loss)| json!({ "group": name, "value": loss.mean() }));
            shown.collect::<Vec<_>>()
        }),
        "identical_answers": sum.identical,
        "differences": differences.collect::<Vec<_>>(),
        "time_per_token_over_target_alone": sum.time_ratio,
    })
}

fn slots(tally: &Tally) -> Vec<Value> {
    let slot = |(slot, count): (usize, &exec::decode::SlotCount)| {
        json!({
            "slot": slot + 1,
            "reached": count.reached,
            "accepted": count.accepted,
            "conditional": count.conditional(),
            "cumulative": count.cumulative(),
        })
    };
    tally.slots.iter().enumerate().map(slot).collect()
}

fn bucket(bucket: &Bucket) -> Value {
    json!({
        "above_tokens": bucket.above,
        "up_to_tokens": bucket.up_to,
        "prompts": bucket.prompts,
        "rounds": bucket.rounds,
        "acceptance_length": estimate(&bucket.length),
    })
}

fn estimate(estimate: &Estimate) -> Value {
    let known = estimate.count > 1;
    json!({
        "mean": if estimate.count > 0 { estimate.mean } else { f64::NAN },
        "ci_low": if known { estimate.low() } else { f64::NAN },
        "ci_high": if known { estimate.high() } else { f64::NAN },
        "prompts": estimate.count,
    })
}

fn rows(setup: &Setup, measured: &Measured) -> Result<Vec<u8>, Failure> {
    let failed = |e: csv::Error| Failure::new(OutputError::CODE, format!("prompts.csv: {e}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer
        .write_record([
            "prompt",
            "drafter",
            "step",
            "verified_by",
            "prompt_tokens",
            "answer_tokens",
            "ended",
            "rounds",
            "tokens_gained",
            "drafts_offered",
            "drafts_accepted",
            "acceptance_length",
            "identical",
            "first_difference",
            "logit_gap",
        ])
        .map_err(failed)?;
    for prompt in &measured.prompts {
        for (named, drafted) in setup.drafters.iter().zip(&prompt.drafted) {
            writer
                .write_record(row(prompt, named, drafted))
                .map_err(failed)?;
        }
    }
    writer
        .into_inner()
        .map_err(|e| Failure::new(OutputError::CODE, format!("prompts.csv: {e}")))
}

fn row(prompt: &Answered, named: &Named, drafted: &Drafted) -> [String; 15] {
    let tally = Tally::of(&drafted.decoded.rounds, 0);
    let step = match named.kind {
        Kind::Trained { step, .. } => step,
        Kind::Untrained(_) | Kind::Ngram => None,
    };
    let shown = |value: Option<String>| value.unwrap_or_default();
    let length = (tally.rounds > 0).then(|| format!("{:.4}", tally.acceptance_length()));
    let identical = drafted
        .token_s
        .map(|_| drafted.difference.is_none().to_string());
    [
        prompt.id.clone(),
        named.name.clone(),
        shown(step.map(|step| step.to_string())),
        if named.is_real { "target" } else { "record" }.to_owned(),
        prompt.prompt.to_string(),
        prompt.answer.to_string(),
        prompt.ended.to_string(),
        tally.rounds.to_string(),
        tally.gained.to_string(),
        tally.offered.to_string(),
        tally.accepted.to_string(),
        shown(length),
        shown(identical),
        shown(
            drafted
                .difference
                .map(|difference| difference.at.to_string()),
        ),
        shown(
            drafted
                .difference
                .map(|difference| format!("{:.3e}", difference.gap)),
        ),
    ]
}
