//! One file: its text, its table, and the lines of its keys.

use super::super::error::{ConfigError, Place, Source};
use super::super::path::KeyPath;
use super::Origins;
use serde::Deserialize;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::Path;
use toml::de::{DeArray, DeTable, DeValue};
use toml::{Spanned, Table};

/// Largest file that is read. (bytes)
const FILE_MAX: u64 = 8_000_000;

/// The whole text of a file.
///
/// # Errors
/// When it is not there, no file, too large or not UTF-8.
pub(super) fn text_of(file: &Path) -> Result<String, ConfigError> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => ConfigError::NoFile { file: file.into() },
        ErrorKind::IsADirectory => ConfigError::Directory { file: file.into() },
        _ => ConfigError::Unreadable {
            file: file.into(),
            reason: error.to_string(),
        },
    };
    let mut bytes = Vec::new();
    let reader = File::open(file).map_err(failed)?;
    reader
        .take(FILE_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(ConfigError::TooLarge {
            file: file.into(),
            max: FILE_MAX,
        });
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line_start = before
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        ConfigError::NotUtf8 {
            file: file.into(),
            line: before.iter().filter(|b| **b == b'\n').count() + 1,
            column: before.len() - line_start + 1,
        }
    })
}

/// The table in a text and the lines of its keys.
///
/// # Errors
/// Every place where it is not TOML.
pub(super) fn parsed(file: &Path, text: &str) -> Result<(Table, Origins), Vec<ConfigError>> {
    let lines = Lines::of(text);
    let (spanned, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let error = |error| syntax(file, &lines, text, error);
        return Err(errors.iter().map(error).collect());
    }
    let mut walk = Walk {
        source: Source::File(file.into()),
        lines,
        text,
        origins: Origins::new(),
    };
    walk.origins.insert(
        KeyPath::default(),
        Place {
            source: walk.source.clone(),
            line: None,
        },
    );
    walk.table(spanned.get_ref(), &KeyPath::default());
    match Table::deserialize(toml::de::Deserializer::from(spanned)) {
        Ok(table) => Ok((table, walk.origins)),
        Err(error) => Err(vec![syntax(file, &walk.lines, text, &error)]),
    }
}

fn syntax(file: &Path, lines: &Lines, text: &str, error: &toml::de::Error) -> ConfigError {
    let (line, column) = lines.position(text, error.span().unwrap_or_default().start);
    // The reader speaks of its own types here, and names no limit.
    let message = match error.message() {
        message if message.starts_with("invalid type: integer") => {
            format!("whole numbers end at {}", i64::MAX)
        }
        message => message.replace('\n', ", "),
    };
    ConfigError::Syntax {
        file: file.into(),
        message,
        line,
        column,
    }
}

/// Notes where keys are written.
struct Walk<'t> {
    source: Source,
    lines: Lines,
    text: &'t str,
    origins: Origins,
}

impl Walk<'_> {
    fn table(&mut self, table: &DeTable<'_>, at: &KeyPath) {
        for (key, value) in table {
            let at = at.key(key.get_ref());
            self.note(&at, key.span());
            self.value(value.get_ref(), &at);
        }
    }

    fn value(&mut self, value: &DeValue<'_>, at: &KeyPath) {
        match value {
            DeValue::Table(table) => self.table(table, at),
            DeValue::Array(rows) => self.rows(rows, at),
            _ => {}
        }
    }

    /// Rows that hold keys; a long list of numbers is known by its array's key.
    fn rows(&mut self, rows: &DeArray<'_>, at: &KeyPath) {
        for (index, row) in rows.iter().enumerate() {
            if row.get_ref().is_table() || row.get_ref().is_array() {
                let at = at.index(index);
                self.note(&at, Spanned::span(row));
                self.value(row.get_ref(), &at);
            }
        }
    }

    fn note(&mut self, at: &KeyPath, span: Range<usize>) {
        let place = Place {
            source: self.source.clone(),
            line: Some(self.lines.position(self.text, span.start).0),
        };
        self.origins.insert(at.clone(), place);
    }
}

/// Where the lines of a text begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let after_breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Self(std::iter::once(0).chain(after_breaks).collect())
    }

    /// Line and column of a byte, each from 1.
    fn position(&self, text: &str, byte: usize) -> (usize, usize) {
        let line = self.0.partition_point(|start| *start <= byte);
        let start = self.0[line - 1];
        let column = text
            .get(start..byte)
            .map_or(0, |before| before.chars().count());
        (line, column + 1)
    }
}
