//! Real text that is on every machine with Rust on it: the sources and documents of the crates in
//! Cargo's registry.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::blocks::is_text;
use super::digest::Digest;
use super::error::{DataError, Result};
use super::walk::extension_is;

/// Files of text from Cargo's registry, in sorted order: at most `bytes_max` bytes together, and
/// each of 64 to `file_bytes_max` bytes.
///
/// Looks in `$CARGO_HOME/registry/src`, or below `~/.cargo`. Equally many files are taken of every
/// power of two in size while there are any, so that lengths spread from short to long, and within
/// a size from all crates alike. With the byte tokenizer, `file_bytes_max = max_len` makes every
/// file one sample. Equal registries give equal lists.
///
/// # Errors
/// A limit is below 64 bytes, or there is no registry with text; the message says how to get one.
pub fn text_on_this_machine(bytes_max: u64, file_bytes_max: u64) -> Result<Vec<PathBuf>> {
    let sources = sources(env::var_os("CARGO_HOME"), env::var_os("HOME"))?;
    text_in(&sources, bytes_max, file_bytes_max)
}

/// Where Cargo unpacks crates, given the variables of its environment; an empty one counts as unset.
fn sources(cargo_home: Option<OsString>, home: Option<OsString>) -> Result<PathBuf> {
    let set = |value: Option<OsString>| value.filter(|value| !value.is_empty()).map(PathBuf::from);
    let cargo_home = set(cargo_home).or_else(|| set(home).map(|home| home.join(".cargo")));
    Ok(cargo_home
        .ok_or(DataError::NoHome)?
        .join("registry")
        .join("src"))
}

/// As [`text_on_this_machine`], from the registry sources in `sources` (one folder an index, in it
/// one folder a crate).
fn text_in(sources: &Path, bytes_max: u64, file_bytes_max: u64) -> Result<Vec<PathBuf>> {
    for (key, value) in [("bytes_max", bytes_max), ("file_bytes_max", file_bytes_max)] {
        if value < FILE_BYTES_MIN {
            return Err(DataError::Rule {
                key,
                value: value.to_string(),
                reason: format!("files begin at {FILE_BYTES_MIN} bytes; set it to that or more"),
            });
        }
    }
    let no_registry = || DataError::NoRegistry {
        path: sources.to_path_buf(),
    };
    let indexes = folder_entries(sources).map_err(|_| no_registry())?;
    let mut candidates = Vec::new();
    for index in indexes.into_iter().filter(|path| path.is_dir()) {
        collect(&index, &index, file_bytes_max, &mut candidates)?;
    }
    let mut classes: Vec<Vec<Candidate>> = (0..u64::BITS).map(|_| Vec::new()).collect();
    for candidate in candidates {
        classes[candidate.bytes.ilog2() as usize].push(candidate);
    }
    for class in &mut classes {
        class.sort();
        class.dedup_by(|a, b| a.name == b.name);
        // Candidates are taken from the back.
        class.reverse();
    }
    let mut chosen = choose(classes, bytes_max)?;
    if chosen.is_empty() {
        return Err(no_registry());
    }
    chosen.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(chosen.into_iter().map(|candidate| candidate.path).collect())
}

/// A file that may be taken; ordered by a digest of its name, which deals the crates evenly.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    order: u64,
    /// Path below the index folder, which itself is named differently by different versions of Cargo.
    name: PathBuf,
    path: PathBuf,
    bytes: u64,
}

/// Takes one file of each class in turn until nothing more fits.
fn choose(mut classes: Vec<Vec<Candidate>>, bytes_max: u64) -> Result<Vec<Candidate>> {
    let mut chosen = Vec::new();
    let mut left = bytes_max;
    let mut taken_before = usize::MAX;
    while taken_before != chosen.len() {
        taken_before = chosen.len();
        for class in &mut classes {
            while let Some(candidate) = class.pop() {
                if candidate.bytes <= left && is_text(&candidate.path)? {
                    left -= candidate.bytes;
                    chosen.push(candidate);
                    break;
                }
            }
        }
    }
    Ok(chosen)
}

/// Adds the text files below `folder`, which lies in `index`, whose size allows it.
fn collect(
    index: &Path,
    folder: &Path,
    file_bytes_max: u64,
    candidates: &mut Vec<Candidate>,
) -> Result<()> {
    let io = |error| DataError::io(folder, error);
    for path in folder_entries(folder).map_err(io)? {
        let metadata = fs::symlink_metadata(&path).map_err(|e| DataError::io(&path, e))?;
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if hidden {
            continue;
        }
        if metadata.is_dir() {
            collect(index, &path, file_bytes_max, candidates)?;
        } else if metadata.is_file() && extension_is(&path, &["rs", "md", "txt"]) {
            let bytes = metadata.len();
            if !(FILE_BYTES_MIN..=file_bytes_max).contains(&bytes) {
                continue;
            }
            let name = path.strip_prefix(index).unwrap_or(&path).to_path_buf();
            let mut digest = Digest::new();
            digest.add(name.as_os_str().as_encoded_bytes());
            candidates.push(Candidate {
                order: digest.finish(),
                name,
                path,
                bytes,
            });
        }
    }
    Ok(())
}

