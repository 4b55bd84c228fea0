//! What would change the answer, in sentences and as a table: small changes of the box, the mixing rule, GPUs taking turns.

use super::prospects::{Prospects, Rule};
use super::quantity::{change, gib_short, significant};
use crate::figure::Table;
use crate::scenario::PolicyFile;
use shared::policy::Transport;
use sim::{Change, Colocated, Effect, is_tie};

/// The outlook, a sentence a line.
pub(crate) fn sentences(prospects: &Prospects, file: &PolicyFile) -> Vec<String> {
    let mut lines = changes(&prospects.effects, file);
    lines.extend(prospects.rule.as_ref().map(rule));
    lines.extend(prospects.colocated.map(|found| turns(&found, prospects)));
    lines
}

/// Small changes of the box: those that gain or lose, those that tie, those that cannot be made.
fn changes(effects: &[Effect], file: &PolicyFile) -> Vec<String> {
    let additions = [Change::Target, Change::Drafter, Change::Slot, Change::Link];
    let effects = effects.iter().filter(|e| additions.contains(&e.change));
    let (mut told, mut ties, mut barred) = (Vec::new(), Vec::new(), Vec::new());
    for effect in effects {
        let what = described(effect.change, file);
        match &effect.gain {
            Ok(gain) if is_tie(gain) => ties.push(format!("{what} ({})", change(gain))),
            Ok(gain) if gain.mean < 0.0 => told.push(format!("{what} costs {}", change(gain))),
            Ok(gain) => told.push(format!("{what} buys {}", change(gain))),
            Err(_) if effect.is_refused() => {
                barred.push(format!("{what} (the policy does not allow it)"));
            }
            Err(reason) => barred.push(format!("{what} ({reason})")),
        }
    }
    let sentence = |start: &str, parts: Vec<String>| {
        (!parts.is_empty()).then(|| capitalised(&format!("{start}{}.", parts.join(", "))))
    };
    let told = sentence("", told);
    let ties = sentence("no difference that counts (ties): ", ties);
    let barred = sentence("not possible as things are: ", barred);
    [told, ties, barred].into_iter().flatten().collect()
}

fn rule(rule: &Rule) -> String {
    let Rule { without, gain } = rule;
    if is_tie(gain) {
        format!(
            "The mixing rule costs nothing measurable: the fastest without it, {without}, ties ({}).",
            change(gain)
        )
    } else if gain.mean < 0.0 {
        format!(
            "The mixing rule costs nothing: the fastest without it, {without}, is no faster ({}).",
            change(gain)
        )
    } else {
        format!(
            "The mixing rule costs throughput: the fastest without it, {without}, gives {}.",
            change(gain)
        )
    }
}

fn turns(found: &Colocated, prospects: &Prospects) -> String {
    let Colocated {
        gpus,
        step,
        wide_step,
        ..
    } = *found;
    let memory = gib_short(found.gpu.total().0);
    let there = gib_short(found.there.0);
    let turns = format!(
        "Colocated (a target and a drafter taking turns on each of the {gpus} GPUs, {memory} of {there} GiB)"
    );
    if !found.fits() {
        return format!("{turns}, they do not fit.");
    }
    let against = |tokens_per_s: f64| {
        let share = tokens_per_s / prospects.run_tokens_per_s.mean - 1.0;
        let sign = if share < 0.0 { "−" } else { "+" };
        format!(
            "{} tok/s ({sign}{} %)",
            significant(tokens_per_s),
            significant(100.0 * share.abs())
        )
    };
    format!(
        "{turns}, they would give about {} with the same steps of {step} microbatches and {} with steps of {wide_step}: an estimate, switching left out.",
        against(found.tokens_per_s),
        against(found.wide_tokens_per_s),
    )
}

/// What each change would do, a row a change.
pub(crate) fn table(prospects: &Prospects, file: &PolicyFile) -> Table {
    let row = |effect: &Effect| {
        let what = described(effect.change, file);
        match &effect.gain {
            Ok(gain) => {
                let verdict = match (is_tie(gain), gain.mean > 0.0) {
                    (true, _) => "tie",
                    (false, true) => "faster",
                    (false, false) => "slower",
                };
                let sign = if gain.mean < 0.0 { "−" } else { "+" };
                vec![
                    what,
                    format!("{sign}{:.2}", 100.0 * gain.mean.abs()),
                    format!("{:.2}", 100.0 * gain.half_width),
                    verdict.to_owned(),
                ]
            }
            Err(reason) => vec![what, "–".to_owned(), "–".to_owned(), reason.to_string()],
        }
    };
    Table {
        caption: "What a change would do to throughput: paired runs on fresh seeds, 95 % interval"
            .to_owned(),
        header: ["change", "throughput %", "± %", "verdict"]
            .map(str::to_owned)
            .to_vec(),
        rows: prospects.effects.iter().map(row).collect(),
    }
}

fn described(change: Change, file: &PolicyFile) -> String {
    let (targets, drafters) = (file.policy.targets, file.policy.drafters);
    match change {
        Change::Target => "one more GPU as a target".to_owned(),
        Change::Drafter => "one more GPU as a drafter".to_owned(),
        Change::Slot => "one more HS slot".to_owned(),
        Change::Link => format!("1 GB/s more on the {}", link_name(file)),
        Change::ToTargets => format!("the same GPUs as {} + {}", targets + 1, drafters - 1),
        Change::ToDrafters => format!("the same GPUs as {} + {}", targets - 1, drafters + 1),
    }
}

/// The link that carries the policy's hidden states.
fn link_name(file: &PolicyFile) -> &'static str {
    match file.policy.transport {
        Transport::HostPageable => "pageable host link",
        Transport::HostPinned => "pinned host link",
        Transport::P2p => "peer-to-peer link",
        Transport::Local => "local link",
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}
