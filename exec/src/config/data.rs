//! The `[exec.data]` section.

use crate::data::{LossOn, OnBadLine, OverLong, PlainText, Rules, TemplateSource, is_inline};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where samples come from and which are taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSection {
    /// Files and folders: JSONL or plain text; or one token store. Empty: the sources and documents in this machine's Cargo registry.
    #[serde(default)]
    pub paths: Vec<PathBuf>,
    /// Folder of a token store that `dflash prepare` made from `paths`; samples are read from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<PathBuf>,
    /// `"byte"`, or a tokenizer.json, the folder that holds one, or a GGUF file.
    #[serde(default = "byte")]
    pub tokenizer: String,
    /// A chat template: a file, or the Jinja text itself. Left out: the tokenizer's own, else ChatML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<String>,
    /// Values that the chat template finds beside the conversation, such as `{ enable_thinking = false }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub template_values: BTreeMap<String, TemplateValue>,
    /// What bears loss in a conversation: `"assistant"` turns, the `"last-assistant"` turn, or `"all"`.
    #[serde(default = "assistant")]
    pub loss_on: String,
    /// Longest sample. (tokens)
    pub max_len: u32,
    /// What happens to longer ones: `"skip"`, `"truncate"` or `"reject"`.
    #[serde(default = "skip")]
    pub over_long: String,
    /// Fewest tokens that carry loss.
    #[serde(default = "two")]
    pub min_loss_tokens: u32,
    /// What happens at a broken line: `"stop"` or `"skip"`.
    #[serde(default = "stop")]
    pub on_bad_line: String,
    /// At most so many samples, drawn by `samples_seed`; 0 takes all.
    #[serde(default)]
    pub samples_max: u32,
    /// Which samples `samples_max` takes: one choice a seed, whatever the run's own seed is. With one seed, fewer samples are among
    /// more.
    #[serde(default)]
    pub samples_seed: u64,
    /// Text taken from the Cargo registry when `paths` is empty. (bytes)
    #[serde(default = "registry_bytes")]
    pub registry_bytes_max: u64,
}

/// A value that a chat template finds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TemplateValue {
    /// True or false.
    Flag(bool),
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
}

impl TemplateValue {
    fn for_template(&self) -> minijinja::Value {
        match self {
            Self::Flag(flag) => (*flag).into(),
            Self::Number(number) => (*number).into(),
            Self::Text(text) => text.as_str().into(),
        }
    }
}

fn assistant() -> String {
    "assistant".into()
}

fn byte() -> String {
    "byte".into()
}

fn skip() -> String {
    "skip".into()
}

fn stop() -> String {
    "stop".into()
}

const fn two() -> u32 {
    2
}

const fn registry_bytes() -> u64 {
    4 << 20
}

impl DataSection {
    /// The file or folder of the tokenizer; none for the byte tokenizer.
    pub fn tokenizer_path(&self) -> Option<&Path> {
        (self.tokenizer != byte()).then(|| Path::new(&self.tokenizer))
    }

    /// The file of the chat template, where the section names one.
    pub fn chat_template_path(&self) -> Option<&Path> {
        let value = self.chat_template.as_deref()?;
        (!is_inline(value)).then(|| Path::new(value))
    }

    /// The rules of [`crate::data::load`]. Reads the file of the chat template.
    ///
    /// # Errors
    /// A line that names the key, its value and the accepted ones.
    pub fn rules(&self) -> Result<Rules, String> {
        let mut rules = Rules::new(self.max_len);
        rules.over_long = self
            .over_long
            .parse::<OverLong>()
            .map_err(|e| format!("exec.data.over_long: {e}"))?;
        rules.on_bad_line = self
            .on_bad_line
            .parse::<OnBadLine>()
            .map_err(|e| format!("exec.data.on_bad_line: {e}"))?;
        rules.loss_on = self
            .loss_on
            .parse::<LossOn>()
            .map_err(|e| format!("exec.data.loss_on: {e}"))?;
        rules.chat_template = self
            .chat_template
            .as_deref()
            .map(TemplateSource::read)
            .transpose()
            .map_err(|e| format!("exec.data.chat_template: {e}"))?;
        rules.template_values = self
            .template_values
            .iter()
            .map(|(key, value)| (key.clone(), value.for_template()))
            .collect();
        rules.min_loss_tokens = self.min_loss_tokens;
        rules.plain = PlainText::Chunks {
            tokens_max: self.max_len,
        };
        Ok(rules)
    }
}
