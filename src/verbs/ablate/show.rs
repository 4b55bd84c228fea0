//! What an ablation writes: a row a run, the figure, the page, and the same as Markdown.

use super::compare::{Comparison, Table, interval, signed, verdict};
use crate::cli::AblateArgs;
use crate::failure::Failure;
use crate::figure::{self, GroupPanel, GroupSeries, GroupValue, Groups, Heading};
use crate::output::OutputDir;

pub(super) fn write(
    dir: &OutputDir,
    args: &AblateArgs,
    comparison: &Comparison,
) -> Result<(), Failure> {
    dir.write("ablation.csv", csv(comparison)?.as_bytes())?;
    let groups = figure_of(args, comparison);
    let groups = figure::save(dir.path(), "ablation", &groups)?;
    let mut parts = vec![figure::Part::Figure(groups)];
    parts.extend(
        comparison
            .tables
            .iter()
            .map(|table| figure::Part::Table(page_table(comparison, table))),
    );
    let page = figure::report(&figure::Report {
        title: title(comparison),
        question: question(comparison),
        summary: comparison.lines(),
        parts,
        notes: notes(args, comparison),
    });
    dir.write("report.html", page.as_bytes())?;
    dir.write("report.md", markdown(args, comparison).as_bytes())?;
    Ok(())
}

fn title(comparison: &Comparison) -> String {
    format!("What {} is worth", comparison.key)
}

fn question(comparison: &Comparison) -> String {
    format!(
        "which of {} = {} trains the better drafter, on the same data and budget?",
        comparison.key,
        comparison.values.join(", ")
    )
}

fn notes(args: &AblateArgs, comparison: &Comparison) -> Vec<String> {
    let seeds: Vec<String> = comparison.seeds.iter().map(u64::to_string).collect();
    vec![
        format!(
            "Each value was trained from scratch with seeds {}: equal seeds share microbatches and initial weights, so differences are paired. ± is a 95 % interval (Student's t) over seeds.",
            seeds.join(", ")
        ),
        format!("Command: {}", command(args, comparison)),
        format!("dflash {}", env!("CARGO_PKG_VERSION")),
    ]
}

/// The call that makes the same again, whatever was left to its default spelled out.
fn command(args: &AblateArgs, comparison: &Comparison) -> String {
    let seeds: Vec<String> = comparison.seeds.iter().map(u64::to_string).collect();
    let flags = [
        ("--policy", Some(args.policy.display().to_string())),
        (
            "--vary",
            Some(format!(
                "{}={}",
                comparison.key,
                comparison.values.join(",")
            )),
        ),
        ("--seeds", Some(seeds.join(","))),
        ("--prompts", Some(args.prompts.display().to_string())),
        ("--prompts-max", args.prompts_max.map(|n| n.to_string())),
        (
            "--max-new-tokens",
            args.max_new_tokens.map(|n| n.to_string()),
        ),
        (
            "--loss-on",
            args.loss_on.as_ref().map(|path| path.display().to_string()),
        ),
        ("--backend", Some(args.backend.name())),
    ];
    let flags = flags
        .into_iter()
        .filter_map(|(flag, value)| Some((flag, value?)));
    let sets = args.sets.iter().map(|set| ("--set", set.clone()));
    flags
        .chain(sets)
        .fold("dflash ablate".to_owned(), |call, (flag, value)| {
            format!("{call} {flag} {value}")
        })
}

fn figure_of(args: &AblateArgs, comparison: &Comparison) -> Groups {
    let value = |cell: &super::compare::Cell| GroupValue {
        mean: cell.mean.mean,
        low: cell.mean.low(),
        high: cell.mean.high(),
        runs: cell.runs.clone(),
    };
    let panel = |table: &Table| GroupPanel {
        title: table.quantity.title().into(),
        axis: format!("{} [{}]", table.quantity.title(), table.quantity.unit()),
        groups: table.groups.clone(),
        series: comparison
            .values
            .iter()
            .zip(&table.rows)
            .map(|(name, row)| GroupSeries {
                name: name.clone(),
                values: row.iter().map(value).collect(),
            })
            .collect(),
    };
    Groups {
        heading: Heading {
            title: title(comparison),
            shown: format!(
                "mean and 95 % interval over {} seeds; dots are runs",
                comparison.seeds.len()
            ),
            scenario: args
                .policy
                .file_stem()
                .map_or_else(String::new, |s| s.to_string_lossy().into_owned()),
            seed: None,
        },
        panels: comparison.tables.iter().map(panel).collect(),
    }
}

fn header(comparison: &Comparison) -> Vec<String> {
    vec![
        "group".into(),
        comparison.key.clone(),
        "mean".into(),
        format!("against {}", comparison.values[0]),
        "verdict".into(),
    ]
}

fn rows(comparison: &Comparison, table: &Table) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (column, group) in table.groups.iter().enumerate() {
        for (number, value) in comparison.values.iter().enumerate() {
            let cell = &table.rows[number][column];
            let (difference, judged) = match number {
                0 => (String::new(), String::new()),
                _ => (
                    signed(&cell.difference),
                    verdict(&cell.difference).to_owned(),
                ),
            };
            rows.push(vec![
                group.clone(),
                value.clone(),
                interval(&cell.mean),
                difference,
                judged,
            ]);
        }
    }
    rows
}

fn caption(table: &Table) -> String {
    format!("{} [{}]", table.quantity.title(), table.quantity.unit())
}

fn page_table(comparison: &Comparison, table: &Table) -> figure::Table {
    figure::Table {
        caption: caption(table),
        header: header(comparison),
        rows: rows(comparison, table),
    }
}

fn markdown(args: &AblateArgs, comparison: &Comparison) -> String {
    let mut text = format!("# {}\n\n", title(comparison));
    comparison
        .lines()
        .iter()
        .for_each(|line| text += &format!("- {line}\n"));
    text += "\n![Mean and interval of each variant](ablation.png)\n";
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    for table in &comparison.tables {
        let header = header(comparison);
        text += &format!(
            "\n## {}\n\n{}|{}\n",
            caption(table),
            line(&header),
            "---|".repeat(header.len())
        );
        rows(comparison, table)
            .iter()
            .for_each(|row| text += &line(row));
    }
    text += "\n";
    notes(args, comparison)
        .iter()
        .for_each(|note| text += &format!("{note}\n\n"));
    text
}

fn csv(comparison: &Comparison) -> Result<String, Failure> {
    let failed = |e: &dyn std::fmt::Display| Failure::usage(format!("ablation.csv: {e}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    let head = ["key", "value", "seed", "quantity", "group", "result"];
    writer.write_record(head).map_err(|e| failed(&e))?;
    for outcome in &comparison.outcomes {
        let quantities = [
            ("acceptance_length", &outcome.acceptance),
            ("held_out_loss", &outcome.loss),
        ];
        for (quantity, groups) in quantities {
            for (group, result) in groups {
                let seed = outcome.seed.to_string();
                let result = result.to_string();
                let row = [
                    &comparison.key,
                    &outcome.value,
                    &seed,
                    quantity,
                    group,
                    &result,
                ];
                writer.write_record(row).map_err(|e| failed(&e))?;
            }
        }
        let loss = outcome.train_loss.to_string();
        let seed = outcome.seed.to_string();
        let row = [
            &comparison.key,
            &outcome.value,
            &seed,
            "train_loss_end",
            "all",
            &loss,
        ];
        writer.write_record(row).map_err(|e| failed(&e))?;
    }
    let bytes = writer.into_inner().map_err(|e| failed(&e))?;
    String::from_utf8(bytes).map_err(|e| failed(&e))
}