fn folder_entries(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Shorter files say little: a line of a module, an empty licence.
const FILE_BYTES_MIN: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::write;

    /// Powers of two of the sizes in the registry below.
    const SIZE_CLASSES: std::ops::RangeInclusive<u32> = 6..=13;
    const FILE_BYTES_MAX: u64 = (1 << 14) - 1;

    /// A registry of `crates` crates, each with a file of every class and some that do not count.
    fn registry(crates: usize) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("temporary folder");
        for i in 0..crates {
            let inside = |name: &str| format!("index-1/crate-{i}/{name}");
            for power in SIZE_CLASSES {
                let text = "x".repeat((1 << power) + i);
                write(folder.path(), &inside(&format!("src/{power}.rs")), text);
            }
            write(folder.path(), &inside("tiny.md"), "x");
            write(folder.path(), &inside("large.txt"), "x".repeat(1 << 14));
            write(folder.path(), &inside("image.png"), "x".repeat(100));
            write(folder.path(), &inside("binary.txt"), "\0".repeat(100));
            write(folder.path(), &inside(".git/notes.md"), "x".repeat(100));
        }
        folder
    }

    fn sizes(paths: &[PathBuf]) -> Vec<u64> {
        paths
            .iter()
            .map(|path| fs::metadata(path).expect("file").len())
            .collect()
    }

    #[test]
    fn sizes_spread_evenly_and_the_budget_holds() {
        let folder = registry(20);
        let budget = 64 << 10;
        let paths = text_in(folder.path(), budget, FILE_BYTES_MAX).expect("text");
        let sizes = sizes(&paths);
        let total: u64 = sizes.iter().sum();
        assert!(total <= budget && total > budget - 64, "{total}");
        let in_class = |power: u32| sizes.iter().filter(|size| size.ilog2() == power).count();
        let counts: Vec<_> = SIZE_CLASSES.map(in_class).collect();
        assert!(counts.iter().all(|&count| count >= 3), "{counts:?}");
        assert!(paths.is_sorted());
        let crates = |path: &PathBuf| {
            path.components()
                .nth_back(2)
                .map(|c| c.as_os_str().to_owned())
        };
        let distinct: std::collections::BTreeSet<_> = paths.iter().map(crates).collect();
        assert!(distinct.len() >= 10, "{distinct:?}");
    }

    #[test]
    fn everything_is_taken_when_it_fits_and_never_twice() {
        let folder = registry(3);
        let paths = text_in(folder.path(), u64::MAX, FILE_BYTES_MAX).expect("text");
        assert_eq!(paths.len(), 3 * SIZE_CLASSES.count());
        let before = sizes(&paths);
        fs::rename(folder.path().join("index-1"), folder.path().join("index-2")).expect("rename");
        let renamed = text_in(folder.path(), u64::MAX, FILE_BYTES_MAX).expect("text");
        assert_eq!(sizes(&renamed), before);
    }

    #[test]
    fn without_a_registry_the_way_out_is_named() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for sources in [folder.path().join("absent"), folder.path().to_path_buf()] {
            let error = text_in(&sources, 1 << 20, 4096).expect_err("no registry");
            let expected = format!(
                "{}: no text of Cargo crates here: run `cargo fetch` in any Rust project, set CARGO_HOME, \
                 or name text of your own",
                sources.display()
            );
            assert_eq!(error.to_string(), expected);
            assert_eq!(error.kind(), crate::data::DataErrorKind::Usage);
        }
    }

    #[test]
    fn no_file_is_longer_than_asked_and_absurd_limits_are_refused() {
        let folder = registry(3);
        let paths = text_in(folder.path(), u64::MAX, 257).expect("text");
        // Sizes 64, 128 and 256, each plus 0, 1 and 2, without 258.
        assert_eq!(
            (paths.len(), sizes(&paths).into_iter().max()),
            (8, Some(257))
        );
        let message = |bytes_max, file_bytes_max| {
            text_in(folder.path(), bytes_max, file_bytes_max)
                .expect_err("too small")
                .to_string()
        };
        let reason = "files begin at 64 bytes; set it to that or more";
        assert_eq!(message(63, 64), format!("bytes_max = 63: {reason}"));
        assert_eq!(message(64, 0), format!("file_bytes_max = 0: {reason}"));
    }

    #[test]
    fn cargo_home_comes_before_home() {
        let at = |cargo_home: &str, home: &str| sources(Some(cargo_home.into()), Some(home.into()));
        assert_eq!(at("/c", "/h").expect("set"), Path::new("/c/registry/src"));
        assert_eq!(
            at("", "/h").expect("set"),
            Path::new("/h/.cargo/registry/src")
        );
        assert_eq!(
            sources(None, None).expect_err("unset").to_string(),
            "neither CARGO_HOME nor HOME is set, so Cargo's registry cannot be found: set CARGO_HOME, \
             or name text of your own"
        );
    }

    #[test]
    fn this_machine_built_this_crate_so_it_has_text() {
        // Vendored builds have no registry; both outcomes are defined, an unreadable one is not.
        match text_on_this_machine(1 << 16, 4096) {
            Ok(paths) => assert!(sizes(&paths).iter().sum::<u64>() <= 1 << 16),
            Err(error) => assert_eq!(error.kind(), crate::data::DataErrorKind::Usage),
        }
    }
}
