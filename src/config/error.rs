//! Everything that can be wrong with configuration, one line each.

use std::fmt;
use std::path::PathBuf;
use toml::Value;

/// Where a value came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The file or the flag.
    pub(crate) source: Source,
    /// Its line there, from 1; flags have none.
    pub(crate) line: Option<usize>,
}

/// What configuration is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// Nothing was given.
    #[default]
    Nothing,
    /// A `--set` flag, by what followed it.
    Flag(String),
    /// A file, by its path as given.
    File(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no file given"),
            Self::Flag(text) => write!(f, "--set {}", one_line(text)),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    /// A named file is not there.
    #[error("{}: no such file; check the path", file.display())]
    NoFile {
        /// The path as given.
        file: PathBuf,
    },
    /// A named file is a directory.
    #[error("{}: is a directory; name a TOML file in it", file.display())]
    Directory {
        /// The path as given.
        file: PathBuf,
    },
    /// The file is there, but reading it failed.
    #[error("{}: cannot be read: {reason}; check its permissions and the disk", file.display())]
    Unreadable {
        /// The path as given.
        file: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The file is larger than any configuration.
    #[error("{}: is larger than {max} bytes; keep lengths and tables in files of their own", file.display())]
    TooLarge {
        /// The path as given.
        file: PathBuf,
        /// The limit. (bytes)
        max: u64,
    },
    /// The file is not text.
    #[error("{}: is not UTF-8 (line {line}, column {column}); save it as UTF-8 text", file.display())]
    NotUtf8 {
        /// The path as given.
        file: PathBuf,
        /// Line of the first bad byte, from 1.
        line: usize,
        /// Bytes before it on its line, plus 1.
        column: usize,
    },
    /// The file is not TOML.
    #[error("{}: not valid TOML: {message} (line {line}, column {column})", file.display())]
    Syntax {
        /// The path as given.
        file: PathBuf,
        /// What was expected.
        message: String,
        /// Line, from 1.
        line: usize,
        /// Characters before it on its line, plus 1.
        column: usize,
    },
    /// A `--set` flag cannot be read or applied.
    #[error("--set {}: {message}", one_line(flag))]
    Flag {
        /// What followed `--set`.
        flag: String,
        /// What is wrong and what to write.
        message: String,
    },
    /// One key is wrong.
    #[error("{}", key_line(place, key, fault))]
    Key {
        /// Where it stands.
        place: Place,
        /// Its dotted path; empty for the whole file.
        key: String,
        /// What is wrong with it.
        fault: Box<KeyFault>,
    },
}

/// What is wrong with a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyFault {
    /// Nobody reads this key.
    #[error("unknown key{}", advice(key, known))]
    Unknown {
        /// The key.
        key: String,
        /// What is read here.
        known: &'static [&'static str],
    },
    /// A required key is not there.
    #[error("missing key {0:?}; add it")]
    Missing(&'static str),
    /// A choice that does not exist.
    #[error("unknown value {value:?}{}", advice(value, known))]
    UnknownValue {
        /// What was chosen.
        value: String,
        /// The choices.
        known: &'static [&'static str],
    },
    /// The value is of another type or out of its type's range.
    #[error("{found} is not accepted; write {accepted}")]
    Type {
        /// The value.
        found: String,
        /// What is accepted.
        accepted: String,
    },
    /// The value fits its type but not the model.
    #[error("{value} {limit}; {way_out}")]
    Limit {
        /// The value.
        value: String,
        /// What it must be.
        limit: String,
        /// What to do.
        way_out: String,
    },
    /// Any other refusal; the text names value and way out.
    #[error("{0}")]
    Other(String),
    /// More points than allowed.
    #[error(
        "the ranges make {count} points, at most {max} are allowed; shorten them or raise --max-points"
    )]
    TooManyPoints {
        /// How many, in digits.
        count: String,
        /// The limit.
        max: u64,
    },
    /// A range where none may be.
    #[error(
        "{found} is a range; a policy is concrete; run `dflash sim` on a scenario to choose one"
    )]
    RangeInPolicy {
        /// The range as written.
        found: String,
    },
}

/// All that is wrong, in the order of the files: never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigErrors(Vec<ConfigError>);

/// Exit code of errors in usage and configuration.
const CODE_USAGE: u8 = 2;
/// Exit code of errors of disks.
const CODE_DISK: u8 = 4;

