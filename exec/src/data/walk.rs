//! From the paths a user names to the files to read, each with its format.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use super::blocks::is_text;
use super::counts::Counts;
use super::error::{DataError, Result};
use super::lines::{BYTE_ORDER_MARK, Lines};
use super::record::Record;

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// One record a line.
    JsonLines,
    /// Text as it stands.
    Plain,
}

/// The files of `inputs`, in the order given, folders in sorted order, with what was passed over
/// counted.
///
/// `.jsonl` and `.ndjson` are JSONL, and so they are with `.gz` behind; so is any
/// other file whose first line is an accepted record.
/// In a folder, hidden files, files that are no text, `.json` files without records, and links to
/// folders are passed over. A file named by itself is never passed over: it is read, or an error.
pub(super) fn files(
    inputs: &[PathBuf],
    line_bytes_max: usize,
    counts: &mut Counts,
) -> Result<Vec<(PathBuf, Format)>> {
    let mut found = Vec::new();
    for input in inputs {
        let metadata = fs::metadata(input).map_err(|e| DataError::io(input, e))?;
        if metadata.is_dir() {
            let mut paths = Vec::new();
            collect(input, counts, &mut paths)?;
            for path in paths {
                if let Some(format) = format_in_folder(&path, line_bytes_max, counts)? {
                    found.push((path, format));
                }
            }
        } else if metadata.is_file() {
            found.push((input.clone(), format_of_named(input, line_bytes_max)?));
        } else {
            return Err(DataError::NotAFile {
                path: input.clone(),
            });
        }
    }
    Ok(found)
}

/// Files below `folder` in sorted order.
fn collect(folder: &Path, counts: &mut Counts, paths: &mut Vec<PathBuf>) -> Result<()> {
    let io = |error| DataError::io(folder, error);
    let mut entries = fs::read_dir(folder)
        .map_err(io)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(io)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let kind = entry.file_type().map_err(|e| DataError::io(&path, e))?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            counts.files_hidden += 1;
        } else if kind.is_dir() {
            collect(&path, counts, paths)?;
        } else if kind.is_file() || (kind.is_symlink() && path.is_file()) {
            paths.push(path);
        } else {
            // Links to folders are not followed: they may lead back up.
            counts.files_special += 1;
        }
    }
    Ok(())
}

fn format_in_folder(
    path: &Path,
    line_bytes_max: usize,
    counts: &mut Counts,
) -> Result<Option<Format>> {
    if named_json_lines(path) || begins_with_record(path, line_bytes_max)? {
        return Ok(Some(Format::JsonLines));
    }
    if extension_is(path, &["json"]) {
        counts.files_json += 1;
        return Ok(None);
    }
    if !is_text(path)? {
        counts.files_binary += 1;
        return Ok(None);
    }
    Ok(Some(Format::Plain))
}

fn format_of_named(path: &Path, line_bytes_max: usize) -> Result<Format> {
    if named_json_lines(path) || begins_with_record(path, line_bytes_max)? {
        return Ok(Format::JsonLines);
    }
    if extension_is(path, &["json"]) {
        return Err(DataError::NotJsonLines {
            path: path.to_path_buf(),
        });
    }
    Ok(Format::Plain)
}

fn named_json_lines(path: &Path) -> bool {
    let unpacked = if extension_is(path, &["gz"]) {
        path.with_extension("")
    } else {
        path.to_path_buf()
    };
    extension_is(&unpacked, &["jsonl", "ndjson"])
}

/// Whether the extension of `path` is one of `extensions`, in any case.
pub(super) fn extension_is(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|found| {
        extensions
            .iter()
            .any(|known| found.eq_ignore_ascii_case(known))
    })
}

