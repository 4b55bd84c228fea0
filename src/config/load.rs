//! Files and flags into one table whose keys know where they came from.

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
mod text;

use super::error::{ConfigError, ConfigErrors, KeyFault, Place, Source};
use super::flag::Flag;
use super::path::KeyPath;
use super::points::Point;
use super::read::read;
use serde::de::DeserializeOwned;
use sim::spec::Problem;
use std::collections::BTreeMap;
use std::path::PathBuf;
use text::{parsed, text_of};
use toml::{Table, Value};

/// Merged configuration and the origin of its keys.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    table: Table,
    origins: Origins,
}

/// Where each key and each row of an array of tables was written.
type Origins = BTreeMap<KeyPath, Place>;

/// Most wrong keys that one reading looks for.
const FAULTS_MAX: usize = 50;

/// Reads and merges `files`, then applies `sets`, each `a.b.c=value`.
///
/// # Errors
/// Every file that cannot be read, every place where TOML is broken, every flag that cannot be applied.
pub(crate) fn load(files: &[PathBuf], sets: &[String]) -> Result<Loaded, ConfigErrors> {
    let mut errors = Vec::new();
    let mut loaded = Loaded {
        table: Table::new(),
        origins: Origins::new(),
    };
    for file in files {
        match text_of(file)
            .map_err(|error| vec![error])
            .and_then(|text| parsed(file, &text))
        {
            Ok((table, origins)) => loaded.merge(table, origins),
            Err(found) => errors.extend(found),
        }
    }
    for set in sets {
        match Flag::parse(set) {
            Ok(flag) => errors.extend(loaded.set(&flag).err()),
            Err(error) => errors.push(error),
        }
    }
    ConfigErrors::check(errors)?;
    Ok(loaded)
}

impl Loaded {
    /// The merged table.
    pub(crate) const fn table(&self) -> &Table {
        &self.table
    }

