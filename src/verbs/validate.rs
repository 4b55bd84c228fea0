//! `dflash validate`: what queueing theory has solved, through the engine and core that serve users.

use crate::cli::ValidateArgs;
use crate::failure::Failure;
use crate::output::write_atomic;
use crate::terminal::{bar, say};
use shared::draw::Seed;
use sim::validate::{
    CONFIDENCE, Case, Effort, Finding, LAWS, OUT_OF_SCOPE, Report, Verdict, suite,
};
use std::path::Path;

pub(crate) fn run(args: &ValidateArgs) -> Result<(), Failure> {
    let cases = chosen(&args.cases)?;
    let effort = Effort {
        shorter: args.shorter,
    };
    let items = cases.iter().map(|case| case.items(effort)).sum();
    let progress = bar(items, "microbatches");
    let seed = Seed(args.seed);
    let mut reports = Vec::new();
    for case in &cases {
        let report = case.validate(seed, effort, &|items| progress.inc(items));
        progress.suspend(|| show(&report, args.json));
        reports.push(report);
    }
    progress.finish_and_clear();
    if let Some(path) = &args.csv {
        write_csv(path, &reports)?;
    }
    if args.json {
        say(summary_object(&reports));
    } else {
        let all = args.cases.is_empty();
        summary(&reports, all).iter().for_each(say);
    }
    verdict(&reports)
}

/// The cases asked for, or all.
fn chosen(names: &[String]) -> Result<Vec<Case>, Failure> {
    let mut all = suite();
    let mut known = Vec::new();
    for name in all.iter().map(Case::name) {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        let out = OUT_OF_SCOPE.iter().find(|(case, _)| case == name);
        return Err(Failure::usage(match out {
            Some((_, why)) => format!("--cases {name}: is out of scope: {why}"),
            None => format!("--cases {name}: is no case; choose of {}", known.join(", ")),
        }));
    }
    all.retain(|case| names.is_empty() || names.iter().any(|name| name == case.name()));
    Ok(all)
}

fn show(report: &Report, as_json: bool) {
    if as_json {
        for finding in &report.findings {
            say(object(report, finding));
        }
        return;
    }
    say(format!("{}: {}", report.case, report.how));
    let mut parameters = "";
    for finding in &report.findings {
        if finding.exact.parameters != parameters {
            parameters = &finding.exact.parameters;
            say(format!("  {parameters}"));
        }
        say(row(finding));
    }
    if report.runs > 0 {
        let laws = match report.broken.as_slice() {
            [] => "every law holds on every run".to_owned(),
            broken => format!("BROKEN: {}", broken.join("; ")),
        };
        say(format!(
            "  {} runs, {} microbatches: {laws}",
            report.runs, report.items
        ));
    }
}

fn row(finding: &Finding) -> String {
    let exact = number(finding.exact.value);
    let simulated = number(finding.simulated);
    let interval = if finding.half_width > 0.0 {
        format!(
            "[{}, {}] {:5.2} %",
            number(finding.simulated - finding.half_width),
            number(finding.simulated + finding.half_width),
            100.0 * finding.width
        )
    } else {
        "without chance".to_owned()
    };
    format!(
        "    {:<22} exact {exact:>14}  simulated {simulated:>14}  {interval:<34}  {}",
        finding.exact.metric,
        word(finding.verdict)
    )
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::HoldsAgain => "holds (second look)",
        Verdict::Wide => "TOO WIDE",
        Verdict::Fails => "FAILS",
    }
}

/// Six digits, whole numbers whole.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1e5 || value.fract() == 0.0 => 0,
        size if size >= 100.0 => 3,
        size if size >= 1.0 => 5,
        _ => 7,
    };
    format!("{value:.digits$}")
}

fn object(report: &Report, finding: &Finding) -> serde_json::Value {
    serde_json::json!({
        "case": report.case,
        "parameters": finding.exact.parameters,
        "how": report.how,
        "metric": finding.exact.metric,
        "exact": finding.exact.value,
        "simulated": finding.simulated,
        "low": finding.simulated - finding.half_width,
        "high": finding.simulated + finding.half_width,
        "width": finding.width,
        "verdict": word(finding.verdict),
        "source": finding.exact.source,
    })
}

