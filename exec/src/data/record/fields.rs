//! The fields of a record as they are written in JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use minijinja::value::Value;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::data::bad_record::BadRecord;
use crate::data::chat::{Message, Role, Turn};

/// A message as written: `role` or `from`, `content` or `value`, and whatever else.
#[derive(Deserialize)]
pub(super) struct WrittenTurn {
    role: Option<String>,
    from: Option<String>,
    content: Option<Content>,
    value: Option<Content>,
    #[serde(flatten)]
    fields: BTreeMap<String, Value>,
}

impl WrittenTurn {
    /// The turn, the `message`th of its record from 1; fields that are null are left out.
    pub(super) fn read(mut self, message: usize) -> Result<Turn, BadRecord> {
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
        self.fields.retain(|_, value| !value.is_none());
        Ok(Turn {
            message: Message { role, content },
            fields: self.fields,
        })
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
pub(super) struct Keys {
    /// The keys.
    pub(super) names: BTreeSet<String>,
    /// The value of `id`, where it is a string or a number.
    pub(super) id: Option<String>,
}

impl Keys {
    /// The keys in quotes, for a message.
    pub(super) fn list(&self) -> String {
        if self.names.is_empty() {
            return "no keys".to_owned();
        }
        let names: Vec<_> = self
            .names
            .iter()
            .take(KEYS_SHOWN_MAX)
            .map(|key| shown(key))
            .collect();
        let more = if self.names.len() > KEYS_SHOWN_MAX {
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
                let mut keys = Keys {
                    names: BTreeSet::new(),
                    id: None,
                };
                while let Some(key) = map.next_key::<String>()? {
                    if !seen.insert(key.clone()) {
                        return Err(de::Error::custom(format!(
                            "the key {} occurs twice",
                            shown(&key)
                        )));
                    }
                    let is_there = if key == "id" {
                        let value: Option<serde_json::Value> = map.next_value()?;
                        keys.id = value.as_ref().and_then(name);
                        value.is_some()
                    } else {
                        map.next_value::<Option<IgnoredAny>>()?.is_some()
                    };
                    if is_there {
                        keys.names.insert(key);
                    }
                }
                Ok(keys)
            }
        }

        deserializer.deserialize_map(Object)
    }
}

/// What a record is called.
fn name(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
