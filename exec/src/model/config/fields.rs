//! Typed access to the keys of a config.json, with errors that name file, key and value.

use std::path::Path;

use serde_json::{Map, Value};

use super::refuse;
use super::rotary::Llama3Scaling;
use crate::model::ModelError;

/// A JSON object and where it came from.
#[derive(Clone)]
pub(super) struct Fields {
    file: String,
    /// Keys of enclosing objects, each with a dot behind it.
    prefix: String,
    map: Map<String, Value>,
}

impl Fields {
    pub(super) fn load(path: &Path) -> Result<Self, ModelError> {
        let text = std::fs::read_to_string(path).map_err(|source| ModelError::Read {
            path: path.to_owned(),
            source,
        })?;
        let json = serde_json::from_str(&text).map_err(|source| ModelError::Json {
            path: path.to_owned(),
            source,
        })?;
        Self::new(json, &path.display().to_string())
    }

    pub(super) fn new(json: Value, file: &str) -> Result<Self, ModelError> {
        match json {
            Value::Object(map) => Ok(Self {
                file: file.into(),
                prefix: String::new(),
                map,
            }),
            other => Err(refuse(
                file,
                "(whole file)",
                other,
                "expected an object of keys",
            )),
        }
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// The value of a key; an explicit null counts as absent, as transformers writes it.
    fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn wrong(&self, key: &str, problem: impl Into<String>) -> ModelError {
        let value = self
            .map
            .get(key)
            .map_or_else(|| "(missing)".to_owned(), Value::to_string);
        refuse(&self.file, &format!("{}{key}", self.prefix), value, problem)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn object(&self, key: &str) -> Result<Self, ModelError> {
        match self.get(key) {
            Some(Value::Object(map)) => Ok(Self {
                file: self.file.clone(),
                prefix: format!("{}{key}.", self.prefix),
                map: map.clone(),
            }),
            _ => Err(self.wrong(key, "expected an object")),
        }
    }

    pub(super) fn size(&self, key: &str) -> Result<usize, ModelError> {
        self.get(key)
            .and_then(Value::as_u64)
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

    pub(super) fn sizes(&self, key: &str) -> Result<Vec<usize>, ModelError> {
        self.get(key)
            .and_then(Value::as_array)
            .and_then(|list| {
                list.iter()
                    .map(|n| n.as_u64().and_then(|n| usize::try_from(n).ok()))
                    .collect()
            })
            .ok_or_else(|| self.wrong(key, "expected a list of layer numbers from 0"))
    }

    pub(super) fn positive(&self, key: &str) -> Result<f64, ModelError> {
        self.get(key)
            .and_then(Value::as_f64)
            .filter(|x| *x > 0.0 && x.is_finite())
            .ok_or_else(|| self.wrong(key, "expected a positive number"))
    }

    pub(super) fn positive_or(&self, key: &str, default: f64) -> Result<f64, ModelError> {
        if self.has(key) {
            self.positive(key)
        } else {
            Ok(default)
        }
    }

    pub(super) fn bool_or(&self, key: &str, default: bool) -> Result<bool, ModelError> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value
                .as_bool()
                .ok_or_else(|| self.wrong(key, "expected true or false")),
        }
    }

    pub(super) fn required_token(&self, key: &str) -> Result<u32, ModelError> {
        self.token(key)?
            .ok_or_else(|| self.wrong(key, "expected a token id"))
    }

    /// A token id, or the first of a list of them.
    pub(super) fn token(&self, key: &str) -> Result<Option<u32>, ModelError> {
        let value = match self.get(key) {
            None => return Ok(None),
            Some(Value::Array(list)) => list.first().unwrap_or(&Value::Null),
            Some(value) => value,
        };
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.map(Some)
            .ok_or_else(|| self.wrong(key, "expected a token id"))
    }

    /// The first name under `architectures`.
    pub(super) fn architecture_name(&self) -> Option<&str> {
        self.get("architectures")?.get(0)?.as_str()
    }

    pub(super) fn architecture(&self, wanted: &str) -> Result<(), ModelError> {
        match self.architecture_name() {
            Some(name) if name == wanted => Ok(()),
            _ => Err(self.wrong("architectures", format!("expected [\"{wanted}\"]"))),
        }
    }

    /// Accepts a missing key or exactly `value`: anything else changes the computation.
    pub(super) fn expect_or_absent(&self, key: &str, value: Value) -> Result<(), ModelError> {
        match self.get(key) {
            Some(found) if *found != value => {
                Err(self.wrong(key, format!("only {value} is supported")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, ModelError> {
        let list = self.get(key).and_then(Value::as_array);
        list.and_then(|list| {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            list.iter().map(text).collect()
        })
        .ok_or_else(|| self.wrong(key, "expected a list of texts"))
    }

    pub(super) fn full_attention_only(&self) -> Result<(), ModelError> {
        let Some(types) = self.get("layer_types") else {
            return Ok(());
        };
        let layers = self.size("num_hidden_layers")?;
        match types.as_array() {
            Some(list) if list.len() != layers => Err(self.wrong(
                "layer_types",
                format!("expected {layers} entries, one a layer"),
            )),
            Some(list) if list.iter().all(|kind| kind == "full_attention") => Ok(()),
            _ => Err(self.wrong(
                "layer_types",
                "only full_attention is supported in every layer",
            )),
        }
    }

    /// `rope_theta` and its scaling, from the top level and `rope_scaling` or from `rope_parameters`.
    pub(super) fn rope(&self) -> Result<(f64, Option<Llama3Scaling>), ModelError> {
        let section = match (self.has("rope_scaling"), self.has("rope_parameters")) {
            (true, _) => Some(self.object("rope_scaling")?),
            (false, true) => Some(self.object("rope_parameters")?),
            (false, false) => None,
        };
        let Some(section) = section else {
            return Ok((self.positive("rope_theta")?, None));
        };
        let theta = match self.has("rope_theta") {
            true => self.positive("rope_theta")?,
            false => section.positive("rope_theta")?,
        };
        // Older files call it `type`.
        let key = if section.has("rope_type") {
            "rope_type"
        } else {
            "type"
        };
        let scaling = match section.get(key).map(|kind| kind.as_str()) {
            None | Some(Some("default")) => None,
            Some(Some("llama3")) => Some(Llama3Scaling::from_fields(&section)?),
            Some(_) => {
                let problem = "only \"default\" and \"llama3\" are supported; choose a target whose rope is not scaled otherwise";
                return Err(section.wrong(key, problem));
            }
        };
        Ok((theta, scaling))
    }

    /// One entry a layer: whether `layer_types` says `sliding_attention`. Without the key all are
    /// full, unless `use_sliding_window` says that it is missing.
    pub(super) fn sliding_layers(&self) -> Result<Vec<bool>, ModelError> {
        let layers = self.size("num_hidden_layers")?;
        let Some(types) = self.get("layer_types") else {
            self.expect_or_absent("use_sliding_window", false.into())?;
            return Ok(vec![false; layers]);
        };
        let kind = |kind: &Value| match kind.as_str() {
            Some("full_attention") => Some(false),
            Some("sliding_attention") => Some(true),
            _ => None,
        };
        let list: Option<Vec<bool>> = types
            .as_array()
            .and_then(|list| list.iter().map(kind).collect());
        match list {
            Some(list) if list.len() == layers => Ok(list),
            _ => Err(self.wrong(
                "layer_types",
                format!("expected {layers} entries of full_attention or sliding_attention"),
            )),
        }
    }

    /// A flag that may be absent.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        match self.has(key) {
            true => self.bool_or(key, false).map(Some),
            false => Ok(None),
        }
    }

    /// Dimensions of a head that are turned: `partial_rotary_factor` of it, a quarter if not said.
    pub(super) fn rotary_dims(&self, head_dim: usize) -> Result<usize, ModelError> {
        let key = "partial_rotary_factor";
        let section = match self.has("rope_parameters") {
            true => self.object("rope_parameters")?,
            false => self.clone(),
        };
        let said = if section.has(key) { &section } else { self };
        let factor = said.positive_or(key, 0.25)?;
        // Rounded down, as the published code does.
        let dims = (head_dim as f64 * factor) as usize;
        if dims == 0 || dims > head_dim || !dims.is_multiple_of(2) {
            let problem =
                format!("turns {dims} of {head_dim} dimensions; must be an even part of them");
            return Err(said.wrong(key, problem));
        }
        Ok(dims)
    }

    /// `rope_theta`, from the top level or from `rope_parameters`; scaled rope is refused.
    pub(super) fn rope_theta(&self) -> Result<f64, ModelError> {
        if self.has("rope_scaling") {
            return Err(self.wrong("rope_scaling", "scaled rope is not supported, only null"));
        }
        if self.has("rope_theta") || !self.has("rope_parameters") {
            return self.positive("rope_theta");
        }
        let rope = self.object("rope_parameters")?;
        rope.expect_or_absent("rope_type", "default".into())?;
        rope.positive("rope_theta")
    }
}
