//! Text to token ids, by bytes, by a Hugging Face `tokenizer.json` or by the tokenizer of a GGUF.

use std::ops::Range;
use std::path::Path;

use super::error::Result;

mod byte;
mod file;
mod gguf;

pub use byte::ByteTokenizer;
pub use file::FileTokenizer;

/// What a file that holds a tokenizer says about conversations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedTemplate {
    /// The Jinja template.
    pub text: String,
    /// The beginning-of-text token.
    pub bos: Option<String>,
    /// The token that ends a turn or a text.
    pub eos: Option<String>,
}

/// The tokenizers there are.
#[derive(Debug, Clone)]
pub enum Tokenizer {
    /// One id a byte: needs no file, for tests and small models.
    Byte(ByteTokenizer),
    /// A `tokenizer.json`, or the tokenizer of a GGUF.
    File(Box<FileTokenizer>),
}

impl Tokenizer {
    /// The built-in byte tokenizer.
    pub fn byte() -> Self {
        Self::Byte(ByteTokenizer)
    }

    /// Reads a `tokenizer.json`, the one in the folder `path`, or the tokenizer of a `.gguf` file.
    ///
    /// # Errors
    /// The file is missing, cannot be read or is no tokenizer.
    pub fn from_file(path: &Path) -> Result<Self> {
        Ok(Self::File(Box::new(FileTokenizer::open(path)?)))
    }

    /// The file it was read from, if any.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Byte(_) => None,
            Self::File(file) => Some(file.path()),
        }
    }

    /// The template of conversations inside the tokenizer's own file, as a GGUF has.
    pub fn carried_template(&self) -> Option<&CarriedTemplate> {
        match self {
            Self::Byte(_) => None,
            Self::File(file) => file.carried_template(),
        }
    }

    /// Number of ids, special tokens included: the largest id plus one.
    pub fn vocab_size(&self) -> u32 {
        match self {
            Self::Byte(_) => ByteTokenizer::VOCAB_SIZE,
            Self::File(file) => file.vocab_size(),
        }
    }

    /// The token that ends a turn or a text, where the tokenizer names one.
    pub fn eos_id(&self) -> Option<u32> {
        match self {
            Self::Byte(_) => Some(ByteTokenizer::EOS),
            Self::File(file) => file.eos_id(),
        }
    }

    /// The token that fills a draft block, where the tokenizer names one.
    ///
    /// Many name none; any id works that the target embeds but never produces, such as a padding
    /// row of its table.
    pub fn mask_id(&self) -> Option<u32> {
        match self {
            Self::Byte(_) => Some(ByteTokenizer::MASK),
            Self::File(file) => file.mask_id(),
        }
    }

    /// Ids of plain `text`; nothing is put before or after it.
    ///
    /// # Errors
    /// What the tokenizer says; the byte tokenizer never fails.
    pub fn encode(&self, text: &str) -> std::result::Result<Vec<u32>, EncodeError> {
        Ok(self.encode_with_offsets(text)?.0)
    }

    /// Ids of `text` and, for each, the byte of `text` where it begins.
    pub(super) fn encode_with_offsets(
        &self,
        text: &str,
    ) -> std::result::Result<(Vec<u32>, Vec<usize>), EncodeError> {
        match self {
            Self::Byte(byte) => Ok((byte.encode(text).collect(), (0..text.len()).collect())),
            Self::File(file) => file.encode_with_offsets(text),
        }
    }

    /// Ids of `text` and, for each, the bytes of `text` that it stands for.
    pub(super) fn encode_with_ranges(
        &self,
        text: &str,
    ) -> std::result::Result<Vec<(u32, Range<usize>)>, EncodeError> {
        match self {
            Self::Byte(byte) => Ok(byte.encode(text).zip((0..).map(|i| i..i + 1)).collect()),
            Self::File(file) => file.encode_with_ranges(text),
        }
    }

    /// Whether `token` is in the vocabulary.
    pub(super) fn has_token(&self, token: &str) -> bool {
        match self {
            Self::Byte(_) => false,
            Self::File(file) => file.has_token(token),
        }
    }

    /// Text of `ids`, special tokens shown by name, bytes that are no UTF-8 replaced.
    ///
    /// # Errors
    /// What the tokenizer says; the byte tokenizer never fails.
    pub fn decode(&self, ids: &[u32]) -> std::result::Result<String, EncodeError> {
        match self {
            Self::Byte(byte) => Ok(byte.decode(ids)),
            Self::File(file) => file.decode(ids),
        }
    }
}

/// Why text has no ids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The tokenizer has no chat markers.
    #[error("the tokenizer has no token {token}, which chat data needs")]
    NoChatToken {
        /// The token looked up.
        token: &'static str,
    },
    /// The tokenizer failed on the text.
    #[error("{0}")]
    Failed(String),
}
