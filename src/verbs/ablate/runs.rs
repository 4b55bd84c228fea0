//! The runs of an ablation, and making one.

use super::Outcome;
use crate::cli::AblateArgs;
use crate::failure::{Failure, code};
use crate::output::write_atomic;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The key that is varied, and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Vary {
    pub(super) key: String,
    pub(super) values: Vec<String>,
}

impl Vary {
    /// Reads `KEY=V1,V2,...`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let expected = "write KEY=VALUE,VALUE,... with at least two values, such as policy.fill=even,random,one-bucket";
        let (key, values) = text
            .split_once('=')
            .ok_or_else(|| format!("--vary: \"{text}\" names no values; {expected}"))?;
        let values: Vec<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
        if key.is_empty() || values.len() < 2 || values.iter().any(String::is_empty) {
            return Err(format!(
                "--vary: \"{text}\" has nothing to compare; {expected}"
            ));
        }
        if let Some(twice) = (1..values.len()).find(|&i| values[..i].contains(&values[i])) {
            return Err(format!(
                "--vary: \"{}\" stands twice in \"{text}\"; name each value once",
                values[twice]
            ));
        }
        Ok(Self {
            key: key.trim().to_owned(),
            values,
        })
    }

    /// Every value with every seed, seed by seed, so that an interrupted ablation holds whole comparisons.
    /// `target_seed` fixes a target of random weights.
    pub(super) fn runs(&self, args: &AblateArgs, target_seed: Option<u64>) -> Vec<Run> {
        let of = |seed: u64| {
            self.values
                .iter()
                .map(move |value| Run::new(self, value, seed, target_seed, args))
        };
        args.seeds.iter().flat_map(|&seed| of(seed)).collect()
    }
}

/// One training.
#[derive(Clone, Debug)]
pub(super) struct Run {
    value: String,
    seed: u64,
    dir: PathBuf,
    train: Vec<String>,
}

impl Run {
    fn new(
        vary: &Vary,
        value: &str,
        seed: u64,
        target_seed: Option<u64>,
        args: &AblateArgs,
    ) -> Self {
        let name: String = value
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || ".-_".contains(c) {
                    c
                } else {
                    '-'
                }
            })
            .collect();
        let dir = args
            .out
            .join("runs")
            .join(name)
            .join(format!("seed-{seed}"));
        let mut train = vec![
            "exec".to_owned(),
            "--policy".to_owned(),
            shown(&args.policy),
        ];
        let own = [format!("{}={value}", vary.key), format!("seed={seed}")];
        let target = target_seed.map(|seed| format!("exec.target.seed={seed}"));
        for set in args.sets.iter().cloned().chain(own).chain(target) {
            train.extend(["--set".to_owned(), set]);
        }
        let backend = args.backend.name();
        train.extend(["--backend".into(), backend, "--out".into(), shown(&dir)]);
        Self {
            value: value.to_owned(),
            seed,
            train,
            dir,
        }
    }

    pub(super) fn title(&self) -> String {
        format!("{}, seed {}", self.value, self.seed)
    }

    /// Trains. The terminal is the child's meanwhile; of a run beside others, what it says goes to a log file.
    pub(super) fn make(&self, is_beside_others: bool) -> Result<(), Failure> {
        if self.dir.exists() {
            // What stands there is of an interrupted run, or of other arguments.
            std::fs::remove_dir_all(&self.dir).map_err(|e| {
                let message = format!(
                    "{}: cannot be cleared for a new run: {e}; give --out another directory",
                    self.dir.display()
                );
                Failure::new(crate::output::OutputError::CODE, message)
            })?;
        }
        let log = is_beside_others.then(|| self.dir.with_extension("log"));
        call(&self.train, log.as_deref())?;
        write_atomic(&self.dir.join(ARGUMENTS), line(&self.train).as_bytes())?;
        Ok(())
    }

    /// Whether an earlier call made it with the same arguments.
    pub(super) fn is_made(&self) -> bool {
        is_made(&self.dir, &self.train)
    }
}

/// Takes back what vouches for an evaluation: a drafter that is trained anew must be judged anew.
pub(super) fn forget_evaluation(out: &Path) -> Result<(), Failure> {
    let path = out.join("eval").join(ARGUMENTS);
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            let message = format!(
                "{}: cannot be removed: {e}; give --out another directory",
                path.display()
            );
            Err(Failure::new(crate::output::OutputError::CODE, message))
        }
        _ => Ok(()),
    }
}

