//! The answer on the terminal: a table of policies, the best one, and what limits it.

use super::group::groups;
use super::quantity::{count, gib};
use super::{Detailed, Prospects, answer, reasons, tables};
use crate::scenario::PolicyFile;
use crate::verbs::sim::Searched;

/// Columns of a line, at most; where no terminal says otherwise, as many.
const WIDTH: usize = 100;

/// Columns of a line, at least, however narrow the terminal.
const WIDTH_MIN: usize = 60;

/// Least room for a name in the table.
const NAME_MIN: usize = 12;

/// Waits of one deadlock that are listed.
const WAITS_MAX: usize = 12;

/// What no line ends before.
const KEPT: [&str; 5] = [" %", " ± ", " tok/s", " GiB", " GB/s"];

/// Reasons of one kind that are listed.
const REASONS_MAX: usize = 6;

/// The lines of the answer.
pub(crate) fn summary(
    searched: &Searched,
    best: Option<&PolicyFile>,
    prospects: Option<&Prospects>,
    detailed: &[Detailed],
) -> Vec<String> {
    let groups = groups(searched);
    let mut lines = aligned(&table(searched, detailed));
    lines.push(String::new());
    let answer = answer::answer(searched, best, prospects, detailed);
    lines.extend(paragraph("", &answer.join(" ")));
    if let Some(ties) = reasons::ties(searched, &groups) {
        lines.extend(paragraph("ties: ", &ties));
    }
    let excluded = reasons::excluded(searched, &groups);
    lines.extend(reason_lines("excluded", &excluded));
    for (name, stall) in reasons::deadlocks(searched, &groups) {
        let line = format!("{name}: {}", reasons::stall_line(stall));
        lines.extend(paragraph("deadlock: ", &line));
        for wait in reasons::waits(stall, WAITS_MAX) {
            lines.extend(paragraph("  - ", &wait));
        }
    }
    let infeasible = reasons::infeasible(searched, &groups);
    lines.extend(reason_lines("infeasible", &infeasible));
    lines
}

fn table(searched: &Searched, detailed: &[Detailed]) -> Vec<Vec<String>> {
    let header = [
        "policy", "split", "tok/s", "+-", "% bound", "slots", "HS GiB", "host GiB", "buckets",
        "tv max", "exc", "outcome",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for detail in detailed {
        let row = &searched.rows[detail.row];
        let policy = &searched.cases[row.index].file.policy;
        let metrics = &detail.outcome.metrics;
        let [tok_s, half, share] = tables::speed(searched, detail);
        rows.push(vec![
            detail.name.clone(),
            format!("{}+{}", policy.targets, policy.drafters),
            tok_s,
            half,
            share,
            metrics.peaks.slots.to_string(),
            gib(metrics.peaks.alive_bytes.0),
            gib(detail.outcome.memory.host.total().0),
            metrics.mix.distinct_min.to_string(),
            format!("{:.3}", metrics.mix.tv_max),
            metrics.mix.exceptions.to_string(),
            tables::outcome(searched, detail),
        ]);
    }
    drop_zeros(&mut rows, "exc");
    let width = width();
    for header in LEAST_TELLING {
        if widest(&rows) > width {
            drop_column(&mut rows, header);
        }
    }
    fit(&mut rows, width);
    rows
}

/// Columns to leave out on a narrow terminal, one after the other; the report has them all.
const LEAST_TELLING: [&str; 4] = ["host GiB", "HS GiB", "buckets", "+-"];

/// Columns of a line on this terminal.
fn width() -> usize {
    let columns = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    columns.unwrap_or(WIDTH).clamp(WIDTH_MIN, WIDTH)
}

/// Columns that a table takes.
fn widest(rows: &[Vec<String>]) -> usize {
    let lines = aligned(rows);
    lines
        .iter()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0)
}

/// Leaves out the column with this header if it says nothing.
fn drop_zeros(rows: &mut [Vec<String>], header: &str) {
    let column = rows[0].iter().position(|cell| cell == header);
    if column.is_some_and(|c| rows[1..].iter().all(|row| row[c] == "0")) {
        drop_column(rows, header);
    }
}

