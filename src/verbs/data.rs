//! The samples that an `[exec.data]` section describes.

use crate::failure::{Failure, code};
use exec::config::DataSection;
use exec::data::{DataErrorKind, Dataset, Tokenizer, load as load_data, text_on_this_machine};
use std::path::{Path, PathBuf};

/// Loads the samples; relative paths are taken from `folder`, the folder of the file that names them.
pub(crate) fn load(section: &DataSection, folder: Option<&Path>) -> Result<Dataset, Failure> {
    let rules = section.rules().map_err(Failure::usage)?;
    let tokenizer = tokenizer(section, folder)?;
    let paths: Vec<PathBuf> = if section.paths.is_empty() {
        let file_max = u64::from(section.max_len);
        text_on_this_machine(section.registry_bytes_max, file_max).map_err(of_data)?
    } else {
        section
            .paths
            .iter()
            .map(|path| beside(folder, path))
            .collect()
    };
    let data = load_data(&paths, &tokenizer, &rules).map_err(of_data)?;
    Ok(match section.samples_max {
        0 => data,
        max => data.subset(max as usize, 0),
    })
}

/// The tokenizer that the section names.
pub(crate) fn tokenizer(
    section: &DataSection,
    folder: Option<&Path>,
) -> Result<Tokenizer, Failure> {
    if section.tokenizer == "byte" {
        return Ok(Tokenizer::byte());
    }
    Tokenizer::from_file(&beside(folder, Path::new(&section.tokenizer))).map_err(of_data)
}

/// A path in a file is relative to that file's folder.
pub(crate) fn beside(folder: Option<&Path>, path: &Path) -> PathBuf {
    match folder {
        Some(folder) if path.is_relative() => folder.join(path),
        _ => path.to_path_buf(),
    }
}

fn of_data(error: exec::data::DataError) -> Failure {
    let code = match error.kind() {
        DataErrorKind::Usage => code::USAGE,
        DataErrorKind::Content => code::DATA,
        DataErrorKind::Io => crate::output::OutputError::CODE,
    };
    Failure::new(code, error)
}
