//! What can go wrong between a path the user named and a sample, one variant per thing to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::bad_record::BadRecord;
use super::counts::Counts;
use super::rules::Rules;
use super::token_store::StoreError;

/// Result of everything in this module.
pub(super) type Result<T, E = DataError> = std::result::Result<T, E>;

/// Whose turn it is to act on a [`DataError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataErrorKind {
    /// A path, a setting or the choice of tokenizer is wrong.
    Usage,
    /// The text or the records themselves are wrong.
    Content,
    /// The operating system could not read what was named, or write the result.
    Io,
    /// The user asked to stop.
    Stopped,
}

/// Why no data set could be made.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// No path was given.
    #[error("no input given: name at least one JSONL file, text file or folder")]
    NoInputs,
    /// A path that does not exist.
    #[error("{}: no such file or folder: check the path", path.display())]
    NotFound {
        /// The path as the user gave it.
        path: PathBuf,
    },
    /// A socket, a pipe or a device.
    #[error(
        "{}: neither a regular file nor a folder: save its contents as a file first",
        path.display()
    )]
    NotAFile {
        /// The path as the user gave it.
        path: PathBuf,
    },
    /// A setting outside its range.
    #[error("{key} = {value}: {reason}")]
    Rule {
        /// Name of the setting.
        key: &'static str,
        /// What it was set to.
        value: String,
        /// The limit and the way out.
        reason: String,
    },
    /// A tokenizer file that cannot be used at all.
    #[error(
        "{}: cannot be used as a tokenizer: {reason}; give a Hugging Face tokenizer.json or \
         use the byte tokenizer",
        path.display()
    )]
    Tokenizer {
        /// The file or folder named.
        path: PathBuf,
        /// What its loader said.
        reason: String,
    },
    /// A chat template that is none.
    #[error("{origin}: cannot be used as a chat template: {reason}")]
    ChatTemplate {
        /// Where the template came from.
        origin: String,
        /// What is wrong with it, with its line where known.
        reason: String,
    },
    /// The user asked to stop.
    #[error("stopped as asked; nothing was written")]
    Stopped,
    /// A token store that cannot be written, read or used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Chat data with a tokenizer that has no chat markers.
    #[error(
        "{}: the tokenizer has no token {token}, which chat data needs: set \
         chat_template, or use data with input_ids and loss_mask",
        path.display()
    )]
    NoChatToken {
        /// The tokenizer file.
        path: PathBuf,
        /// The token looked up.
        token: &'static str,
    },
    /// The quick start's text is not on this machine.
    #[error(
        "{}: no text of Cargo crates here: run `cargo fetch` in any Rust project, set \
         CARGO_HOME, or name text of your own",
        path.display()
    )]
    NoRegistry {
        /// The folder looked at.
        path: PathBuf,
    },
    /// Neither `CARGO_HOME` nor `HOME` says where the registry is.
    #[error(
        "neither CARGO_HOME nor HOME is set, so Cargo's registry cannot be found: set CARGO_HOME, \
         or name text of your own"
    )]
    NoHome,
    /// A read that failed.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A named file that is not text.
    #[error(
        "{}: not UTF-8 text at byte {byte}: decompress it, or convert it to JSONL or UTF-8 \
         text",
        path.display()
    )]
    NotText {
        /// The file.
        path: PathBuf,
        /// Offset of the first byte that cannot be text, from 0.
        byte: u64,
    },
    /// A `.json` file that is not one record a line.
    #[error(
        "{}: JSON, but not one record a line: convert it with `jq -c '.[]'` (an array) or `jq \
         -c .` (one object) to a .jsonl file",
        path.display()
    )]
    NotJsonLines {
        /// The file.
        path: PathBuf,
    },
    /// A line that is no record, under `on_bad_line = "stop"`.
    #[error("{place}: {reason}; fix the line, or set on_bad_line = \"skip\"")]
    BadLine {
        /// File, line and, where known, column.
        place: Place,
        /// What is wrong with it.
        reason: BadRecord,
    },
    /// Too many bad lines, under `on_bad_line = "skip"`.
    #[error(
        "{bad} of {records} records are bad, more than bad_share_max = {limit} allows (the first: \
         {place}: {reason}); fix the data, or raise bad_share_max"
    )]
    TooManyBadLines {
        /// Bad lines.
        bad: u64,
        /// All records read.
        records: u64,
        /// The largest share allowed, from 0 to 1.
        limit: f64,
        /// The first bad line.
        place: Place,
        /// What is wrong with that line.
        reason: BadRecord,
    },
    /// A sample above `max_len`, under `over_long = "reject"`.
    #[error(
        "{place}: {tokens} tokens, more than max_len = {max_len}; raise max_len, or set over_long \
         = \"truncate\" or \"skip\""
    )]
    OverLong {
        /// Where the sample begins.
        place: Place,
        /// Its length in tokens.
        tokens: u64,
        /// The limit in tokens.
        max_len: u32,
    },
    /// A token the model has no embedding for.
    #[error(
        "{place}: token {position} of the sample is id {id}, but the vocabulary has {vocab} ids; \
         use the tokenizer the data was made with, or a model with a larger vocabulary"
    )]
    TokenId {
        /// Where the sample begins.
        place: Place,
        /// The offending id.
        id: u32,
        /// Its index in the sample, from 0.
        position: usize,
        /// Number of ids allowed.
        vocab: u32,
    },
    /// Text the tokenizer failed on.
    #[error(
        "{place}: the tokenizer failed: {reason}; check the tokenizer file, or use the byte \
         tokenizer"
    )]
    Encode {
        /// Where the text begins.
        place: Place,
        /// What the tokenizer said.
        reason: String,
    },
    /// More samples or files than a 32-bit index counts.
    #[error(
        "{path}: more than {limit} {what}: split the data into several runs",
        path = path.display()
    )]
    TooMany {
        /// The file at which the limit was passed.
        path: PathBuf,
        /// What was counted.
        what: &'static str,
        /// The limit.
        limit: u32,
    },
    /// Nothing is left to train on.
    #[error("no training samples left: {counts}; {way_out}")]
    NoSamples {
        /// What was read and what was dropped.
        counts: Box<Counts>,
        /// What to change, by the largest cause.
        way_out: String,
    },
}

