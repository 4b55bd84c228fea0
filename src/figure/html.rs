//! The report: one HTML page with everything inline, readable without a network and on paper.

use super::dark;
use std::fmt::Write as _;

/// A table of text cells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) caption: String,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The parts of a report, from the top.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) title: String,
    /// What was asked; may be empty.
    pub(crate) question: String,
    /// The answer, a sentence a line.
    pub(crate) summary: Vec<String>,
    pub(crate) parts: Vec<Part>,
    /// Seed, versions, configuration, reservations.
    pub(crate) notes: Vec<String>,
}

/// One part of a report.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Table(Table),
    /// An SVG document, put into the page as it is.
    Figure(String),
    /// Lines below a caption.
    List {
        caption: String,
        lines: Vec<String>,
    },
    /// Text as it stands in a file, folded away below its name.
    Text {
        caption: String,
        text: String,
    },
}

/// The report as a self-contained HTML page; all text is escaped.
pub(crate) fn report(report: &Report) -> String {
    let title = escaped(&report.title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}@media screen and (prefers-color-scheme: dark) {{\n{}}}\n</style>\n\
         </head>\n<body>\n<main>\n<h1>{title}</h1>\n",
        dark::rules(report.parts.iter().filter_map(Part::svg))
    );
    if !report.question.is_empty() {
        push(
            &mut page,
            format_args!("<p class=\"question\">{}</p>\n", escaped(&report.question)),
        );
    }
    if !report.summary.is_empty() {
        page.push_str("<section class=\"summary\">\n");
        for line in &report.summary {
            let line = escaped(line)
                .replace(" %", "&nbsp;%")
                .replace(" ± ", "&nbsp;±&nbsp;");
            push(&mut page, format_args!("<p>{line}</p>\n"));
        }
        page.push_str("</section>\n");
    }
    for part in &report.parts {
        push_part(&mut page, part);
    }
    if !report.notes.is_empty() {
        page.push_str("<section class=\"notes\">\n");
        push_list(&mut page, "Notes", &report.notes);
        page.push_str("</section>\n");
    }
    page.push_str("</main>\n");
    if report.parts.iter().any(Part::is_table) {
        push(&mut page, format_args!("<script>\n{SORT}</script>\n"));
    }
    page.push_str("</body>\n</html>\n");
    page
}

impl Part {
    fn svg(&self) -> Option<&str> {
        match self {
            Self::Figure(svg) => Some(svg),
            _ => None,
        }
    }

    const fn is_table(&self) -> bool {
        matches!(self, Self::Table(_))
    }
}

/// What the page may load: nothing. Its own style and script, and the empty icon, stand in the page.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// Sorts tables.
const SORT: &str = include_str!("sort.js");

fn push_part(page: &mut String, part: &Part) {
    match part {
        Part::Table(table) => push_table(page, table),
        Part::Figure(svg) => push(
            page,
            format_args!("<figure>\n{}\n</figure>\n", bare_svg(svg)),
        ),
        Part::List { caption, lines } => push_list(page, caption, lines),
        Part::Text { caption, text } => push(
            page,
            format_args!(
                "<details>\n<summary>{}</summary>\n<pre>{}</pre>\n</details>\n",
                escaped(caption),
                escaped(text)
            ),
        ),
    }
}

fn push_list(page: &mut String, caption: &str, lines: &[String]) {
    push(page, format_args!("<h2>{}</h2>\n<ul>\n", escaped(caption)));
    for line in lines {
        push(page, format_args!("<li>{}</li>\n", escaped(line)));
    }
    page.push_str("</ul>\n");
}

