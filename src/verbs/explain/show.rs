//! The explanation as lines, tables and CSV.

use super::account::Stage;
use super::cause::does;
use super::swap::{Swap, Swapped};
use super::{Explanation, Side};
use crate::figure::Table;
use crate::report::quantity::{change, count, percent, plus_minus};
use crate::report::{aligned, terminal_paragraph};
use sim::{Estimate, is_tie};

/// Keys that are listed on the terminal.
const KEYS_MAX: usize = 12;

/// Keys that explain this share of what the best do explain as much.
const ALIKE: f64 = 0.9;

/// The lines on the terminal.
pub(super) fn lines(explanation: &Explanation) -> Vec<String> {
    let mut lines = Vec::new();
    for sentence in sentences(explanation) {
        lines.extend(terminal_paragraph("", &sentence));
    }
    for table in [time(explanation), keys(explanation)] {
        if table.rows.is_empty() {
            continue;
        }
        lines.push(String::new());
        lines.extend(terminal_paragraph("", &format!("{}:", table.caption)));
        let shown = table
            .rows
            .len()
            .min(KEYS_MAX.max(time(explanation).rows.len()));
        let mut rows = vec![table.header.clone()];
        rows.extend(table.rows.iter().take(shown).cloned());
        lines.extend(aligned(&rows));
        let more = table.rows.len() - shown;
        if more > 0 {
            lines.push(format!("and {}", count(more, "more key")));
        }
    }
    lines
}

/// The explanation in sentences: who is faster, the first cause, what it does to the other stage, which key decides.
pub(super) fn sentences(explanation: &Explanation) -> Vec<String> {
    let Explanation {
        a,
        b,
        account,
        replications,
        ..
    } = explanation;
    let compared = format!(
        "A is {} ({}), B is {} ({}); {replications} replications on the same samples and the same noise, whole runs, 95 % intervals.",
        a.name(),
        a.path.display(),
        b.name(),
        b.path.display()
    );
    let speeds = |first: &Estimate, second: &Estimate| {
        format!(
            "{} tok/s against {}",
            plus_minus(first.mean, first.half_width),
            plus_minus(second.mean, second.half_width)
        )
    };
    let gain = account.gain;
    let Some(cause) = &explanation.cause else {
        return vec![
            compared,
            format!(
                "Neither is faster: {}, {}: a tie.",
                speeds(&account.speed_a, &account.speed_b),
                change(&gain)
            ),
        ];
    };
    let (fast, slow, speeds, gain) = if gain.mean > 0.0 {
        (
            a,
            b,
            speeds(&account.speed_a, &account.speed_b),
            change(&gain),
        )
    } else {
        let less = Estimate {
            mean: gain.mean.abs(),
            ..gain
        };
        let speeds = speeds(&account.speed_b, &account.speed_a);
        (b, a, speeds, format!("{} less", percent_of(&less)))
    };
    let faster = if fast.letter == "A" {
        format!("A is faster: {speeds}, {gain}.")
    } else {
        format!("B is faster: {speeds}; A gives {gain}.")
    };
    let mut sentences = vec![
        compared,
        faster,
        format!(
            "First cause: {}, {} s longer for each million tokens: {} % of the difference of {} s.",
            cause.text,
            plus_minus(cause.excess.mean, cause.excess.half_width),
            percent(cause.share),
            plus_minus(account.total.mean.abs(), account.total.half_width)
        ),
    ];
    sentences.extend(company(explanation, cause.stage, slow));
    sentences.extend(decisive(explanation, slow));
    sentences
}

fn percent_of(share: &Estimate) -> String {
    format!(
        "{} %",
        plus_minus(100.0 * share.mean, 100.0 * share.half_width)
    )
}

/// What the other stage of the slower policy does meanwhile.
fn company(explanation: &Explanation, stage: Stage, slow: &Side) -> Option<String> {
    let account = &explanation.account;
    let sign = if slow.letter == "B" { 1.0 } else { -1.0 };
    let other = account.entries.iter().filter(|e| e.stage == stage.other());
    let most =
        other.max_by(|x, y| (sign * x.difference.mean).total_cmp(&(sign * y.difference.mean)))?;
    let grown = sign * most.difference.mean;
    (grown > 0.0 && !is_tie(&most.difference)).then(|| {
        format!(
            "Its {} {} {} s longer meanwhile.",
            stage.other().name(),
            does(most.activity),
            plus_minus(grown, most.difference.half_width)
        )
    })
}

