//! The samples that an `[exec.data]` section describes.

use crate::failure::{Failure, code};
use exec::config::DataSection;
use exec::data::token_store::{self, Recipe, StoreError};
use exec::data::{
    DataError, DataErrorKind, Dataset, Rules, Tokenizer, load as load_data, text_on_this_machine,
};
use std::path::{Path, PathBuf};

/// Loads the samples, or maps them where the section names a token store.
pub(crate) fn load(section: &DataSection) -> Result<Dataset, Failure> {
    let source = Source::of(section)?;
    let data = match source.store(section)? {
        Some((store, inputs)) => token_store::open(&store, &source.recipe(inputs)),
        None => load_data(&source.inputs, &source.tokenizer, &source.rules),
    };
    let data = data.map_err(of_data)?;
    Ok(match section.samples_max {
        0 => data,
        max => data.subset(max as usize, section.samples_seed),
    })
}

/// What a data section names, read as far as a recipe needs it.
pub(crate) struct Source {
    pub(crate) inputs: Vec<PathBuf>,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) rules: Rules,
}

impl Source {
    pub(crate) fn of(section: &DataSection) -> Result<Self, Failure> {
        let rules = section.rules().map_err(Failure::usage)?;
        let tokenizer = tokenizer(section)?;
        let inputs = if section.paths.is_empty() {
            // Files of a few samples each: whole short ones and the odd ends of longer ones spread the lengths.
            let file_max = 4 * u64::from(section.max_len);
            text_on_this_machine(section.registry_bytes_max, file_max).map_err(of_data)?
        } else {
            section.paths.clone()
        };
        Ok(Self {
            inputs,
            tokenizer,
            rules,
        })
    }

    /// How a store of these inputs is made.
    pub(crate) fn recipe<'a>(&'a self, inputs: &'a [PathBuf]) -> Recipe<'a> {
        Recipe {
            inputs,
            tokenizer: &self.tokenizer,
            rules: &self.rules,
        }
    }

    /// The store that the section reads from, and the inputs to compare it with: none where the store itself is the input.
    fn store(&self, section: &DataSection) -> Result<Option<(PathBuf, &[PathBuf])>, Failure> {
        let named = store_among(&section.paths);
        match (&section.store, named) {
            (Some(store), None) => Ok(Some((store.clone(), &self.inputs))),
            (None, Some(store)) if section.paths.len() == 1 => Ok(Some((store.into(), &[]))),
            (_, Some(store)) => {
                let dir = store.into();
                Err(of_data(StoreError::Mixed { dir }.into()))
            }
            (None, None) => Ok(None),
        }
    }
}

/// Whether an input of the section is a token store itself.
pub(crate) fn store_among(paths: &[PathBuf]) -> Option<&Path> {
    let found = paths.iter().find(|path| token_store::is_store(path));
    found.map(PathBuf::as_path)
}

/// The tokenizer that the section names.
pub(crate) fn tokenizer(section: &DataSection) -> Result<Tokenizer, Failure> {
    match section.tokenizer_path() {
        None => Ok(Tokenizer::byte()),
        Some(path) => Tokenizer::from_file(path).map_err(of_data),
    }
}

/// The failure of a read, with the exit code of whoever is to act.
pub(crate) fn of_data(error: DataError) -> Failure {
    let code = match error.kind() {
        DataErrorKind::Usage => code::USAGE,
        DataErrorKind::Content => code::DATA,
        DataErrorKind::Io => crate::output::OutputError::CODE,
        DataErrorKind::Stopped => code::INTERRUPTED,
    };
    Failure::new(code, error)
}