/// Whether the first line that is not blank is an accepted record.
fn begins_with_record(path: &Path, line_bytes_max: usize) -> Result<bool> {
    let io = |error| DataError::io(path, error);
    let mut start = Vec::new();
    let mut file = File::open(path).map_err(io)?;
    file.by_ref()
        .take(START_BYTES)
        .read_to_end(&mut start)
        .map_err(io)?;
    let start = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&start);
    if start.trim_ascii_start().first() != Some(&b'{') {
        return Ok(false);
    }
    let mut lines = Lines::new(
        BufReader::new(File::open(path).map_err(io)?),
        line_bytes_max,
    );
    while let Some((_, line)) = lines.next().map_err(io)? {
        match line {
            Ok(line) if line.trim().is_empty() => {}
            Ok(line) => return Ok(Record::parse(line).is_ok()),
            Err(_) => return Ok(false),
        }
    }
    Ok(false)
}

/// Enough to see whether a file begins with a brace.
const START_BYTES: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::write;

    const RECORD: &str = "{\"text\": \"ab\"}\n";

    fn found(folder: &Path) -> (Vec<(String, Format)>, Counts) {
        let mut counts = Counts::default();
        let files = files(&[folder.to_path_buf()], 1 << 20, &mut counts).expect("folder");
        let name = |path: PathBuf| {
            path.strip_prefix(folder)
                .expect("below")
                .display()
                .to_string()
        };
        (
            files
                .into_iter()
                .map(|(path, format)| (name(path), format))
                .collect(),
            counts,
        )
    }

    #[test]
    fn folders_are_walked_in_order_and_what_is_passed_over_is_counted() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for (name, contents) in [
            ("b.rs", "fn main() {}"),
            ("a/z.md", "# z"),
            ("a/y.jsonl", "not even JSON"),
            (".git/config", "x"),
            ("a/.hidden", "x"),
            ("c.bin", "\0\0"),
            ("d.json", "[1, 2]"),
            ("e.json", RECORD),
            ("f", RECORD),
        ] {
            write(folder.path(), name, contents);
        }
        let (files, counts) = found(folder.path());
        let expected = [
            ("a/y.jsonl", Format::JsonLines),
            ("a/z.md", Format::Plain),
            ("b.rs", Format::Plain),
            ("e.json", Format::JsonLines),
            ("f", Format::JsonLines),
        ];
        assert_eq!(
            files,
            expected.map(|(name, format)| (name.to_owned(), format))
        );
        let expected = Counts {
            files_hidden: 2,
            files_binary: 1,
            files_json: 1,
            ..Counts::default()
        };
        assert_eq!(counts, expected);
    }

    #[cfg(unix)]
    #[test]
    fn links_to_files_are_followed_and_links_to_folders_are_not() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let file = write(folder.path(), "a.txt", "text");
        std::os::unix::fs::symlink(&file, folder.path().join("b.txt")).expect("link");
        std::os::unix::fs::symlink(folder.path(), folder.path().join("loop")).expect("link");
        std::os::unix::fs::symlink("nowhere", folder.path().join("broken")).expect("link");
        let (files, counts) = found(folder.path());
        assert_eq!(files.len(), 2);
        assert_eq!(counts.files_special, 2);
    }

    #[test]
    fn named_files_are_read_or_refused() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let message = |path: &Path| {
            files(&[path.to_path_buf()], 1 << 20, &mut Counts::default())
                .expect_err("refused")
                .to_string()
        };
        let array = write(folder.path(), "chat.json", "[{\"text\": \"a\"}]");
        assert_eq!(
            message(&array),
            format!(
                "{}: JSON, but not one record a line: convert it with `jq -c '.[]'` (an array) or \
                 `jq -c .` (one object) to a .jsonl file",
                array.display()
            )
        );
        let missing = folder.path().join("missing");
        assert_eq!(
            message(&missing),
            format!(
                "{}: no such file or folder: check the path",
                missing.display()
            )
        );
        assert_eq!(
            message(Path::new("/dev/null")),
            "/dev/null: neither a regular file nor a folder: save its contents as a file first"
        );
    }
}
