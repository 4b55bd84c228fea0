//! Reading a value into a type, with errors that know where they are.
//!
//! The reader of the `toml` crate puts paths and expectations into prose; this one keeps them apart, so that one message can be
//! made from path, value and what is accepted.

use super::error::{KeyFault, shown};
use super::path::{KeyPath, Step};
use super::range::is_range_table;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, DeserializeSeed, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use std::fmt;
use toml::{Table, Value};

/// Reads a whole table.
///
/// # Errors
/// The first thing that does not fit `T`, and where.
pub(super) fn read<T: de::DeserializeOwned>(table: &Table) -> Result<T, ReadError> {
    T::deserialize(TableReader(table))
}

/// What does not fit, and where.
#[derive(Debug)]
pub(super) struct ReadError {
    /// From the inside out, as the error travels.
    steps: Vec<Step>,
    fault: Fault,
}

/// As [`KeyFault`], but a wrong type does not know its value yet.
#[derive(Debug)]
enum Fault {
    Known(KeyFault),
    Type { accepted: String },
}

impl ReadError {
    /// Path and fault.
    pub(super) fn parts(self) -> (KeyPath, KeyFault) {
        let path = KeyPath(self.steps.into_iter().rev().collect());
        let fault = match self.fault {
            Fault::Known(fault) => fault,
            Fault::Type { accepted } => KeyFault::Type {
                found: "this".into(),
                accepted,
            },
        };
        (path, fault)
    }

    const fn of(fault: KeyFault) -> Self {
        Self {
            steps: Vec::new(),
            fault: Fault::Known(fault),
        }
    }

    fn inside(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// The innermost value that a wrong type passes is the one that is wrong.
    fn about(self, value: &Value) -> Self {
        match self.fault {
            Fault::Known(_) => self,
            Fault::Type { accepted } => Self {
                steps: self.steps,
                fault: Fault::Known(KeyFault::Type {
                    found: shown(value),
                    accepted: accepted_for(value, accepted),
                }),
            },
        }
    }
}

/// Who writes a range in place of a single value is told where ranges stand.
fn accepted_for(value: &Value, accepted: String) -> String {
    let single = !["an array", "a table"].contains(&accepted.as_str());
    let ranged = value.is_array() || value.as_table().is_some_and(is_range_table);
    match single && ranged {
        true => format!("{accepted}, or its range in [sweep]"),
        false => accepted,
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            Fault::Known(fault) => fault.fmt(f),
            Fault::Type { accepted } => write!(f, "write {accepted}"),
        }
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::of(KeyFault::Other(message.to_string()))
    }

    fn invalid_type(_: Unexpected<'_>, accepted: &dyn Expected) -> Self {
        Self {
            steps: Vec::new(),
            fault: Fault::Type {
                accepted: in_words(&accepted.to_string()),
            },
        }
    }

    fn invalid_value(found: Unexpected<'_>, accepted: &dyn Expected) -> Self {
        Self::invalid_type(found, accepted)
    }

    fn invalid_length(_: usize, accepted: &dyn Expected) -> Self {
        Self::invalid_type(Unexpected::Seq, accepted)
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        let key = key.to_owned();
        let step = Step::Key(key.clone());
        Self::of(KeyFault::Unknown { key, known }).inside(step)
    }

    fn unknown_variant(value: &str, known: &'static [&'static str]) -> Self {
        let value = value.to_owned();
        Self::of(KeyFault::UnknownValue { value, known })
    }

    fn missing_field(key: &'static str) -> Self {
        Self::of(KeyFault::Missing(key))
    }
}

/// What serde expects, in the words of a file.
fn in_words(expected: &str) -> String {
    let whole = |min: &str, max: &str| format!("a whole number from {min} to {max}");
    match expected {
        "u8" => whole("0", "255"),
        "u16" => whole("0", "65535"),
        "u32" => whole("0", "4294967295"),
        "u64" | "usize" => "a whole number from 0".into(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        "a boolean" => "true or false".into(),
        "a string" | "string" | "path string" | "str" => "a string in quotes".into(),
        "a sequence" => "an array".into(),
        "a map" => "a table".into(),
        other if other.starts_with("struct ") => "a table".into(),
        other => other.into(),
    }
}

/// A value on its way into a type.
struct Reader<'de>(&'de Value);

