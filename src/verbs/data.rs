//! The samples that an `[exec.data]` section describes.

use crate::failure::{Failure, code};
use exec::config::DataSection;
use exec::data::{DataErrorKind, Dataset, Tokenizer, load as load_data, text_on_this_machine};
use std::path::PathBuf;

/// Loads the samples.
pub(crate) fn load(section: &DataSection) -> Result<Dataset, Failure> {
    let rules = section.rules().map_err(Failure::usage)?;
    let tokenizer = tokenizer(section)?;
    let paths: Vec<PathBuf> = if section.paths.is_empty() {
        // Files of a few samples each: whole short ones and the odd ends of longer ones spread the lengths.
        let file_max = 4 * u64::from(section.max_len);
        text_on_this_machine(section.registry_bytes_max, file_max).map_err(of_data)?
    } else {
        section.paths.clone()
    };
    let data = load_data(&paths, &tokenizer, &rules).map_err(of_data)?;
    Ok(match section.samples_max {
        0 => data,
        max => data.subset(max as usize, 0),
    })
}

/// The tokenizer that the section names.
pub(crate) fn tokenizer(section: &DataSection) -> Result<Tokenizer, Failure> {
    match section.tokenizer_path() {
        None => Ok(Tokenizer::byte()),
        Some(path) => Tokenizer::from_file(path).map_err(of_data),
    }
}

/// The exit code of data that cannot be used.
pub(crate) fn of_data(error: exec::data::DataError) -> Failure {
    let code = match error.kind() {
        DataErrorKind::Usage => code::USAGE,
        DataErrorKind::Content => code::DATA,
        DataErrorKind::Io => crate::output::OutputError::CODE,
    };
    Failure::new(code, error)
}
