//! The tokenizer that a GGUF carries, rewritten as the `tokenizer.json` it was converted from.

use std::path::Path;

use serde_json::{Value, json};

use super::CarriedTemplate;
use crate::data::error::{DataError, Result};
use crate::model::gguf::{GgufFile, GgufTokenizer, TokenKind};

/// A tokenizer and what else its file says about conversations.
pub(super) struct Carried {
    /// The text of a `tokenizer.json`.
    pub(super) json: Vec<u8>,
    /// The template of conversations, if any.
    pub(super) template: Option<CarriedTemplate>,
}

/// Reads the tokenizer of the GGUF file `path`.
///
/// # Errors
/// The file is missing or damaged, or its tokenizer is of a kind that is not read.
pub(super) fn read(path: &Path) -> Result<Carried> {
    let refuse = |reason: String| DataError::Tokenizer {
        path: path.to_path_buf(),
        reason,
    };
    std::fs::metadata(path).map_err(|e| DataError::io(path, e))?;
    let carried = GgufFile::open(path)
        .and_then(|file| file.tokenizer())
        .map_err(|error| refuse(error.to_string()))?;
    let json = tokenizer_json(&carried).map_err(refuse)?;
    Ok(Carried {
        json: json.to_string().into_bytes(),
        template: carried.chat_template.clone().map(|text| CarriedTemplate {
            text,
            bos: name_of(&carried, carried.bos_token_id),
            eos: name_of(&carried, carried.eos_token_id),
        }),
    })
}

fn name_of(tokenizer: &GgufTokenizer, id: Option<u32>) -> Option<String> {
    tokenizer.tokens.get(id? as usize).cloned()
}

fn tokenizer_json(t: &GgufTokenizer) -> std::result::Result<Value, String> {
    if t.model != "gpt2" {
        return Err(format!(
            "tokenizer.ggml.model = {:?}, only \"gpt2\" (byte-level BPE) is read from a GGUF",
            t.model
        ));
    }
    let pre = t.pre.as_deref().unwrap_or("default");
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let split = match pre {
        "smollm" => {
            let digits = json!({"type": "Digits", "individual_digits": true});
            json!({"type": "Sequence", "pretokenizers": [digits, bytes]})
        }
        "gpt-2" | "default" => bytes.clone(),
        _ => {
            return Err(format!(
                "tokenizer.ggml.pre = {pre:?}, only \"smollm\" and \"gpt-2\" are read from a GGUF"
            ));
        }
    };
    let vocab: serde_json::Map<String, Value> = (t.tokens.iter().enumerate())
        .map(|(id, token)| (token.clone(), id.into()))
        .collect();
    if vocab.len() != t.tokens.len() {
        return Err("tokenizer.ggml.tokens names a token twice".into());
    }
    let added: Vec<Value> = (t.tokens.iter().zip(&t.kinds).enumerate())
        .filter(|(_, (_, kind))| matches!(kind, TokenKind::Control | TokenKind::UserDefined))
        .map(|(id, (content, kind))| {
            let special = *kind == TokenKind::Control;
            json!({"id": id, "content": content, "single_word": false, "lstrip": false,
                   "rstrip": false, "normalized": false, "special": special})
        })
        .collect();
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": split, "post_processor": null, "decoder": bytes,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "byte_fallback": false,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
                  "vocab": vocab, "merges": t.merges},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried() -> GgufTokenizer {
        let mut tokens: Vec<String> = vec!["<|end|>".into(), "<tool>".into()];
        let mut kinds = vec![TokenKind::Control, TokenKind::UserDefined];
        for piece in ["a", "b", "1", "2", "Ġ", "Ċ", "ab", "12", "Ġab"] {
            tokens.push(piece.into());
            kinds.push(TokenKind::Normal);
        }
        GgufTokenizer {
            model: "gpt2".into(),
            pre: Some("smollm".into()),
            tokens,
            kinds,
            merges: ["a b", "1 2", "Ġ ab"].map(String::from).to_vec(),
            bos_token_id: None,
            eos_token_id: Some(0),
            add_bos_token: false,
            chat_template: None,
        }
    }

    fn ids(t: &GgufTokenizer, text: &str) -> Vec<u32> {
        let json = tokenizer_json(t).unwrap().to_string();
        let built = tokenizers::Tokenizer::from_bytes(json).unwrap();
        let ids = built.encode(text, false).unwrap().get_ids().to_vec();
        assert_eq!(built.decode(&ids, false).unwrap(), text);
        ids
    }

    #[test]
    fn digits_stand_alone_where_the_file_says_so() {
        let mut t = carried();
        assert_eq!(
            ids(&t, "ab ab 12<tool>b<|end|>\n"),
            [8, 10, 6, 4, 5, 1, 3, 0, 7]
        );
        t.pre = Some("gpt-2".into());
        assert_eq!(ids(&t, "ab12"), [8, 9]);
    }

    #[test]
    fn what_is_not_read_is_named() {
        let mut t = carried();
        t.pre = Some("tekken".into());
        assert!(tokenizer_json(&t).unwrap_err().contains("pre = \"tekken\""));
        t.model = "llama".into();
        assert!(
            tokenizer_json(&t)
                .unwrap_err()
                .contains("model = \"llama\"")
        );
        let mut t = carried();
        t.tokens[3] = "a".into();
        assert!(tokenizer_json(&t).unwrap_err().contains("twice"));
    }
}
