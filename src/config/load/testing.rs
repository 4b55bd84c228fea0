//! Loading texts instead of files.

use super::{ConfigErrors, Loaded, Source, load};
use std::path::PathBuf;

/// `text` as the file `s.toml`.
pub(in super::super) fn loaded(text: &str) -> Loaded {
    loaded_with(&[text], &[]).unwrap()
}

/// Texts as the files `s.toml` and `t.toml`, and flags.
pub(in super::super) fn loaded_with(texts: &[&str], sets: &[&str]) -> Result<Loaded, ConfigErrors> {
    let folder = tempfile::tempdir().unwrap();
    let file = |(text, name): (&&str, &str)| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let files: Vec<PathBuf> = texts.iter().zip(["s.toml", "t.toml"]).map(file).collect();
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    let mut loaded = load(&files, &sets)?;
    for place in loaded.origins.values_mut() {
        if let Source::File(file) = &mut place.source {
            *file = file.file_name().unwrap().into();
        }
    }
    Ok(loaded)
}
