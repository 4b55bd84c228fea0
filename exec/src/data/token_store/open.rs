//! Opening a store, and looking at every byte of one.

use std::path::Path;

use memmap2::Mmap;

use super::error::StoreError;
use super::layout::{HEADER_BYTES, MANIFEST, Part};
use super::manifest::{KIND, Manifest, Summary};
use super::map::map;
use super::mapped::Mapped;
use super::recipe::Recipe;
use super::sources;
use crate::data::dataset::Dataset;
use crate::data::error::Result;
use crate::data::watch::{Unwatched, Watch};

/// Whether `path` is a folder with a token store in it, whole or not.
pub fn is_store(path: &Path) -> bool {
    let text = std::fs::read(path.join(MANIFEST)).unwrap_or_default();
    serde_json::from_slice::<serde_json::Value>(&text).is_ok_and(|json| json["kind"] == KIND)
}

/// Maps the store in `dir`, after a look at headers, sizes, entries, settings and sources.
///
/// With no inputs in the recipe, sources are not looked at.
///
/// # Errors
/// There is no store, it is damaged, or it was made from something else than `recipe` says.
pub fn open(dir: &Path, recipe: &Recipe<'_>) -> Result<Dataset> {
    opened(dir, recipe, false, &Unwatched).map(|(dataset, _)| dataset)
}

/// What the store in `dir` holds, after the looks of [`open`].
///
/// # Errors
/// As [`open`].
pub fn summary(dir: &Path, recipe: &Recipe<'_>) -> Result<Summary> {
    opened(dir, recipe, false, &Unwatched).map(|(_, summary)| summary)
}

/// As [`open`], and reads every byte of the store and of its sources.
///
/// # Errors
/// As [`open`]; a sum or a digest is not what it was; [`crate::data::DataError::Stopped`].
pub fn verify(dir: &Path, recipe: &Recipe<'_>, watch: &dyn Watch) -> Result<Summary> {
    opened(dir, recipe, true, watch).map(|(_, summary)| summary)
}

fn opened(
    dir: &Path,
    recipe: &Recipe<'_>,
    full: bool,
    watch: &dyn Watch,
) -> Result<(Dataset, Summary)> {
    if cfg!(target_endian = "big") {
        return Err(StoreError::ByteOrder { dir: dir.into() }.into());
    }
    let manifest = Manifest::read(dir)?;
    if full {
        let ours = manifest.files.values().map(|file| file.bytes);
        watch.total(ours.chain(manifest.sources.iter().map(|s| s.bytes)).sum());
    }
    check_settings(dir, &manifest, recipe)?;
    let rules = recipe.rules;
    sources::check(
        dir,
        &manifest,
        recipe.inputs,
        rules.line_bytes_max,
        full,
        watch,
    )?;
    let mut maps = Vec::with_capacity(Part::ALL.len());
    for part in Part::ALL {
        // The large files are too large to read at every start.
        let summed = full || !matches!(part, Part::Tokens | Part::Mask);
        maps.push(mapped_part(dir, part, &manifest, summed, watch)?);
    }
    let maps: [Mmap; 5] = maps.try_into().expect("one map a part");
    let files = manifest
        .sources
        .iter()
        .map(|source| source.path.clone())
        .collect();
    let mapped = Mapped::new(dir, maps, files)?;
    let (samples, tokens) = (mapped.len() as u64, mapped.ids().len() as u64);
    let summary = manifest.summary;
    if (samples, tokens, tokens) != (summary.samples, summary.tokens, mapped.mask().len() as u64) {
        let path = dir.join(MANIFEST);
        let reason = format!(
            "it says {} samples, the files hold {samples}",
            summary.samples
        );
        return Err(StoreError::Manifest { path, reason }.into());
    }
    Ok((Dataset::mapped(mapped, summary.counts.clone()), summary))
}

/// Refuses a store that was made in another way.
fn check_settings(dir: &Path, manifest: &Manifest, recipe: &Recipe<'_>) -> Result<()> {
    let now = recipe.settings()?;
    for key in now.keys().chain(manifest.settings.keys()) {
        let value = |settings: &std::collections::BTreeMap<String, String>| {
            settings.get(key).cloned().unwrap_or_else(|| "none".into())
        };
        let (was, now) = (value(&manifest.settings), value(&now));
        if was != now {
            return Err(StoreError::Setting {
                dir: dir.into(),
                key: format!("exec.data.{key}"),
                was,
                now,
            }
            .into());
        }
    }
    Ok(())
}

/// Maps a file that begins and is as long as it should, and, under `summed`, holds what was written.
fn mapped_part(
    dir: &Path,
    part: Part,
    manifest: &Manifest,
    summed: bool,
    watch: &dyn Watch,
) -> Result<Mmap> {
    let path = dir.join(part.name());
    let written = manifest.files[part.name()];
    let metadata = std::fs::metadata(&path).map_err(|source| StoreError::read(&path, source))?;
    let found = metadata.len();
    if found != written.bytes {
        let written = written.bytes;
        return Err(StoreError::Size {
            path,
            found,
            written,
        }
        .into());
    }
    let map = map(&path)?;
    let body = map.len().checked_sub(HEADER_BYTES);
    let whole = body.is_some_and(|bytes| bytes % part.entry_bytes() == 0);
    if !whole || map[..HEADER_BYTES] != part.header() {
        return Err(StoreError::Header { path }.into());
    }
    if summed {
        let mut hasher = crc32fast::Hasher::new();
        for piece in map.chunks(1 << 20) {
            if watch.is_stopped() {
                return Err(crate::data::DataError::Stopped);
            }
            hasher.update(piece);
            watch.advanced(piece.len() as u64);
        }
        let (found, written) = (hasher.finalize(), written.crc32);
        if found != written {
            return Err(StoreError::Checksum {
                path,
                found,
                written,
            }
            .into());
        }
    }
    Ok(map)
}