/// The same for the table at the top.
struct TableReader<'de>(&'de Table);

impl<'de> de::Deserializer<'de> for TableReader<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_map(Entries::new(self.0))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> de::Deserializer<'de> for Reader<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(flag) => visitor.visit_bool(*flag),
            Value::Datetime(_) => Err(de::Error::invalid_type(Unexpected::Other("date"), &visitor)),
            Value::Array(rows) => visitor.visit_seq(Rows(rows.iter().enumerate())),
            Value::Table(table) => visitor.visit_map(Entries::new(table)),
        }
        .map_err(|error| error.about(self.0))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let choice = match self.0 {
            Value::String(name) => Some(Choice { name, held: None }),
            Value::Table(table) if table.len() == 1 => {
                table.iter().next().map(|(name, held)| Choice {
                    name,
                    held: Some(held),
                })
            }
            _ => None,
        };
        let Some(choice) = choice else {
            return Err(ReadError::of(KeyFault::Type {
                found: shown(self.0),
                accepted: format!("exactly one of {}", known.join(", ")),
            }));
        };
        visitor
            .visit_enum(choice)
            .map_err(|error| error.about(self.0))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, ReadError> for Reader<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The rows of an array.
struct Rows<'de>(std::iter::Enumerate<std::slice::Iter<'de, Value>>);

impl<'de> de::SeqAccess<'de> for Rows<'de> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ReadError> {
        let Some((row, value)) = self.0.next() else {
            return Ok(None);
        };
        seed.deserialize(Reader(value))
            .map(Some)
            .map_err(|error| error.about(value).inside(Step::Index(row)))
    }
}

/// The keys of a table and what they hold.
struct Entries<'de> {
    entries: toml::map::Iter<'de, String, Value>,
    held: Option<(&'de str, &'de Value)>,
}

impl<'de> Entries<'de> {
    fn new(table: &'de Table) -> Self {
        Self {
            entries: table.iter(),
            held: None,
        }
    }
}

impl<'de> de::MapAccess<'de> for Entries<'de> {
    type Error = ReadError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ReadError> {
        let Some((key, value)) = self.entries.next() else {
            return Ok(None);
        };
        self.held = Some((key, value));
        seed.deserialize(BorrowedStrDeserializer::new(key))
            .map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        let (key, value) = self
            .held
            .take()
            .expect("serde asks for a key before its value");
        seed.deserialize(Reader(value))
            .map_err(|error| error.about(value).inside(Step::Key(key.into())))
    }
}

/// One variant of an enum: its bare name, or a table of one key that holds its fields.
struct Choice<'de> {
    name: &'de str,
    held: Option<&'de Value>,
}

impl<'de> Choice<'de> {
    /// Reads the fields of a variant that has some.
    fn fields<T>(
        self,
        read: impl FnOnce(Reader<'de>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let name = self.name;
        match self.held {
            Some(value) => read(Reader(value))
                .map_err(|error| error.about(value).inside(Step::Key(name.into()))),
            None => Err(ReadError::of(KeyFault::Type {
                found: format!("{name:?} alone"),
                accepted: format!("{{ {name} = ... }}"),
            })),
        }
    }
}

impl<'de> de::EnumAccess<'de> for Choice<'de> {
    type Error = ReadError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), ReadError> {
        let name: BorrowedStrDeserializer<'_, ReadError> = BorrowedStrDeserializer::new(self.name);
        match seed.deserialize(name) {
            Ok(variant) => Ok((variant, self)),
            Err(ReadError {
                fault: Fault::Known(KeyFault::UnknownValue { value, known }),
                ..
            }) if self.held.is_some() => Err(de::Error::unknown_field(&value, known)),
            Err(error) => Err(error),
        }
    }
}

impl<'de> de::VariantAccess<'de> for Choice<'de> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        match self.held {
            None => Ok(()),
            Some(value) => Err(ReadError::of(KeyFault::Type {
                found: format!("{{ {} = {} }}", self.name, shown(value)),
                accepted: format!("{:?}", self.name),
            })),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, ReadError> {
        self.fields(|reader| seed.deserialize(reader))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ReadError> {
        self.fields(|reader| de::Deserializer::deserialize_any(reader, visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.fields(|reader| de::Deserializer::deserialize_any(reader, visitor))
    }
}
