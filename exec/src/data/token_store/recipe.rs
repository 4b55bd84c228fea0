//! What decides the contents of a store.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::data::chat_format::ChatFormat;
use crate::data::digest::Digest;
use crate::data::error::{DataError, Result};
use crate::data::rules::{PlainText, Rules};
use crate::data::tokenizer::Tokenizer;

/// What goes into a store and how.
#[derive(Debug, Clone, Copy)]
pub struct Recipe<'a> {
    /// Files and folders, as [`crate::data::load`] takes them.
    pub inputs: &'a [PathBuf],
    /// The tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// The rules.
    pub rules: &'a Rules,
}

impl Recipe<'_> {
    /// Everything but the sources, by the keys that users know.
    ///
    /// # Errors
    /// The tokenizer's file or the chat template cannot be read.
    pub(super) fn settings(&self) -> Result<BTreeMap<String, String>> {
        let rules = self.rules;
        let plain = match rules.plain {
            PlainText::Chunks { tokens_max } => format!("chunks of {tokens_max}"),
            PlainText::Whole => "whole".into(),
        };
        let vocab = rules.vocab.unwrap_or_else(|| self.tokenizer.vocab_size());
        let settings = [
            ("tokenizer", self.tokenizer_print()?),
            ("chat_template", self.template_print()?),
            ("max_len", rules.max_len.to_string()),
            ("over_long", rules.over_long.name().into()),
            ("min_loss_tokens", rules.min_loss_tokens.to_string()),
            ("on_bad_line", rules.on_bad_line.name().into()),
            ("bad_share_max", rules.bad_share_max.to_string()),
            ("line_bytes_max", rules.line_bytes_max.to_string()),
            ("loss_on", rules.loss_on.name().into()),
            ("plain text", plain),
            ("vocab", vocab.to_string()),
        ];
        Ok(settings.map(|(key, value)| (key.to_owned(), value)).into())
    }

    /// The tokenizer by the bytes of its file, wherever that lies.
    fn tokenizer_print(&self) -> Result<String> {
        let Some(path) = self.tokenizer.path() else {
            return Ok("byte".into());
        };
        print_of(path).map_err(|source| DataError::io(path, source))
    }

    fn template_print(&self) -> Result<String> {
        let chat = ChatFormat::new(self.tokenizer, self.rules)?;
        let Some(template) = chat.template() else {
            return Ok("built-in".into());
        };
        let mut digest = Digest::new();
        for text in template.deciding() {
            digest.add(&(text.len() as u64).to_le_bytes());
            digest.add(text.as_bytes());
        }
        Ok(format!("{:016x}", digest.finish()))
    }
}

/// Length and digest of a file's beginning: model files with a tokenizer inside have it in front.
fn print_of(path: &Path) -> std::io::Result<String> {
    let file = std::fs::File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut start = Vec::new();
    file.take(PRINTED_BYTES).read_to_end(&mut start)?;
    let mut digest = Digest::new();
    digest.add(&bytes.to_le_bytes());
    digest.add(&start);
    Ok(format!("{:016x}", digest.finish()))
}

const PRINTED_BYTES: u64 = 64 << 20;
