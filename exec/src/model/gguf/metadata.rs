//! Typed access to the metadata of a GGUF file, with errors that name file, key and value.

use std::collections::HashMap;
use std::path::Path;

use candle_core::quantized::gguf_file::Value;

use crate::model::ModelError;

/// The metadata and the file they came from.
pub(super) struct Metadata<'a> {
    path: &'a Path,
    map: &'a HashMap<String, Value>,
}

impl<'a> Metadata<'a> {
    pub(super) fn new(path: &'a Path, map: &'a HashMap<String, Value>) -> Self {
        Self { path, map }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    pub(super) fn wrong(&self, key: &str, problem: impl Into<String>) -> ModelError {
        ModelError::Config {
            file: self.path.display().to_string(),
            key: key.to_owned(),
            value: self
                .map
                .get(key)
                .map_or_else(|| "(missing)".to_owned(), shown),
            problem: problem.into(),
        }
    }

    pub(super) fn text(&self, key: &str) -> Result<&'a str, ModelError> {
        match self.map.get(key) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(self.wrong(key, "expected text")),
        }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, ModelError> {
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            _ => None,
        };
        self.list(key, "a list of texts", text)
    }

    pub(super) fn numbers(&self, key: &str) -> Result<Vec<i64>, ModelError> {
        self.list(key, "a list of whole numbers", whole)
    }

    pub(super) fn size(&self, key: &str) -> Result<usize, ModelError> {
        self.map
            .get(key)
            .and_then(whole)
            .and_then(|n| usize::try_from(n).ok())
            .filter(|&n| n > 0)
            .ok_or_else(|| self.wrong(key, "expected a whole number of at least 1"))
    }

    pub(super) fn size_or(&self, key: &str, default: usize) -> Result<usize, ModelError> {
        if self.has(key) {
            self.size(key)
        } else {
            Ok(default)
        }
    }

    pub(super) fn positive_or(&self, key: &str, default: f64) -> Result<f64, ModelError> {
        let number = match self.map.get(key) {
            None => return Ok(default),
            Some(Value::F32(x)) => f64::from(*x),
            Some(Value::F64(x)) => *x,
            Some(_) => f64::NAN,
        };
        if number.is_finite() && number > 0.0 {
            return Ok(number);
        }
        Err(self.wrong(key, "expected a number above 0"))
    }

    pub(super) fn flag_or(&self, key: &str, default: bool) -> Result<bool, ModelError> {
        match self.map.get(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.wrong(key, "expected true or false")),
        }
    }

    pub(super) fn token(&self, key: &str) -> Result<Option<u32>, ModelError> {
        let Some(value) = self.map.get(key) else {
            return Ok(None);
        };
        let id = whole(value).and_then(|id| u32::try_from(id).ok());
        id.map(Some)
            .ok_or_else(|| self.wrong(key, "expected a token id"))
    }

    /// Accepts a missing key or exactly `size`: anything else changes the computation.
    pub(super) fn expect_or_absent(&self, key: &str, size: usize) -> Result<(), ModelError> {
        match self.map.get(key) {
            Some(value) if whole(value) != i64::try_from(size).ok() => {
                let way_out = "give the target as a folder of safetensors";
                Err(self.wrong(key, format!("only {size} is supported; {way_out}")))
            }
            _ => Ok(()),
        }
    }

    fn list<T>(
        &self,
        key: &str,
        what: &str,
        item: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, ModelError> {
        let items = match self.map.get(key) {
            Some(Value::Array(list)) => list.iter().map(item).collect(),
            _ => None,
        };
        items.ok_or_else(|| self.wrong(key, format!("expected {what}")))
    }
}

fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::U8(n) => Some((*n).into()),
        Value::I8(n) => Some((*n).into()),
        Value::U16(n) => Some((*n).into()),
        Value::I16(n) => Some((*n).into()),
        Value::U32(n) => Some((*n).into()),
        Value::I32(n) => Some((*n).into()),
        Value::U64(n) => i64::try_from(*n).ok(),
        Value::I64(n) => Some(*n),
        _ => None,
    }
}

/// A value on one line of an error; lists by their length.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Array(list) => format!("(list of {})", list.len()),
        Value::Bool(flag) => flag.to_string(),
        Value::F32(x) => x.to_string(),
        Value::F64(x) => x.to_string(),
        _ => whole(value).map_or_else(|| "(too large)".to_owned(), |n| n.to_string()),
    }
}
