//! The tokenizer that a GGUF carries, as data.

use super::metadata::Metadata;
use crate::model::ModelError;

/// What a token stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// A marker that text must not produce by chance, such as the end of a turn.
    Control,
    /// Text that is always one token.
    UserDefined,
    /// Never produced: unknown, unused, or a raw byte.
    Other,
}

/// A tokenizer's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GgufTokenizer {
    /// Kind of model: `gpt2` is byte-level BPE.
    pub model: String,
    /// Name of the rule that splits text before merging, such as `smollm`.
    pub pre: Option<String>,
    /// Tokens by id, in the byte alphabet of GPT-2.
    pub tokens: Vec<String>,
    /// What each token is; as long as `tokens`.
    pub kinds: Vec<TokenKind>,
    /// Merges in order of preference, two tokens separated by a space.
    pub merges: Vec<String>,
    /// Beginning-of-text token, if any.
    pub bos_token_id: Option<u32>,
    /// Token that ends a turn or a text, if any.
    pub eos_token_id: Option<u32>,
    /// Whether text is to begin with the beginning-of-text token.
    pub add_bos_token: bool,
    /// The Jinja template of conversations, if any.
    pub chat_template: Option<String>,
}

impl GgufTokenizer {
    pub(super) fn read(m: &Metadata<'_>) -> Result<Self, ModelError> {
        let optional = |key: &str| match m.has(key) {
            true => m.text(key).map(|text| Some(text.to_owned())),
            false => Ok(None),
        };
        let tokens = m.texts("tokenizer.ggml.tokens")?;
        let types = "tokenizer.ggml.token_type";
        let kinds: Vec<TokenKind> = match m.has(types) {
            true => m.numbers(types)?.into_iter().map(kind).collect(),
            false => vec![TokenKind::Normal; tokens.len()],
        };
        if kinds.len() != tokens.len() {
            let problem = format!("expected one a token, {}; fetch it again", tokens.len());
            return Err(m.wrong(types, problem));
        }
        let id = |key: &str| {
            let id = m.token(key)?;
            match id.filter(|&id| id as usize >= tokens.len()) {
                Some(_) => Err(m.wrong(key, format!("there are {} tokens, from 0", tokens.len()))),
                None => Ok(id),
            }
        };
        let merges = "tokenizer.ggml.merges";
        Ok(Self {
            model: m.text("tokenizer.ggml.model")?.to_owned(),
            pre: optional("tokenizer.ggml.pre")?,
            merges: match m.has(merges) {
                true => m.texts(merges)?,
                false => Vec::new(),
            },
            bos_token_id: id("tokenizer.ggml.bos_token_id")?,
            eos_token_id: id("tokenizer.ggml.eos_token_id")?,
            add_bos_token: m.flag_or("tokenizer.ggml.add_bos_token", false)?,
            chat_template: optional("tokenizer.chat_template")?,
            kinds,
            tokens,
        })
    }
}

fn kind(number: i64) -> TokenKind {
    match number {
        1 => TokenKind::Normal,
        3 => TokenKind::Control,
        4 => TokenKind::UserDefined,
        _ => TokenKind::Other,
    }
}