fn write_csv(path: &Path, reports: &[Report]) -> Result<(), Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let titles = [
        "case",
        "parameters",
        "how",
        "metric",
        "exact",
        "simulated",
        "low",
        "high",
        "width",
        "verdict",
        "source",
    ];
    let mut records = vec![titles.map(str::to_owned)];
    for report in reports {
        records.extend(report.findings.iter().map(|f| {
            [
                report.case.to_owned(),
                f.exact.parameters.clone(),
                report.how.to_owned(),
                f.exact.metric.clone(),
                f.exact.value.to_string(),
                f.simulated.to_string(),
                (f.simulated - f.half_width).to_string(),
                (f.simulated + f.half_width).to_string(),
                f.width.to_string(),
                word(f.verdict).to_owned(),
                f.exact.source.clone(),
            ]
        }));
    }
    for record in &records {
        writer
            .write_record(record)
            .expect("records are as long as the titles, and memory takes them");
    }
    let bytes = writer.into_inner().expect("memory takes what is written");
    write_atomic(path, &bytes)?;
    Ok(())
}

fn counts(reports: &[Report]) -> (usize, usize) {
    let findings = reports.iter().flat_map(|report| &report.findings);
    let held = findings.clone().filter(|f| f.verdict.holds()).count();
    (held, findings.count())
}

fn summary(reports: &[Report], all: bool) -> Vec<String> {
    let (held, count) = counts(reports);
    let runs: u32 = reports.iter().map(|report| report.runs).sum();
    let items: u64 = reports.iter().map(|report| report.items).sum();
    let mut lines = vec![format!(
        "{held} of {count} values hold, in intervals of {:.0} % confidence",
        100.0 * CONFIDENCE
    )];
    if runs > 0 {
        lines.push(format!(
            "checked on each of {runs} runs ({items} microbatches): {}",
            LAWS.join(", ")
        ));
    }
    if all {
        for (case, why) in OUT_OF_SCOPE {
            lines.push(format!("out of scope: {case}: {why}"));
        }
    }
    lines
}

fn summary_object(reports: &[Report]) -> serde_json::Value {
    let (held, count) = counts(reports);
    let out: Vec<_> = OUT_OF_SCOPE
        .iter()
        .map(|(case, why)| serde_json::json!({ "case": case, "why": why }))
        .collect();
    serde_json::json!({
        "values": count,
        "hold": held,
        "broken_laws": reports.iter().flat_map(|r| &r.broken).collect::<Vec<_>>(),
        "out_of_scope": out,
    })
}

fn verdict(reports: &[Report]) -> Result<(), Failure> {
    let failed = reports.iter().flat_map(|report| {
        let values = report.findings.iter().filter(|f| !f.verdict.holds());
        let values = values.map(|f| {
            format!(
                "{} ({}) {}: exact {}, simulated {} +- {}: {}",
                report.case,
                f.exact.parameters,
                f.exact.metric,
                f.exact.value,
                number(f.simulated),
                number(f.half_width),
                word(f.verdict)
            )
        });
        let laws = report.broken.iter();
        values.chain(laws.map(|law| format!("{}: {law}", report.case)))
    });
    let failed: Vec<String> = failed.collect();
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::no(failed.join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::validate::rows;

    fn report(simulated: f64, verdict: Verdict) -> Report {
        Report {
            case: "MM1",
            how: "one server",
            findings: vec![Finding {
                exact: rows()[1].clone(),
                simulated,
                half_width: 0.02,
                width: 0.01,
                verdict,
            }],
            runs: 48,
            items: 4_800,
            broken: Vec::new(),
        }
    }

    #[test]
    fn a_row_shows_both_values_the_interval_and_the_verdict() {
        let shown = row(&report(4.01, Verdict::Holds).findings[0]);
        assert_eq!(
            shown,
            "    L                      exact              4  simulated        4.01000  [3.99000, 4.03000]  1.00 %          holds"
        );
    }

    #[test]
    fn one_value_that_fails_is_a_no_that_names_it() {
        assert!(verdict(&[report(4.01, Verdict::HoldsAgain)]).is_ok());
        let failure = verdict(&[report(5.0, Verdict::Fails), report(4.0, Verdict::Holds)]);
        let failure = failure.unwrap_err();
        assert_eq!(failure.code, 1);
        assert_eq!(
            failure.message,
            "MM1 (lambda=0.8; mu=1; FIFO) L: exact 4, simulated 5 +- 0.0200000: FAILS"
        );
        let mut broken = report(4.0, Verdict::Holds);
        broken
            .broken
            .push("Little's law: 1 and 2 slots x ns".into());
        assert!(
            verdict(&[broken])
                .unwrap_err()
                .message
                .contains("Little's law")
        );
    }

    #[test]
    fn a_case_that_does_not_exist_or_is_out_of_scope_is_refused_with_the_way_out() {
        let refused = |name: &str| chosen(&[name.to_owned()]).err().expect("refused").message;
        assert!(refused("MM2").contains("is no case; choose of MM1, "));
        assert!(refused("jackson_open").contains("out of scope"));
        assert_eq!(chosen(&["MD1".to_owned()]).unwrap().len(), 1);
    }
}