/// Whether what stands in `dir` came of these arguments.
fn is_made(dir: &Path, arguments: &[String]) -> bool {
    let said = std::fs::read_to_string(dir.join(ARGUMENTS));
    said.is_ok_and(|said| said == line(arguments))
}

fn line(arguments: &[String]) -> String {
    arguments.join("\t") + "\n"
}

/// Judges the drafters of all runs by the same answers; what was judged before stands.
pub(super) fn evaluate(runs: &[Run], args: &AblateArgs) -> Result<Vec<Outcome>, Failure> {
    let out = args.out.join("eval");
    let mut eval = vec![
        "eval".to_owned(),
        "--policy".to_owned(),
        shown(&args.policy),
    ];
    for set in &args.sets {
        eval.extend(["--set".to_owned(), set.clone()]);
    }
    for run in runs {
        eval.extend([
            "--checkpoint".to_owned(),
            shown(&run.dir.join("checkpoint")),
        ]);
    }
    let more = [
        ("--prompts", Some(shown(&args.prompts))),
        ("--prompts-max", args.prompts_max.map(|n| n.to_string())),
        (
            "--max-new-tokens",
            args.max_new_tokens.map(|n| n.to_string()),
        ),
        ("--loss-on", args.loss_on.as_deref().map(shown)),
        // Answers of the target itself are what all are judged by.
        ("--verify", Some("none".to_owned())),
        ("--out", Some(shown(&out))),
    ];
    for (flag, value) in more {
        eval.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
    }
    if !is_made(&out, &eval) {
        call(&eval, None)?;
        write_atomic(&out.join(ARGUMENTS), line(&eval).as_bytes())?;
    }
    let read = |run: &Run| Outcome::read(&run.value, run.seed, &run.dir, &out);
    runs.iter()
        .map(|run| read(run).map_err(Failure::data))
        .collect()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Written last, so that it vouches for the run beside it.
const ARGUMENTS: &str = "arguments.txt";

fn call(arguments: &[String], log: Option<&Path>) -> Result<(), Failure> {
    let verb = &arguments[0];
    let failed = |what: String| Failure::new(code::WORKER, format!("dflash {verb}: {what}"));
    let program =
        std::env::current_exe().map_err(|e| failed(format!("cannot find this program: {e}")))?;
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(log) = log {
        let unwritable = |e: std::io::Error| failed(format!("{}: {e}", log.display()));
        if let Some(folder) = log.parent() {
            std::fs::create_dir_all(folder).map_err(unwritable)?;
        }
        let file = std::fs::File::options().create(true).append(true).open(log);
        let file = file.map_err(unwritable)?;
        command
            .stdout(file.try_clone().map_err(unwritable)?)
            .stderr(file);
    }
    let status = command
        .status()
        .map_err(|e| failed(format!("cannot be started: {e}")))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(number) => {
            let command = arguments.join(" ");
            let number = u8::try_from(number).unwrap_or(code::WORKER);
            Err(Failure::new(
                number,
                format!(
                    "dflash {command}: ended with exit code {number}; finished runs are kept and not made again"
                ),
            ))
        }
        None => Err(failed(
            "was killed; finished runs are kept and not made again".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evaluation_stands_until_a_drafter_is_trained_anew() {
        let folder = tempfile::tempdir().unwrap();
        let eval = folder.path().join("eval");
        std::fs::create_dir(&eval).unwrap();
        let arguments = ["eval".to_owned()];
        forget_evaluation(folder.path()).unwrap();
        write_atomic(&eval.join(ARGUMENTS), line(&arguments).as_bytes()).unwrap();
        assert!(is_made(&eval, &arguments));
        assert!(!is_made(&eval, &["other".to_owned()]));
        forget_evaluation(folder.path()).unwrap();
        assert!(!is_made(&eval, &arguments));
    }

    #[test]
    fn values_are_read_in_their_order() {
        let vary = Vary::parse("policy.fill=even, random,one-bucket").unwrap();
        assert_eq!(vary.key, "policy.fill");
        assert_eq!(vary.values, ["even", "random", "one-bucket"]);
    }

    #[test]
    fn what_compares_nothing_is_refused() {
        for (text, part) in [
            ("policy.fill", "names no values"),
            ("policy.fill=even", "nothing to compare"),
            ("policy.fill=even,", "nothing to compare"),
            ("=a,b", "nothing to compare"),
            ("k=a,b,a", "\"a\" stands twice"),
        ] {
            let error = Vary::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