    /// Reads the whole table into `T`.
    ///
    /// # Errors
    /// Every key that is unknown or of the wrong type, and the first that is missing.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigErrors> {
        self.parse_table(&self.table, Clone::clone)
    }

    /// Reads one point of this scenario into `T`.
    ///
    /// # Errors
    /// As [`Loaded::parse`], in the places where the scenario wrote the point's values.
    pub(crate) fn parse_point<T: DeserializeOwned>(
        &self,
        point: &Point,
    ) -> Result<T, ConfigErrors> {
        self.parse_table(&point.table, |path| point.written_as(path))
    }

    /// Turns the problems of a section into errors in their places.
    ///
    /// # Errors
    /// When there is at least one problem.
    pub(crate) fn check(&self, problems: Vec<Problem>) -> Result<(), ConfigErrors> {
        self.check_table(problems, Clone::clone)
    }

    /// Turns the problems of one point's section into errors where the scenario wrote the point's values.
    ///
    /// # Errors
    /// When there is at least one problem.
    pub(crate) fn check_point(
        &self,
        point: &Point,
        problems: Vec<Problem>,
    ) -> Result<(), ConfigErrors> {
        self.check_table(problems, |path| point.written_as(path))
    }

    /// An error whose text begins with its key, as in `policy.depth_total: 0 slots let nothing pass`, in the place of that key;
    /// of a point, where the scenario wrote the point's value.
    pub(crate) fn error_at_key(&self, point: Option<&Point>, text: &str) -> ConfigErrors {
        let parts = text.split_once(": ");
        let parsed = parts.and_then(|(key, rest)| Some((KeyPath::parse(key).ok()?, rest)));
        let (path, message) = parsed.unwrap_or_else(|| (KeyPath::default(), text));
        let path = point.map_or_else(|| path.clone(), |point| point.written_as(&path));
        self.error(&path, KeyFault::Other(message.to_owned()))
            .into()
    }

    /// The file that wrote the key at the dotted path `key`, to which paths in its value are relative. None when a flag did.
    pub(crate) fn file_of(&self, key: &str) -> Option<PathBuf> {
        match self.place(&KeyPath::parse(key).ok()?).source {
            Source::File(file) => Some(file),
            Source::Flag(_) | Source::Nothing => None,
        }
    }

    fn check_table(
        &self,
        problems: Vec<Problem>,
        written_as: impl Fn(&KeyPath) -> KeyPath,
    ) -> Result<(), ConfigErrors> {
        let error = |problem: Problem| {
            let path = KeyPath::parse(&problem.key).unwrap_or_default();
            let fault = KeyFault::Limit {
                value: problem.value,
                limit: problem.limit,
                way_out: problem.way_out,
            };
            self.error(&written_as(&path), fault)
        };
        ConfigErrors::check(problems.into_iter().map(error).collect())
    }

    /// An error about the key at `path`.
    pub(super) fn error(&self, path: &KeyPath, fault: KeyFault) -> ConfigError {
        ConfigError::Key {
            place: self.place(path),
            key: path.to_string(),
            fault: Box::new(fault),
        }
    }

    /// Where `path` was written, or else what holds it.
    fn place(&self, path: &KeyPath) -> Place {
        let mut path = path.clone();
        loop {
            match self.origins.get(&path) {
                Some(place) => return place.clone(),
                None if path.0.is_empty() => return Place::default(),
                None => path = path.parent(),
            }
        }
    }

    /// Reads `table`, leaving out one wrong key after the other to find them all.
    fn parse_table<T: DeserializeOwned>(
        &self,
        table: &Table,
        written_as: impl Fn(&KeyPath) -> KeyPath,
    ) -> Result<T, ConfigErrors> {
        let (path, fault) = match read(table) {
            Ok(value) => return Ok(value),
            Err(error) => error.parts(),
        };
        let mut errors = vec![self.error(&written_as(&path), fault)];
        let mut rest = table.clone();
        let mut left_out = path;
        let mut all_left_out = Vec::new();
        while errors.len() < FAULTS_MAX && leave_out(&mut rest, &mut left_out) {
            all_left_out.push(left_out.clone());
            let Err(error) = read::<T>(&rest) else { break };
            let (path, fault) = error.parts();
            if !follows(&fault, &path, &all_left_out) {
                errors.push(self.error(&written_as(&path), fault));
            }
            left_out = path;
        }
        Err(ConfigErrors::sorted(errors))
    }

    fn merge(&mut self, table: Table, origins: Origins) {
        let mut replaced = Vec::new();
        merge_tables(&mut self.table, table, &KeyPath::default(), &mut replaced);
        self.forget(&replaced);
        self.origins.extend(origins);
    }

    fn set(&mut self, flag: &Flag) -> Result<(), ConfigError> {
        let places = flag
            .path
            .set(&mut self.table, &flag.value)
            .map_err(|error| flag.error(error.to_string()))?;
        self.forget(&places);
        let place = Place {
            source: Source::Flag(flag.text.clone()),
            line: None,
        };
        self.origins
            .extend(places.into_iter().map(|path| (path, place.clone())));
        Ok(())
    }

    fn forget(&mut self, replaced: &[KeyPath]) {
        if !replaced.is_empty() {
            self.origins
                .retain(|path, _| !replaced.iter().any(|gone| path.is_in(gone)));
        }
    }
}

/// Whether a fault only follows from what was left out.
fn follows(fault: &KeyFault, path: &KeyPath, all_left_out: &[KeyPath]) -> bool {
    match fault {
        KeyFault::Missing(key) => all_left_out.contains(&path.key(key)),
        KeyFault::Unknown { .. } => false,
        _ => all_left_out.iter().any(|gone| gone.is_in(path)),
    }
}

/// Takes the wrong value out of its table, or, for a row of an array, the array. `path` becomes what was taken out.
fn leave_out(table: &mut Table, path: &mut KeyPath) -> bool {
    while !path.0.is_empty() {
        if path.remove(table).is_some() {
            return true;
        }
        *path = path.parent();
    }
    false
}

fn merge_tables(base: &mut Table, over: Table, at: &KeyPath, replaced: &mut Vec<KeyPath>) {
    for (key, value) in over {
        let at = at.key(&key);
        match (base.get_mut(&key), value) {
            (Some(Value::Table(base)), Value::Table(over)) => {
                merge_tables(base, over, &at, replaced)
            }
            (Some(old), value) => {
                *old = value;
                replaced.push(at);
            }
            (None, value) => {
                base.insert(key, value);
            }
        }
    }
}
