//! `--set training.grad_accum=4`.

use super::error::{ConfigError, one_line};
use super::path::KeyPath;
use toml::{Table, Value};

/// One key and the value it is set to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Flag {
    /// As it was given.
    pub(super) text: String,
    /// The key.
    pub(super) path: KeyPath,
    /// The value: TOML, or else the text itself as a string.
    pub(super) value: Value,
}

impl Flag {
    /// Reads `key=value`.
    ///
    /// # Errors
    /// When there is no `=`, no key, no value, or the value begins like TOML but is none.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        let refused = |message: String| ConfigError::Flag {
            flag: text.into(),
            message,
        };
        let Some((key, value)) = split(text) else {
            return Err(refused(
                "no value; write it as in training.grad_accum=4".into(),
            ));
        };
        let path = KeyPath::parse(key).map_err(refused)?;
        let value = value_of(value.trim()).map_err(refused)?;
        Ok(Self {
            text: text.into(),
            path,
            value,
        })
    }

    /// An error about this flag.
    pub(super) fn error(&self, message: String) -> ConfigError {
        ConfigError::Flag {
            flag: self.text.clone(),
            message,
        }
    }
}

/// Key and value around the first `=` outside quotes.
fn split(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '=') => return Some((&text[..at], &text[at + 1..])),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    None
}

fn value_of(text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Err("empty value; write \"\" with its quotes for an empty string".into());
    }
    match toml::from_str::<Table>(&format!("value = {text}")) {
        Ok(mut table) if table.len() == 1 => table
            .remove("value")
            .ok_or_else(|| format!("{text:?} is more than one value; give each its own flag")),
        Ok(_) => Err(format!(
            "{text:?} is more than one value; give each its own flag"
        )),
        Err(error) if text.starts_with(['[', '{', '"', '\'']) => Err(format!(
            "{} is not valid TOML: {}",
            one_line(text),
            error.message().replace('\n', ", ")
        )),
        Err(_) => Ok(Value::from(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        Flag::parse(text).unwrap().value
    }

    #[test]
    fn values_are_toml_and_bare_words_strings() {
        assert_eq!(value("a.b=4"), Value::from(4));
        assert_eq!(value("a.b = 4.5"), Value::from(4.5));
        assert_eq!(value("a=true"), Value::from(true));
        assert_eq!(value("a=[4, 8]"), Value::from(vec![4, 8]));
        assert_eq!(value("a=composed"), Value::from("composed"));
        assert_eq!(value("a=36 GiB"), Value::from("36 GiB"));
        assert_eq!(value("a=5+3"), Value::from("5+3"));
        assert_eq!(value("a=\"4\""), Value::from("4"));
        assert_eq!(value("a=x=y"), Value::from("x=y"));
        let range = value("a={ from = 4, to = 24, step = 4 }");
        assert_eq!(range.get("to"), Some(&Value::from(24)));
    }

    #[test]
    fn keys_may_be_quoted() {
        let flag = Flag::parse("sweep.\"a=b.c\"=[1]").unwrap();
        assert_eq!(flag.path.to_string(), "sweep.\"a=b.c\"");
    }

    #[test]
    fn what_cannot_be_set_says_how() {
        let refused = |text| Flag::parse(text).unwrap_err().to_string();
        assert_eq!(
            refused("training.grad_accum"),
            "--set training.grad_accum: no value; write it as in training.grad_accum=4"
        );
        assert_eq!(
            refused("=4"),
            "--set =4: \"\" is no key; write it as in training.grad_accum"
        );
        assert_eq!(
            refused("a="),
            "--set a=: empty value; write \"\" with its quotes for an empty string"
        );
        assert_eq!(
            refused("a=4\nb = 5"),
            "--set a=4\\nb = 5: \"4\\nb = 5\" is more than one value; give each its own flag"
        );
        assert!(
            refused("a=[1, 2").starts_with("--set a=[1, 2: [1, 2 is not valid TOML: "),
            "{}",
            refused("a=[1, 2")
        );
    }
}
