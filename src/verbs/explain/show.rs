//! The explanation as lines, tables and CSV.

use super::account::Stage;
use super::swap::{Swap, Swapped};
use super::{Explanation, Side};
use crate::figure::Table;
use crate::report::quantity::{change, count, percent, plus_minus};
use crate::report::{aligned, terminal_paragraph};
use sim::{Estimate, is_tie};

/// Keys that are listed on the terminal.
const KEYS_MAX: usize = 12;

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
                "Neither is faster: {}, A less B {} of B, a tie.",
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
        (b, a, speeds, format!("{} of B less", percent_of(&less)))
    };
    let faster = if fast.letter == "A" {
        format!("A is faster: {speeds}, {gain} of B.")
    } else {
        format!("B is faster: {speeds}; A gives {gain}.")
    };
    let mut sentences = vec![
        compared,
        faster,
        format!(
            "First cause: {}: {} s more on {} for each million tokens, {} % of the difference of {} s.",
            cause.text,
            plus_minus(cause.excess.mean, cause.excess.half_width),
            cause.activity.name(),
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
            "Its {} spend {} s more on {} meanwhile.",
            stage.other().name(),
            plus_minus(grown, most.difference.half_width),
            most.activity.name()
        )
    })
}

/// The one key that brings the slower policy closest to the faster.
fn decisive(explanation: &Explanation, slow: &Side) -> Option<String> {
    let side = usize::from(slow.letter == "B");
    let gain_of = |swap: &Swap| match swap.swapped.get(side) {
        Some(Swapped::Gain(gain)) if !is_tie(gain) && gain.mean > 0.0 => Some(*gain),
        _ => None,
    };
    let gap = explanation.account.gain;
    let gap = if side == 1 {
        gap.mean
    } else {
        1.0 / (1.0 + gap.mean) - 1.0
    };
    let swaps = explanation.swaps.iter();
    let best = swaps.filter_map(|swap| Some((swap, gain_of(swap)?)));
    let best = best.max_by(|x, y| x.1.mean.total_cmp(&y.1.mean));
    let letter = slow.letter;
    if explanation.swaps.is_empty() {
        return None;
    }
    Some(best.map_or_else(
        || format!("No single key of the other policy makes {letter} faster: it takes several at once."),
        |(swap, gain)| {
            format!(
                "Of the keys in which they differ, {} alone does most for {letter}: with {} instead of {} it gains {}, {} % of the gap.",
                swap.key,
                swap.values[1 - side],
                swap.values[side],
                change(&gain),
                percent(gain.mean / gap)
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
        let mut row = vec![swap.key.clone()];
        row.extend(swap.values.iter().cloned());
        row.extend(swap.swapped.iter().map(|swapped| match swapped {
            Swapped::Gain(gain) if is_tie(gain) => "tie".to_owned(),
            Swapped::Gain(gain) => change(gain),
            Swapped::Refused(_) => "not alone".to_owned(),
        }));
        row
    };
    table(
        "Keys in which they differ, and what throughput gains when one of them alone takes the other's value",
        &["key", "in A", "in B", "A with B's", "B with A's"],
        explanation.swaps.iter().map(row).collect(),
    )
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