/// The key, or the keys that belong together, that alone explain most: they make the slower policy faster, or the faster one slower.
fn decisive(explanation: &Explanation, slow: &Side) -> Option<String> {
    let side = usize::from(slow.letter == "B");
    let fast = if slow.letter == "B" { "A" } else { "B" };
    let slow = slow.letter;
    // What each side would have to change by to become as fast as the other.
    let gap = explanation.account.gain.mean;
    let back = 1.0 / (1.0 + gap) - 1.0;
    let (up, down) = if side == 1 { (gap, back) } else { (back, gap) };
    let told = |swap: &Swap, which: usize, whole: f64| match swap.swapped.get(which) {
        Some(Swapped::Gain(gain)) if !is_tie(gain) && gain.mean / whole > 0.0 => {
            Some((gain.mean / whole, *gain))
        }
        _ => None,
    };
    let mut found: Vec<(f64, usize, String)> = Vec::new();
    for swap in &explanation.swaps {
        let keys = swap.key.split(' ').count();
        if let Some((share, gain)) = told(swap, side, up) {
            let text = format!(
                "with {fast}'s {}, {slow} changes by {}",
                swap.key,
                change(&gain)
            );
            found.push((share, keys, text));
        }
        if let Some((share, gain)) = told(swap, 1 - side, down) {
            let text = format!(
                "with {slow}'s {}, {fast} changes by {}",
                swap.key,
                change(&gain)
            );
            found.push((share, keys, text));
        }
    }
    // Of what explains about as much, the fewest keys.
    let most = found.iter().map(|(share, ..)| *share).fold(0.0, f64::max);
    let best = found.iter().filter(|(share, ..)| *share >= ALIKE * most);
    let best = best.min_by(|x, y| x.1.cmp(&y.1).then(y.0.total_cmp(&x.0)));
    if explanation.swaps.is_empty() {
        return None;
    }
    Some(best.map_or_else(
        || "No key of theirs, changed alone, explains it: it takes several at once.".to_owned(),
        |(share, _, text)| {
            format!(
                "What decides, all else equal: {text}, {} % of the way between them.",
                percent(*share)
            )
        },
    ))
}

/// Where a worker's time goes.
pub(super) fn time(explanation: &Explanation) -> Table {
    let account = &explanation.account;
    let one = |estimate: &Estimate| format!("{:.2}", estimate.mean);
    let mut rows = Vec::new();
    for stage in Stage::ALL {
        for entry in account.entries.iter().filter(|e| e.stage == stage) {
            rows.push(vec![
                stage.name().to_owned(),
                entry.activity.name().to_owned(),
                one(&entry.a),
                one(&entry.b),
                signed(&entry.difference),
                half(&entry.difference),
            ]);
        }
        rows.push(vec![
            stage.name().to_owned(),
            "in all".to_owned(),
            one(&account.total_a),
            one(&account.total_b),
            signed(&account.total),
            half(&account.total),
        ]);
    }
    table(
        "Where the time of a worker goes, seconds for each million trained tokens, mean over the workers of a stage",
        &["stage", "activity", "A", "B", "B less A", "±"],
        rows,
    )
}

/// What each key is worth alone.
pub(super) fn keys(explanation: &Explanation) -> Table {
    let row = |swap: &Swap| {
        let mut row = vec![short(&swap.key)];
        row.extend(swap.values.iter().cloned());
        row.extend(swap.swapped.iter().map(|swapped| match swapped {
            Swapped::Gain(gain) if is_tie(gain) => "tie".to_owned(),
            Swapped::Gain(gain) => change(gain),
            Swapped::Refused(_) => "not alone".to_owned(),
        }));
        row
    };
    table(
        "Keys in which they differ, and how throughput changes when they alone take the other policy's values",
        &["key", "in A", "in B", "A with B's", "B with A's"],
        explanation.swaps.iter().map(row).collect(),
    )
}

/// Many keys at once by the first of them.
fn short(key: &str) -> String {
    let keys: Vec<&str> = key
        .split([',', ' '])
        .filter(|k| !k.is_empty() && *k != "and")
        .collect();
    match keys.as_slice() {
        [first, second, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second} and {} more", rest.len())
        }
        _ => key.to_owned(),
    }
}

fn table(caption: &str, header: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table {
        caption: caption.to_owned(),
        header: header.iter().map(|&cell| cell.to_owned()).collect(),
        rows,
    }
}

fn signed(estimate: &Estimate) -> String {
    format!("{:+.2}", estimate.mean).replace('-', "−")
}

fn half(estimate: &Estimate) -> String {
    format!("{:.2}", estimate.half_width)
}

/// The times as CSV: a row an activity.
pub(super) fn csv(explanation: &Explanation) -> Vec<u8> {
    const IN_MEMORY: &str = "writing to memory cannot fail";
    let account = &explanation.account;
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record([
        "stage",
        "activity",
        "a_s_per_mtok",
        "b_s_per_mtok",
        "difference_s_per_mtok",
        "difference_half_width",
    ])
    .expect(IN_MEMORY);
    let number = |value: f64| format!("{value:.6}");
    for entry in &account.entries {
        csv.write_record([
            entry.stage.name().to_owned(),
            entry.activity.name().to_owned(),
            number(entry.a.mean),
            number(entry.b.mean),
            number(entry.difference.mean),
            number(entry.difference.half_width),
        ])
        .expect(IN_MEMORY);
    }
    csv.into_inner().expect(IN_MEMORY)
}
