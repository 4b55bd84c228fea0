//! A Hugging Face `tokenizer.json` or the tokenizer of a GGUF.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{CarriedTemplate, EncodeError};
use crate::data::error::{DataError, Result};
use crate::model::gguf::is_gguf;

/// A tokenizer read from a file.
///
/// Truncation and padding that the file asks for are switched off: lengths are this module's
/// business, and padding is not text.
#[derive(Debug, Clone)]
pub struct FileTokenizer {
    inner: tokenizers::Tokenizer,
    path: PathBuf,
    vocab_size: u32,
    template: Option<CarriedTemplate>,
}

impl FileTokenizer {
    /// Reads `path`, or `path/tokenizer.json` if `path` is a folder; of a GGUF the tokenizer in it.
    ///
    /// # Errors
    /// The file is missing, cannot be read or is no tokenizer.
    pub fn open(path: &Path) -> Result<Self> {
        let path = if path.is_dir() {
            path.join("tokenizer.json")
        } else {
            path.to_path_buf()
        };
        let (bytes, template) = if is_gguf(&path) {
            let carried = super::gguf::read(&path)?;
            (carried.json, carried.template)
        } else {
            let bytes = std::fs::read(&path).map_err(|e| DataError::io(&path, e))?;
            (bytes, None)
        };
        let refuse = |reason: String| DataError::Tokenizer {
            path: path.clone(),
            reason,
        };
        let mut inner =
            tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| refuse(e.to_string()))?;
        inner
            .with_truncation(None)
            .map_err(|e| refuse(e.to_string()))?;
        inner.with_padding(None);
        // It adds tokens, which this module never asks for, and takes blanks out of the offsets.
        inner.with_post_processor(None::<tokenizers::PostProcessorWrapper>);
        // The largest id, not the number of entries: ids may have gaps.
        let largest = inner.get_vocab(true).into_values().max();
        let vocab_size = largest
            .and_then(|id| id.checked_add(1))
            .ok_or_else(|| refuse("its vocabulary is empty".into()))?;
        Ok(Self {
            inner,
            path,
            vocab_size,
            template,
        })
    }

    /// The file it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn carried_template(&self) -> Option<&CarriedTemplate> {
        self.template.as_ref()
    }

    pub(super) fn vocab_size(&self) -> u32 {
        self.vocab_size
    }

    pub(super) fn eos_id(&self) -> Option<u32> {
        self.first_of(&EOS_NAMES)
    }

    pub(super) fn mask_id(&self) -> Option<u32> {
        self.first_of(&MASK_NAMES)
    }

    pub(super) fn encode_with_offsets(
        &self,
        text: &str,
    ) -> std::result::Result<(Vec<u32>, Vec<usize>), EncodeError> {
        let encoding = self
            .inner
            .encode(text, false)
            .map_err(|e| EncodeError::Failed(e.to_string()))?;
        let starts = encoding
            .get_offsets()
            .iter()
            .map(|offset| offset.0)
            .collect();
        Ok((encoding.get_ids().to_vec(), starts))
    }

    pub(super) fn encode_with_ranges(
        &self,
        text: &str,
    ) -> std::result::Result<Vec<(u32, Range<usize>)>, EncodeError> {
        let encoding = self
            .inner
            .encode(text, false)
            .map_err(|e| EncodeError::Failed(e.to_string()))?;
        let ranges = encoding
            .get_offsets()
            .iter()
            .map(|&(start, end)| start..end);
        Ok(encoding.get_ids().iter().copied().zip(ranges).collect())
    }

    pub(super) fn has_token(&self, token: &str) -> bool {
        self.inner.token_to_id(token).is_some()
    }

    pub(super) fn decode(&self, ids: &[u32]) -> std::result::Result<String, EncodeError> {
        self.inner
            .decode(ids, false)
            .map_err(|e| EncodeError::Failed(e.to_string()))
    }

    fn first_of(&self, names: &[&str]) -> Option<u32> {
        names.iter().find_map(|name| self.inner.token_to_id(name))
    }
}

/// Names of the end token, the end of a turn before the end of a text.
const EOS_NAMES: [&str; 7] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
];

/// Names of a token that fills a draft block, the one made for it first.
const MASK_NAMES: [&str; 4] = ["<|MASK|>", "<|mask|>", "<mask>", "[MASK]"];

#[cfg(test)]
mod tests {
    use crate::data::Tokenizer;
    use crate::data::testing::{CHATML_TOKENIZER, write};

    #[test]
    fn special_tokens_and_vocabulary_are_looked_up() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = write(folder.path(), "tokenizer.json", CHATML_TOKENIZER);
        let tokenizer = Tokenizer::from_file(&path).expect("tokenizer");
        assert_eq!(tokenizer.eos_id(), Some(7));
        assert_eq!(tokenizer.mask_id(), Some(8));
        // Seven entries, but the largest id is 11.
        assert_eq!(tokenizer.vocab_size(), 12);
        assert_eq!(tokenizer.decode(&[7, 0]).expect("decode"), "<|im_end|> a");
    }

    #[test]
    fn truncation_and_padding_of_the_file_are_ignored() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let cut = CHATML_TOKENIZER.replace(
            "\"truncation\": null, \"padding\": null",
            r#""truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
               "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null,
                           "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}"#,
        );
        assert_ne!(cut, CHATML_TOKENIZER);
        let path = write(folder.path(), "tokenizer.json", &cut);
        let tokenizer = Tokenizer::from_file(&path).expect("tokenizer");
        assert_eq!(tokenizer.encode("a b a b").expect("ids"), [0, 1, 0, 1]);
    }

    #[test]
    fn missing_and_broken_files_are_named() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let error = Tokenizer::from_file(folder.path()).expect_err("empty folder");
        let path = folder.path().join("tokenizer.json");
        assert_eq!(
            error.to_string(),
            format!("{}: no such file or folder: check the path", path.display())
        );
        write(folder.path(), "tokenizer.json", "{}");
        let text = Tokenizer::from_file(&path)
            .expect_err("no tokenizer")
            .to_string();
        assert!(
            text.contains("tokenizer.json: cannot be used as a tokenizer: "),
            "{text}"
        );
        assert!(
            text.ends_with("give a Hugging Face tokenizer.json or use the byte tokenizer"),
            "{text}"
        );
    }
}
