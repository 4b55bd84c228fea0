//! What the tests of this module share.

use std::path::{Path, PathBuf};

use super::chat::{Conversation, Message, Role};

/// A word-level tokenizer with ChatML markers; its largest id is 11, though it has 10 entries.
pub(super) const CHATML_TOKENIZER: &str = r#"{
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [
    {"id": 6, "content": "<|im_start|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
    {"id": 7, "content": "<|im_end|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
    {"id": 8, "content": "<|MASK|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}
  ],
  "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
  "model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {
    "a": 0, "b": 1, "user": 2, "assistant": 3, "system": 4, "[UNK]": 5,
    "<|im_start|>": 6, "<|im_end|>": 7, "<|MASK|>": 8, "z": 11}}
}"#;

/// Writes a file below `folder`, making the folders between, and returns its path.
pub(super) fn write(folder: &Path, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("below the folder")).expect("make folder");
    std::fs::write(&path, contents).expect("write file");
    path
}

/// A conversation of plain messages.
pub(super) fn talk(turns: &[(Role, &str)]) -> Conversation {
    let message = |&(role, content): &(Role, &str)| Message {
        role,
        content: content.into(),
    };
    let messages: Vec<_> = turns.iter().map(message).collect();
    Conversation::of(&messages)
}