impl DataError {
    /// Whether the command, the content or the disk is to be looked at.
    pub fn kind(&self) -> DataErrorKind {
        match self {
            Self::NoInputs
            | Self::NotFound { .. }
            | Self::NotAFile { .. }
            | Self::Rule { .. }
            | Self::Tokenizer { .. }
            | Self::ChatTemplate { .. }
            | Self::NoChatToken { .. }
            | Self::NoRegistry { .. }
            | Self::NoHome => DataErrorKind::Usage,
            Self::Io { .. } => DataErrorKind::Io,
            Self::Stopped => DataErrorKind::Stopped,
            Self::Store(error) => error.kind(),
            Self::NotText { .. }
            | Self::NotJsonLines { .. }
            | Self::BadLine { .. }
            | Self::TooManyBadLines { .. }
            | Self::OverLong { .. }
            | Self::TokenId { .. }
            | Self::Encode { .. }
            | Self::TooMany { .. }
            | Self::NoSamples { .. } => DataErrorKind::Content,
        }
    }

    /// An I/O failure on `path`; a missing path becomes [`DataError::NotFound`].
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path },
            _ => Self::Io { path, source },
        }
    }

    /// The error of a data set without samples.
    pub(super) fn no_samples(counts: &Counts, rules: &Rules) -> Self {
        Self::NoSamples {
            way_out: way_out(counts, rules),
            counts: Box::new(counts.clone()),
        }
    }
}

/// A line in a file, counted from 1, and a column in bytes, counted from 1, where known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: u32,
    /// The column in bytes, from 1.
    pub column: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)?;
        self.column.map_or(Ok(()), |column| write!(f, ":{column}"))
    }
}

/// The change that would bring back most of what was dropped.
fn way_out(counts: &Counts, rules: &Rules) -> String {
    let causes = [
        (
            counts.over_long,
            format!(
                "raise max_len above {} or set over_long = \"truncate\"",
                rules.max_len
            ),
        ),
        (
            counts.too_few_loss_tokens,
            format!(
                "lower min_loss_tokens below {} or use longer samples",
                rules.min_loss_tokens
            ),
        ),
        (
            counts.hidden,
            "set chat_template to one whose last answer begins with its generation prompt, or \
             that marks it with {% generation %}"
                .to_owned(),
        ),
        (
            counts.all_masked - counts.hidden.min(counts.all_masked),
            "add assistant messages or a loss_mask that holds a 1".to_owned(),
        ),
        (
            counts.bad,
            "fix the lines, or see the first one with on_bad_line = \"stop\"".to_owned(),
        ),
        (counts.empty, "fill the empty records".to_owned()),
        (
            counts.files_not_text(),
            "name JSONL or UTF-8 text files".to_owned(),
        ),
    ];
    // The first of equal causes wins, so that the message depends on the counts alone.
    let mut worst = (0, "name a file or folder that holds text".to_owned());
    for cause in causes {
        if cause.0 > worst.0 {
            worst = cause;
        }
    }
    worst.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_reads_tell_a_missing_path_from_a_broken_disk() {
        let path = Path::new("d.jsonl");
        let missing = DataError::io(path, io::ErrorKind::NotFound.into());
        assert_eq!(missing.kind(), DataErrorKind::Usage);
        let broken = DataError::io(path, io::Error::other("bad sector"));
        assert_eq!(broken.to_string(), "d.jsonl: cannot be read: bad sector");
        assert_eq!(broken.kind(), DataErrorKind::Io);
    }

    #[test]
    fn limits_of_the_index_are_named() {
        let error = DataError::TooMany {
            path: "a.txt".into(),
            what: "lines",
            limit: u32::MAX,
        };
        let expected = "a.txt: more than 4294967295 lines: split the data into several runs";
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.kind(), DataErrorKind::Content);
    }
}