fn drop_column(rows: &mut [Vec<String>], header: &str) {
    if let Some(column) = rows[0].iter().position(|cell| cell == header) {
        for row in rows {
            row.remove(column);
        }
    }
}

/// Cuts names in the first column so that a line fits `width`, but leaves at least [`NAME_MIN`] characters.
fn fit(rows: &mut [Vec<String>], width: usize) {
    let over = widest(rows).saturating_sub(width);
    let names = rows.iter().map(|row| row[0].chars().count());
    let room = names.max().unwrap_or(0).saturating_sub(over).max(NAME_MIN);
    for row in rows.iter_mut().filter(|row| row[0].chars().count() > room) {
        row[0] = row[0].chars().take(room - 1).chain(['…']).collect();
    }
}

/// Cells in columns: the first and the last flush left, numbers between them flush right.
pub(crate) fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, &w))| {
            if i == 0 || i + 1 == columns {
                format!("{cell:<w$}")
            } else {
                format!("{cell:>w$}")
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// `text` behind `start`, wrapped at spaces; lines after the first are indented as far.
fn paragraph(start: &str, text: &str) -> Vec<String> {
    wrapped(start, text, width())
}

/// As [`paragraph`], for other verbs.
pub(crate) fn terminal_paragraph(start: &str, text: &str) -> Vec<String> {
    paragraph(start, text)
}

fn wrapped(start: &str, text: &str, width: usize) -> Vec<String> {
    let indent = " ".repeat(start.chars().count());
    let mut lines = vec![start.to_owned()];
    let mut is_empty = true;
    // A number stays with its sign, its unit and its interval.
    let text = KEPT.iter().fold(text.to_owned(), |text, unit| {
        text.replace(unit, &unit.replace(' ', "\u{a0}"))
    });
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let last = lines.len() - 1;
        let length = lines[last].chars().count() + word.chars().count();
        if is_empty {
            lines[last].push_str(word);
        } else if length < width {
            lines[last].push(' ');
            lines[last].push_str(word);
        } else {
            lines.push(format!("{indent}{word}"));
        }
        is_empty = false;
    }
    let plain = |line: &String| line.replace('\u{a0}', " ");
    lines.iter().map(plain).collect()
}

fn reason_lines(kind: &str, reasons: &[reasons::Reason]) -> Vec<String> {
    let shown = reasons.iter().take(REASONS_MAX).flat_map(|reason| {
        let text = format!(
            "{} ({}): {}",
            reason.name,
            count(reason.points, "point"),
            reason.text
        );
        paragraph(&format!("{kind}: "), &text)
    });
    let mut lines: Vec<String> = shown.collect();
    let more = reasons.len().saturating_sub(REASONS_MAX);
    if more > 0 {
        lines.push(format!("{kind}: and {more} more, see results.csv"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["policy", "tok/s", "outcome"], ["a", "12,000", "best"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec()).to_vec();
        assert_eq!(
            aligned(&rows),
            ["policy   tok/s  outcome", "a       12,000  best"]
        );
    }

    #[test]
    fn sentences_wrap_within_the_terminal() {
        let lines = wrapped("ties: ", &"word ".repeat(60), WIDTH);
        assert!(lines.len() > 2, "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH));
        let lines_of_shares = wrapped("", &"100 % ".repeat(60), 61);
        assert!(lines_of_shares.iter().all(|line| !line.starts_with('%')));
        assert!(lines[0].starts_with("ties: word") && lines[1].starts_with("      word"));
    }

    #[test]
    fn long_names_are_cut_to_the_terminal() {
        let row = |name: &str| vec![name.to_owned(), "x".repeat(80), "best".to_owned()];
        let mut rows = vec![row("composed"), row(&"n".repeat(30))];
        fit(&mut rows, WIDTH);
        assert_eq!(rows[0][0], "composed");
        assert!(rows[1][0].ends_with('…'));
        assert_eq!(aligned(&rows)[1].chars().count(), WIDTH);
    }
}
