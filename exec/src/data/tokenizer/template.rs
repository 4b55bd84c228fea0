//! The chat template that lies beside a `tokenizer.json`.

use std::path::Path;

use serde_json::Value;

use crate::data::error::{DataError, Result};

/// The template of `chat_template.jinja`, or the one in `tokenizer_config.json`, if there is any.
///
/// # Errors
/// A file is there and cannot be read, or is not what it should be.
pub(super) fn beside(tokenizer: &Path) -> Result<Option<String>> {
    let alone = tokenizer.with_file_name("chat_template.jinja");
    if let Some(text) = text(&alone)? {
        return Ok(Some(text));
    }
    let config = tokenizer.with_file_name("tokenizer_config.json");
    let Some(text) = text(&config)? else {
        return Ok(None);
    };
    let refuse = |reason: String| DataError::Tokenizer {
        path: config.clone(),
        reason,
    };
    let json: Value = serde_json::from_str(&text).map_err(|e| refuse(e.to_string()))?;
    match &json["chat_template"] {
        Value::Null => Ok(None),
        Value::String(template) => Ok(Some(template.clone())),
        // Several by name; the one for plain conversations is called default.
        Value::Array(named) => Ok(named
            .iter()
            .find(|entry| entry["name"] == "default")
            .and_then(|entry| entry["template"].as_str())
            .map(str::to_owned)),
        _ => Err(refuse("chat_template is neither text nor a list".into())),
    }
}

fn text(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DataError::io(path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::write;

    #[test]
    fn the_file_of_its_own_comes_first_and_lists_have_a_default() {
        let folder = tempfile::tempdir().unwrap();
        let tokenizer = folder.path().join("tokenizer.json");
        let found = || beside(&tokenizer).unwrap();
        assert_eq!(found(), None);
        let config = |text: &str| write(folder.path(), "tokenizer_config.json", text);
        config(
            r#"{"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]}"#,
        );
        assert_eq!(found().as_deref(), Some("d"));
        config(r#"{"chat_template": "one"}"#);
        assert_eq!(found().as_deref(), Some("one"));
        write(folder.path(), "chat_template.jinja", "own");
        assert_eq!(found().as_deref(), Some("own"));
    }

    #[test]
    fn a_config_that_is_not_json_is_named() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "tokenizer_config.json", "{");
        let error = beside(&folder.path().join("tokenizer.json")).unwrap_err();
        assert!(
            error.to_string().contains("tokenizer_config.json: "),
            "{error}"
        );
    }
}
