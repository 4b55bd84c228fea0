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
    pub(super) fn runs(&self, args: &AblateArgs) -> Vec<Run> {
        let of = |seed: u64| {
            self.values
                .iter()
                .map(move |value| Run::new(self, value, seed, args))
        };
        args.seeds.iter().flat_map(|&seed| of(seed)).collect()
    }
}

/// One training and its evaluation.
#[derive(Clone, Debug)]
pub(super) struct Run {
    value: String,
    seed: u64,
    dir: PathBuf,
    train: Vec<String>,
    eval: Vec<String>,
}

impl Run {
    fn new(vary: &Vary, value: &str, seed: u64, args: &AblateArgs) -> Self {
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
        let path = |path: &Path| path.display().to_string();
        let mut shared = vec!["--policy".to_owned(), path(&args.policy)];
        let own = [format!("{}={value}", vary.key), format!("seed={seed}")];
        for set in args.sets.iter().cloned().chain(own) {
            shared.extend(["--set".to_owned(), set]);
        }
        let with = |verb: &str, more: Vec<String>| -> Vec<String> {
            std::iter::once(verb.to_owned())
                .chain(shared.clone())
                .chain(more)
                .collect()
        };
        let backend = args.backend.name().to_owned();
        let train = with(
            "exec",
            vec!["--backend".into(), backend, "--out".into(), path(&dir)],
        );
        let mut eval = vec![
            "--checkpoint".to_owned(),
            path(&dir.join("checkpoint")),
            "--prompts".to_owned(),
            path(&args.prompts),
            "--out".to_owned(),
            path(&dir.join("eval")),
        ];
        if let Some(tokens) = args.max_new_tokens {
            eval.extend(["--max-new-tokens".to_owned(), tokens.to_string()]);
        }
        if let Some(prompts) = args.prompts_max {
            eval.extend(["--prompts-max".to_owned(), prompts.to_string()]);
        }
        if let Some(data) = &args.loss_on {
            eval.extend(["--loss-on".to_owned(), path(data)]);
        }
        Self {
            value: value.to_owned(),
            seed,
            train,
            eval: with("eval", eval),
            dir,
        }
    }

    pub(super) fn title(&self) -> String {
        format!("{}, seed {}", self.value, self.seed)
    }

    /// Trains and evaluates. The terminal is the children's meanwhile; of runs beside others, what they say goes to `log.txt`.
    pub(super) fn make(&self, is_beside_others: bool) -> Result<(), Failure> {
        if self.dir.exists() {
            // What stands there is of an interrupted run, or of other arguments.
            std::fs::remove_dir_all(&self.dir).map_err(|e| {
                Failure::new(
                    crate::output::OutputError::CODE,
                    format!(
                        "{}: cannot be cleared for a new run: {e}; give --out another directory",
                        self.dir.display()
                    ),
                )
            })?;
        }
        let log = is_beside_others.then(|| self.dir.with_extension("log"));
        call(&self.train, log.as_deref())?;
        call(&self.eval, log.as_deref())?;
        write_atomic(&self.dir.join(ARGUMENTS), self.arguments().as_bytes())?;
        Ok(())
    }

    /// What an earlier call of the same arguments left.
    pub(super) fn made_before(&self) -> Result<Option<Outcome>, Failure> {
        let said = std::fs::read_to_string(self.dir.join(ARGUMENTS)).unwrap_or_default();
        if said != self.arguments() {
            return Ok(None);
        }
        self.read().map(Some)
    }

    pub(super) fn read(&self) -> Result<Outcome, Failure> {
        Outcome::read(&self.value, self.seed, &self.dir).map_err(Failure::data)
    }

    fn arguments(&self) -> String {
        format!("{}\n{}\n", self.train.join("\t"), self.eval.join("\t"))
    }
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
    use super::Vary;

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