fn push_table(page: &mut String, table: &Table) {
    let tall = if table.rows.len() > TALL { " tall" } else { "" };
    push(page, format_args!("<div class=\"table{tall}\">\n<table>\n"));
    if !table.caption.is_empty() {
        push(
            page,
            format_args!("<caption>{}</caption>\n", escaped(&table.caption)),
        );
    }
    let is_numeric = |column: usize| {
        let mut cells = table
            .rows
            .iter()
            .filter_map(|row| row.get(column))
            .peekable();
        cells.peek().is_some() && cells.all(|cell| is_number(cell))
    };
    let class: Vec<&str> = (0..table.header.len())
        .map(|column| match is_numeric(column) {
            true => " class=\"number\"",
            false => "",
        })
        .collect();
    page.push_str("<thead><tr>");
    for (cell, class) in table.header.iter().zip(&class) {
        push(
            page,
            format_args!("<th scope=\"col\"{class}>{}</th>", escaped(cell)),
        );
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        page.push_str("<tr>");
        for (cell, class) in row.iter().zip(&class) {
            push(page, format_args!("<td{class}>{}</td>", escaped(cell)));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table>\n</div>\n");
}

/// Rows from which on a table scrolls on its own.
const TALL: usize = 25;

/// Columns whose cells all start like a number are set flush right, also with a unit behind; a dash stands in place of one.
fn is_number(cell: &str) -> bool {
    cell == "–"
        || cell
            .trim_start_matches(['-', '+', '−', '<', '±'])
            .starts_with(|c: char| c.is_ascii_digit())
}

/// An SVG document without what may stand before its first tag, such as an XML declaration.
fn bare_svg(document: &str) -> &str {
    document
        .find("<svg")
        .map_or("", |start| document[start..].trim_end())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

fn push(page: &mut String, piece: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = page.write_fmt(piece);
}

/// The look of the page; figures get their dark colours from [`dark::rules`].
const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1c1c1c; --muted: #5c5c5c; --line: #d8d8d8; --ground: #ffffff; --soft: #f5f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --muted: #a8a8a8; --line: #3c3f44; --ground: #17191c; --soft: #212429; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 \"Noto Sans\", system-ui, \"Segoe UI\", Helvetica, Arial, sans-serif; }
main { max-width: 1200px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 28px; line-height: 1.25; margin: 0 0 16px; }
h2 { font-size: 16px; margin: 28px 0 6px; }
.question { font-size: 18px; color: var(--muted); margin: 0 0 16px; }
details { margin: 24px 0; }
summary { cursor: pointer; font-weight: 600; }
pre { overflow-x: auto; background: var(--soft); padding: 12px; font-size: 13px; line-height: 1.35; }
.summary { border-left: 4px solid #0072b2; background: var(--soft); padding: 12px 20px; margin: 0 0 24px; }
.summary p { margin: 4px 0; }
.summary p:first-child { font-weight: 600; font-size: 18px; }
.table { overflow-x: auto; margin: 0 0 28px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; font-size: 16px; padding: 0 0 6px; }
th, td { padding: 5px 10px; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { border-bottom: 2px solid var(--muted); vertical-align: bottom; }
.number { text-align: right; }
th button { all: unset; cursor: pointer; }
th button:hover { text-decoration: underline; }
th button:focus-visible { outline: 2px solid #0072b2; outline-offset: 2px; }
th[aria-sort=\"ascending\"] button::after { content: \" \\25b2\"; font-size: 10px; }
th[aria-sort=\"descending\"] button::after { content: \" \\25bc\"; font-size: 10px; }
.tall { max-height: 70vh; overflow-y: auto; }
.tall thead th { position: sticky; top: 0; background: var(--ground); }
td:first-child { white-space: nowrap; }
td.number { white-space: nowrap; }
tbody tr:nth-child(even) { background: var(--soft); }
figure { margin: 0 0 28px; border: 1px solid var(--line); border-radius: 6px; padding: 8px; }
figure svg { display: block; width: 100%; height: auto; }
.notes { color: var(--muted); font-size: 14px; }
.notes ul { padding-left: 20px; }
@media print {
  :root { --ink: #000000; --muted: #444444; --line: #bbbbbb; --ground: #ffffff; --soft: #ffffff; }
  main { max-width: none; padding: 0; }
  figure, tr, .summary { break-inside: avoid; }
  figure { border: none; padding: 0; }
  .table { overflow: visible; }
}
";

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> String {
        report(&Report {
            title: "composed <best> & \"first\"".to_owned(),
            summary: vec!["21.5k tok/s, 99.9 % of the bound".to_owned()],
            question: "which <policy>?".to_owned(),
            parts: vec![
                Part::Table(Table {
                    caption: "Policies".to_owned(),
                    header: vec!["policy".to_owned(), "tok/s".to_owned()],
                    rows: vec![vec!["a<script>".to_owned(), "21.5k".to_owned()]],
                }),
                Part::Figure(
                    "<?xml version=\"1.0\"?>\n<svg viewBox=\"0 0 1 1\"></svg>\n".to_owned(),
                ),
                Part::List {
                    caption: "Waits".to_owned(),
                    lines: vec!["t0 <waits>".to_owned()],
                },
                Part::Text {
                    caption: "best.toml".to_owned(),
                    text: "name = \"<b>\"".to_owned(),
                },
            ],
            notes: vec!["seed 7".to_owned()],
        })
    }

    #[test]
    fn text_is_escaped() {
        let page = example();
        assert!(
            page.contains("<h1>composed &lt;best&gt; &amp; &quot;first&quot;</h1>"),
            "{page}"
        );
        assert!(
            page.contains("<td>a&lt;script&gt;</td><td class=\"number\">21.5k</td>"),
            "{page}"
        );
        assert!(
            page.contains("<p class=\"question\">which &lt;policy&gt;?</p>"),
            "{page}"
        );
        assert!(page.contains("<li>t0 &lt;waits&gt;</li>"), "{page}");
        assert!(
            page.contains("<pre>name = &quot;&lt;b&gt;&quot;</pre>"),
            "{page}"
        );
        // The page's own script, and no other.
        assert_eq!(page.matches("<script").count(), 1, "{page}");
    }

    #[test]
    fn numbers_and_their_headings_stand_flush_right() {
        let page = example();
        assert!(page.contains("<th scope=\"col\">policy</th>"), "{page}");
        assert!(
            page.contains("<th scope=\"col\" class=\"number\">tok/s</th>"),
            "{page}"
        );
    }

    #[test]
    fn the_page_is_self_contained() {
        let page = example();
        assert!(
            page.contains("<figure>\n<svg viewBox=\"0 0 1 1\"></svg>\n</figure>"),
            "{page}"
        );
        for outside in ["http://", "https://", "src=", "url(", "@import", "<?xml"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(
            page.matches("href=").count(),
            page.matches("href=\"data:,\"").count()
        );
    }

    #[test]
    fn an_empty_report_is_a_page() {
        let page = report(&Report::default());
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        assert!(!page.contains("<section") && !page.contains("<script"));
    }
}
