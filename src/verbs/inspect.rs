//! `dflash inspect`: would a serving engine load this drafter, and why not.

use crate::cli::{EngineArg, InspectArgs};
use crate::failure::Failure;
use crate::terminal::{bar, say};
use exec::checkpoint::{Check, Engine, InspectError, Inspection, Severity, TargetFacts, inspect};
use indicatif::ProgressBar;
use serde_json::json;

pub(crate) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let engines: &[Engine] = match args.engine {
        EngineArg::Vllm => &[Engine::Vllm],
        EngineArg::Sglang => &[Engine::Sglang],
        EngineArg::Both => &Engine::ALL,
    };
    let target = args.target.as_deref().map(TargetFacts::read);
    let target = target.transpose().map_err(of_inspect)?;
    let mut shown: Option<ProgressBar> = None;
    let mut progress = |read, total| {
        let shown = shown.get_or_insert_with(|| bar(total, "bytes of weights"));
        shown.set_position(read);
    };
    let inspected = inspect(&args.dir, target.as_ref(), &mut progress);
    if let Some(shown) = shown {
        shown.finish_and_clear();
    }
    let inspection = inspected.map_err(of_inspect)?;
    let asked = |check: &&Check| check.engines.iter().any(|e| engines.contains(e));
    let checks: Vec<&Check> = inspection.checks.iter().filter(asked).collect();
    if args.json {
        checks.iter().for_each(|check| say(object(check, engines)));
    } else {
        say(inspection.dir.display());
        table(&checks, engines).into_iter().for_each(say);
    }
    answer(&inspection, &checks, engines, args.json)
}

/// One line an engine; an error where one of them would not load it.
fn answer(
    inspection: &Inspection,
    checks: &[&Check],
    engines: &[Engine],
    as_json: bool,
) -> Result<(), Failure> {
    let warnings = checks
        .iter()
        .filter(|check| check.severity == Severity::Warning)
        .count();
    let mut refusing = Vec::new();
    for engine in engines {
        let loads = inspection.loads(*engine);
        if !loads {
            refusing.push(engine.name());
        }
        if as_json {
            say(json!({"engine": engine.name(), "loads": loads}));
        } else {
            let verdict = if loads {
                "loads it"
            } else {
                "would not load it"
            };
            say(format!("{} {verdict}", engine.name()));
        }
    }
    if refusing.is_empty() {
        if warnings > 0 && !as_json {
            say(format!("{warnings} to look at above"));
        }
        return Ok(());
    }
    let reasons = checks
        .iter()
        .filter(|check| check.severity == Severity::Refused)
        .count();
    Err(Failure::no(format!(
        "{}: {} would not load it, for {reasons} reason{} above",
        inspection.dir.display(),
        refusing.join(" and "),
        if reasons == 1 { "" } else { "s" }
    )))
}

/// Checks as lines in columns: how it came out, for whom, what, and what to do.
fn table(checks: &[&Check], engines: &[Engine]) -> Vec<String> {
    let width = checks.iter().map(|check| check.subject.chars().count());
    let width = width.max().unwrap_or(0).min(SUBJECT_MAX);
    let mut lines = Vec::new();
    for check in checks {
        let whom = whom(check, engines);
        let whom = if whom.len() == engines.len() && check.severity == Severity::Passed {
            String::new()
        } else {
            whom.join(", ")
        };
        lines.push(format!(
            "{:<8} {whom:<13} {:<width$}  {}",
            check.severity.name(),
            check.subject,
            check.finding
        ));
        if !check.way_out.is_empty() {
            let blank = "";
            lines.push(format!(
                "{blank:<8} {blank:<13} {blank:<width$}  -> {}",
                check.way_out
            ));
        }
    }
    lines
}

/// Longest subject that sets the width of its column. (characters)
const SUBJECT_MAX: usize = 44;

fn whom(check: &Check, engines: &[Engine]) -> Vec<&'static str> {
    let asked = check.engines.iter().filter(|e| engines.contains(e));
    asked.map(|engine| engine.name()).collect()
}

fn object(check: &Check, engines: &[Engine]) -> serde_json::Value {
    json!({
        "severity": check.severity.name(),
        "engines": whom(check, engines),
        "subject": check.subject,
        "finding": check.finding,
        "way_out": check.way_out,
    })
}

fn of_inspect(error: InspectError) -> Failure {
    match error {
        InspectError::Target { .. } => Failure::data(error),
        InspectError::NoFolder { .. } | InspectError::NoDrafter { .. } => Failure::usage(error),
    }
}