impl ConfigError {
    /// The process's exit code.
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Unreadable { .. } => CODE_DISK,
            _ => CODE_USAGE,
        }
    }

    fn position(&self) -> Option<&Place> {
        match self {
            Self::Key { place, .. } => Some(place),
            _ => None,
        }
    }
}

impl ConfigErrors {
    /// The given errors, if there are any.
    ///
    /// # Errors
    /// When there is at least one.
    pub(crate) fn check(errors: Vec<ConfigError>) -> Result<(), Self> {
        match errors.is_empty() {
            true => Ok(()),
            false => Err(Self::sorted(errors)),
        }
    }

    /// At least one error, put in the order of the files.
    pub(super) fn sorted(mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by(|a, b| a.position().cmp(&b.position()));
        Self(errors)
    }

    /// The process's exit code: that of a disk error if there is one.
    pub(crate) fn code(&self) -> u8 {
        self.0
            .iter()
            .map(ConfigError::code)
            .max()
            .unwrap_or(CODE_USAGE)
    }

    /// Each error.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, error) in self.iter().enumerate() {
            let line_break = if position > 0 { "\n" } else { "" };
            write!(f, "{line_break}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// A value as a file would write it, on one line and not too long.
pub(crate) fn shown(value: &Value) -> String {
    const SHOWN_MAX: usize = 60;
    let text = value.to_string();
    let line = one_line(&text);
    match line.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// A text with its line breaks and other control characters spelled out.
pub(super) fn one_line(text: &str) -> String {
    let spell = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(spell).collect()
}

fn key_line(place: &Place, key: &str, fault: &KeyFault) -> String {
    let key = match key {
        "" => String::new(),
        key => format!("{key}: "),
    };
    let line = place
        .line
        .map(|line| format!(" (line {line})"))
        .unwrap_or_default();
    format!("{}: {key}{fault}{line}", place.source)
}

/// The nearest of what is known, or all of it.
fn advice(word: &str, known: &[&str]) -> String {
    let quoted = |words: &[&str]| {
        let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        quoted.join(", ")
    };
    match (nearest(word, known), known) {
        (Some(near), _) => format!(", did you mean {near:?}?"),
        (None, []) => "; remove it, nothing is read here".into(),
        (None, known) => format!("; known here: {}", quoted(known)),
    }
}

/// The most similar of `known`, if it is similar at all.
fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    const SIMILAR: f64 = 0.6;
    let similarity = |candidate: &str| strsim::normalized_damerau_levenshtein(word, candidate);
    known
        .iter()
        .copied()
        .max_by(|a, b| similarity(a).total_cmp(&similarity(b)))
        .filter(|best| similarity(best) >= SIMILAR)
        .or_else(|| {
            known
                .iter()
                .copied()
                .find(|known| word.len() > 2 && known.contains(word))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["depth_total", "depth_per_bucket", "token_budget"];

    #[test]
    fn near_words_are_suggested_and_far_ones_listed() {
        assert_eq!(
            advice("depth_totl", KNOWN),
            ", did you mean \"depth_total\"?"
        );
        assert_eq!(advice("budget", KNOWN), ", did you mean \"token_budget\"?");
        assert_eq!(
            advice("colour", KNOWN),
            "; known here: \"depth_total\", \"depth_per_bucket\", \"token_budget\""
        );
        assert_eq!(advice("colour", &[]), "; remove it, nothing is read here");
    }

    #[test]
    fn a_disk_error_decides_the_exit_code() {
        let no_file = ConfigError::NoFile { file: "a".into() };
        let disk = ConfigError::Unreadable {
            file: "b".into(),
            reason: "i/o error".into(),
        };
        assert_eq!((no_file.code(), disk.code()), (2, 4));
        let both = ConfigErrors::check(vec![no_file, disk]).unwrap_err();
        assert_eq!(both.code(), 4);
        assert_eq!(
            both.to_string(),
            "a: no such file; check the path\nb: cannot be read: i/o error; check its permissions and the disk"
        );
        assert_eq!(ConfigErrors::check(vec![]), Ok(()));
    }

    #[test]
    fn shown_values_stay_on_one_short_line() {
        let long = Value::from("x\n".repeat(80));
        let text = shown(&long);
        assert!(text.chars().count() == 63 && !text.contains('\n'), "{text}");
        assert_eq!(shown(&Value::from(vec![4, 8])), "[4, 8]");
    }
}
