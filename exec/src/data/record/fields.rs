//! The fields of a record as they are written in JSON.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::data::bad_record::BadRecord;
use crate::data::chat::{Message, Role};

/// A message as written: `role` or `from`, `content` or `value`.
#[derive(Deserialize)]
pub(super) struct Turn {
    role: Option<String>,
    from: Option<String>,
    content: Option<Content>,
    value: Option<Content>,
}

impl Turn {
    /// The message, the `message`th of its record from 1.
    pub(super) fn message(self, message: usize) -> Result<Message, BadRecord> {
        let role = self.role.or(self.from);
        let role = role.ok_or(BadRecord::MissingField {
            message,
            field: "role or from",
        })?;
        let content = self.content.or(self.value);
        let Content(content) = content.ok_or(BadRecord::MissingField {
            message,
            field: "content or value",
        })?;
        let role = Role::parse(&role).ok_or_else(|| BadRecord::UnknownRole {
            message,
            role: shown(&role),
        })?;
        Ok(Message { role, content })
    }
}

/// A string, or a list of `{"type": "text", "text": …}`, which are joined without a separator.
struct Content(String);

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StringOrParts;

        impl<'de> Visitor<'de> for StringOrParts {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of text parts")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Content, E> {
                Ok(Content(text.to_owned()))
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<Content, E> {
                Ok(Content(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Content, A::Error> {
                let mut all = String::new();
                while let Some(Part { text, .. }) = parts.next_element()? {
                    all.push_str(&text);
                }
                Ok(Content(all))
            }
        }

        deserializer.deserialize_any(StringOrParts)
    }
}

#[derive(Deserialize)]
struct Part {
    // Read for its check alone: an image must not pass as its caption.
    #[serde(rename = "type")]
    _kind: PartKind,
    text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum PartKind {
    Text,
}

/// A loss flag: 0, 1, false or true.
pub(super) struct Flag(pub(super) bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ZeroOrOne;

        impl Visitor<'_> for ZeroOrOne {
            type Value = Flag;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a loss flag 0, 1, false or true")
            }

            fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Flag, E> {
                Ok(Flag(flag))
            }

            fn visit_u64<E: de::Error>(self, flag: u64) -> Result<Flag, E> {
                match flag {
                    0 => Ok(Flag(false)),
                    1 => Ok(Flag(true)),
                    _ => Err(E::invalid_value(de::Unexpected::Unsigned(flag), &self)),
                }
            }
        }

        deserializer.deserialize_any(ZeroOrOne)
    }
}

/// The keys of an object whose values are not null; a key that occurs twice is an error, since the
/// last one would win unseen.
pub(super) struct Keys(pub(super) BTreeSet<String>);

impl Keys {
    /// The keys in quotes, for a message.
    pub(super) fn list(&self) -> String {
        if self.0.is_empty() {
            return "no keys".to_owned();
        }
        let names: Vec<_> = self
            .0
            .iter()
            .take(KEYS_SHOWN_MAX)
            .map(|key| shown(key))
            .collect();
        let more = if self.0.len() > KEYS_SHOWN_MAX {
            ", ..."
        } else {
            ""
        };
        format!("the keys {}{more}", names.join(", "))
    }
}

/// `text` in quotes, on one line and shortened.
fn shown(text: &str) -> String {
    format!("\"{}\"", shortened(text).escape_debug())
}

/// `text`, cut where a message would become unreadable.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(CHARS_SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

const CHARS_SHOWN_MAX: usize = 160;

const KEYS_SHOWN_MAX: usize = 12;

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Keys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut seen = BTreeSet::new();
                let mut keys = BTreeSet::new();
                while let Some(key) = map.next_key::<String>()? {
                    if !seen.insert(key.clone()) {
                        return Err(de::Error::custom(format!(
                            "the key {} occurs twice",
                            shown(&key)
                        )));
                    }
                    if map.next_value::<Option<IgnoredAny>>()?.is_some() {
                        keys.insert(key);
                    }
                }
                Ok(Keys(keys))
            }
        }

        deserializer.deserialize_map(Object)
    }
}
