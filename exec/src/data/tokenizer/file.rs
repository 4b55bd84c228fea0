//! A Hugging Face `tokenizer.json` or the tokenizer of a GGUF, with conversations rendered as ChatML.

use std::path::{Path, PathBuf};

use super::{EncodeError, template};
use crate::data::chat::{Message, Role, Tokens};
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
    chat_template: Option<String>,
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
        let (bytes, chat_template) = if is_gguf(&path) {
            let carried = super::gguf::read(&path)?;
            (carried.json, carried.chat_template)
        } else {
            let bytes = std::fs::read(&path).map_err(|e| DataError::io(&path, e))?;
            (bytes, template::beside(&path)?)
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
        // The largest id, not the number of entries: ids may have gaps.
        let largest = inner.get_vocab(true).into_values().max();
        let vocab_size = largest
            .and_then(|id| id.checked_add(1))
            .ok_or_else(|| refuse("its vocabulary is empty".into()))?;
        Ok(Self {
            inner,
            path,
            vocab_size,
            chat_template,
        })
    }

    /// The file it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
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

    /// `<|im_start|>role\ncontent<|im_end|>\n` for each message.
    ///
    /// Everything up to an assistant's first token is encoded as one text, as it is when the model
    /// is asked, and so are the assistant's words: no token straddles the border of the mask.
    pub(super) fn encode_chat(
        &self,
        messages: &[Message],
    ) -> std::result::Result<Tokens, EncodeError> {
        for token in [TURN_START, TURN_END] {
            if self.inner.token_to_id(token).is_none() {
                return Err(EncodeError::NoChatToken { token });
            }
        }
        let mut tokens = Tokens::default();
        let mut unlearned = String::new();
        for message in messages {
            unlearned.push_str(&format!("{TURN_START}{}\n", message.role.name()));
            if message.role == Role::Assistant {
                self.append(&mut tokens, &unlearned, false)?;
                unlearned.clear();
                self.append(&mut tokens, &format!("{}{TURN_END}", message.content), true)?;
            } else {
                unlearned.push_str(&message.content);
                unlearned.push_str(TURN_END);
            }
            unlearned.push('\n');
        }
        self.append(&mut tokens, &unlearned, false)?;
        Ok(tokens)
    }

    pub(super) fn decode(&self, ids: &[u32]) -> std::result::Result<String, EncodeError> {
        self.inner
            .decode(ids, false)
            .map_err(|e| EncodeError::Failed(e.to_string()))
    }

    fn append(
        &self,
        tokens: &mut Tokens,
        text: &str,
        bears_loss: bool,
    ) -> std::result::Result<(), EncodeError> {
        let encoding = self
            .inner
            .encode_fast(text, false)
            .map_err(|e| EncodeError::Failed(e.to_string()))?;
        tokens.extend(encoding.get_ids().iter().copied(), bears_loss);
        Ok(())
    }

    fn first_of(&self, names: &[&str]) -> Option<u32> {
        names.iter().find_map(|name| self.inner.token_to_id(name))
    }
}

const TURN_START: &str = "<|im_start|>";
const TURN_END: &str = "<|im_end|>";

/// Names of the end token, the end of a turn before the end of a text.
const EOS_NAMES: [&str; 7] = [
    TURN_END,
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
    use super::*;
    use crate::data::Tokenizer;
    use crate::data::testing::{CHATML_TOKENIZER, write};

    fn said(role: Role, content: &str) -> Message {
        Message {
            role,
            content: content.into(),
        }
    }

    #[test]
    fn chat_is_rendered_as_chatml_with_loss_on_the_assistant() {
        let folder = tempfile::tempdir().expect("temporary folder");
        write(folder.path(), "tokenizer.json", CHATML_TOKENIZER);
        let tokenizer = Tokenizer::from_file(folder.path()).expect("tokenizer");
        let talk = [
            said(Role::User, "a b"),
            said(Role::Assistant, "b a"),
            said(Role::User, "a"),
        ];
        let tokens = tokenizer.encode_chat(&talk).expect("chat");
        // start=6 end=7 user=2 assistant=3 a=0 b=1; the whitespace splitter drops newlines.
        assert_eq!(tokens.ids, [6, 2, 0, 1, 7, 6, 3, 1, 0, 7, 6, 2, 0, 7]);
        assert_eq!(tokens.mask, [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0]);
    }

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
    fn a_tokenizer_without_chat_markers_says_which() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let plain = CHATML_TOKENIZER.replace("<|im_start|>", "<|open|>");
        let path = write(folder.path(), "tokenizer.json", &plain);
        let tokenizer = Tokenizer::from_file(&path).expect("tokenizer");
        let error = tokenizer
            .encode_chat(&[said(Role::User, "a")])
            .expect_err("no markers");
        assert_eq!(
            error,
            EncodeError::NoChatToken {
                token: "<|im_start|>"
            }
        );
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
